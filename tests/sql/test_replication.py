"""A publication of all tables, as logical replication wants it, is in nobody's way."""

from typing import Any

import psycopg
from tests.sql.queue import Connection

from spanmq.client import Client

WITHOUT_IDENTITY = """
select c.oid::regclass::text from pg_class c
where c.relnamespace in ('spanmq_core'::regnamespace, 'pgmq'::regnamespace) and c.relkind in ('r', 'p')
    and c.relpersistence = 'p' and c.relreplident <> 'f'
    -- The parent of a log has no rows: they lie in its segments.
    and not exists (select from pg_inherits i where i.inhparent = c.oid)
    and not exists (
        select from pg_index i where i.indrelid = c.oid
            and case when c.relreplident = 'i' then i.indisreplident else i.indisprimary end)
"""


def test_each_table_says_which_row_a_change_meant(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pgmq.create('jobs'), pgmq.create_partitioned('parts')")
        connection.execute("select spanmq.set_policy('jobs', '{\"ordered\": true}')")
        assert connection.execute(WITHOUT_IDENTITY.encode()).fetchall() == []


def test_a_whole_life_under_a_publication(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create publication everything for all tables")
        client = Client(connection=connection)
        client.queues.create("jobs")
        client.topics.bind("a.*", "jobs")
        client.dead_letters.categories.set_policy("DEPENDENCY", {"max_attempts": 3}, queue="jobs")
        for _ in range(120):
            client.send("jobs", "x")
            (message,) = client.receive("jobs")
            client.nack([message], error="boom", retry_in=0)
            client.reject(client.receive("jobs"), error="no")
        rows_of(connection, "select spanmq_core.fold_dead_letter_counts(queue_id) from spanmq_core.queue")
        assert client.dead_letters.discard("jobs", limit=1000) == 120
        client.send("jobs", "y")
        client.nack(client.receive("jobs"), error="boom")
        assert client.queues.purge("jobs") == 1
        assert rows_of(connection, "select from spanmq_core.failure where outcome = 'retrying'") == []
        client.topics.unbind("a.*", "jobs")
        client.dead_letters.categories.set_policy("DEPENDENCY", None, queue="jobs")
        while client.admin.maintain():
            pass
        assert client.queues.drop("jobs")


def rows_of(connection: Connection, query: str) -> list[Any]:
    return connection.execute(query.encode()).fetchall()
