"""Two databases beside each other: upstream PGMQ, and spanmq. Each test finds them without queues."""

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql
from tests.sql.queue import Connection

from spanmq.testing import new_database, with_database

LEFT_OVER = """
    select c.relname, c.relkind = 'v' from pg_class c
    where c.relnamespace = 'pgmq'::regnamespace and c.relkind in ('r', 'v') and c.relname ~ '^[qa]_'
"""


@dataclass(frozen=True, slots=True)
class Pair:
    upstream: Connection
    here: Connection


# One pair for all: a pair for each test would cost more than the tests.
@pytest.fixture(scope="session")
def databases(spanmq_server: str, spanmq_template: str, upstream_template: str) -> Iterator[tuple[str, str]]:
    with (
        new_database(spanmq_server, template=upstream_template) as upstream,
        new_database(spanmq_server, template=spanmq_template) as here,
    ):
        yield with_database(spanmq_server, upstream), with_database(spanmq_server, here)


@pytest.fixture
def pair(databases: tuple[str, str]) -> Iterator[Pair]:
    """Return a connection in autocommit mode to each of the two."""
    upstream, here = databases
    with (
        psycopg.connect(upstream, autocommit=True) as upstream_connection,
        psycopg.connect(here, autocommit=True) as here_connection,
    ):
        yield Pair(upstream_connection, here_connection)
        for connection in (upstream_connection, here_connection):
            connection.execute("rollback")
            connection.execute("set client_min_messages = error")
            connection.execute("select pgmq.drop_queue(queue_name) from pgmq.list_queues()")
        # Upstream forgets tables where two names differ in case only.
        upstream_connection.execute("delete from pgmq.meta")
        for name, _ in upstream_connection.execute(LEFT_OVER).fetchall():
            upstream_connection.execute(sql.SQL("drop table pgmq.{}").format(sql.Identifier(name)))
        assert here_connection.execute(LEFT_OVER).fetchall() == []
        assert here_connection.execute("select * from pgmq.meta").fetchall() == []
