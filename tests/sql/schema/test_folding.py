"""Names of queues: A to Z have no case in a database of any collation; all other letters are as they are."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors, sql
from tests.sql.schema.test_released import dump_of

from spanmq import Client, schema
from spanmq.errors import QueueNotFoundError, SpanmqError
from spanmq.model.queue import folded
from spanmq.testing import with_database

TURKISH = "locale_provider icu icu_locale 'tr-TR' locale 'C'"
UNICODE = "locale_provider builtin builtin_locale 'C.UTF-8' locale 'C'"


@contextmanager
def database_of(server: str, collation: str) -> Iterator[str]:
    """Yield the DSN of an empty database of a collation, of which the server may have none."""
    name = f"spanmq_test_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        try:
            connection.execute(
                f"create database {name} template template0 encoding 'UTF8' {collation}".encode()
            )
        except (errors.FeatureNotSupported, errors.SyntaxError, errors.InvalidParameterValue) as error:
            pytest.skip(str(error))
        try:
            yield with_database(server, name)
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture(params=[TURKISH, UNICODE], ids=["Turkish", "Unicode"])
def collated(request: pytest.FixtureRequest, spanmq_server: str) -> Iterator[str]:
    with database_of(spanmq_server, request.param) as dsn:
        yield dsn


def test_names_fold_alike_in_sql_and_python(collated: str) -> None:
    with psycopg.connect(collated, autocommit=True) as connection:
        schema.install(connection)
        names = ["INBOX", "inbox", "Inbox", "Ärger", "ärger", "İ", "\u0131", "PLAIN"]
        for name in names:
            connection.execute("select pgmq.create(%s)", [name])
        made = [
            name for (name,) in connection.execute("select name from spanmq_core.queue order by queue_id")
        ]
        assert made == ["INBOX", "Ärger", "ärger", "İ", "\u0131", "PLAIN"]
        [(same,)] = connection.execute(
            'select bool_and(lower(n collate "C") = f) from unnest(%s::text[], %s::text[]) t (n, f)',
            [names, [folded(name) for name in names]],
        )
        assert same


def test_each_queue_is_found_by_any_case_of_a_to_z(collated: str) -> None:
    with Client(collated) as client:
        client.install()
        for name in ("INBOX", "Ärger"):
            client.queues.create(name)
        client.send("inbox", 1)
        client.send_batch("Inbox", [2, 3])
        [message] = client.receive("iNBOX")
        assert (message.body, client.ack(message)[0].outcome) == (1, "acked")
        assert [each.queue for each in client.inspect.count(["inbox"])] == ["INBOX"]
        client.send("ÄRGER", 1)
        with pytest.raises(QueueNotFoundError):
            client.send("ärger", 1)
        client.queues.drop("inbox")
        assert [each.name for each in client.queues.list()] == ["Ärger"]


def restore(dsn: str, role: str) -> None:
    """Put the database of the release there that folded names as the collation does."""
    with psycopg.connect(dsn, autocommit=True) as restoring:
        restoring.execute(dump_of("0.1.0").replace("released_role", role).encode())


def test_queues_of_a_release_keep_their_messages_under_the_new_rule(role: str, collated: str) -> None:
    restore(collated, role)
    with Client(collated) as client, psycopg.connect(collated, autocommit=True) as connection:
        for name in ("İÄB", "INBOX"):
            client.queues.create(name)
            client.send_batch(name, [1, 2, 3], headers={"n": 1})
            client.archive(name, [1])
        schema.upgrade(connection)
        assert schema.verify(connection) == []
        for name in ("İÄB", "İÄb", "INBOX", "inbox"):
            assert [each.body for each in client.peek(name)] == [2, 3]
            assert [each.body for each in client.inspect.archive(name)] == [1]
        assert client.send("INBOX", 4) == 4
        names = (
            "select relname from pg_class where relnamespace = 'pgmq'::regnamespace and relname ~ 'inbox|Äb' "
        )
        assert {name for (name,) in connection.execute(names.encode())} == {
            f"{relation}{suffix}"
            for name in ("inbox", "İÄb")
            for relation, suffix in (
                (f"q_{name}", ""),
                (f"q_{name}", "_msg_id_seq"),
                (f"a_{name}", ""),
                (f"a_{name}", "_pkey"),
                (f"a_{name}", "_archived_at_idx"),
            )
        }
        assert client.queues.drop("İÄb")
        with pytest.raises(QueueNotFoundError):
            client.send("İÄB", 1)


def test_two_queues_that_would_be_one_stop_the_upgrade(role: str, spanmq_server: str) -> None:
    with database_of(spanmq_server, TURKISH) as dsn:
        restore(dsn, role)
        with Client(dsn) as client, psycopg.connect(dsn, autocommit=True) as connection:
            client.queues.create("INBOX")
            client.queues.create("inbox")
            with pytest.raises(SpanmqError, match="these queues would have one name: 'INBOX', 'inbox'"):
                schema.upgrade(connection)
            assert client.send("INBOX", 1) == 1
            client.queues.drop("inbox")
            schema.upgrade(connection)
            assert [each.body for each in client.peek("inbox")] == [1]
