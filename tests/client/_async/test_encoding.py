"""Databases and connections whose encoding is another than UTF-8."""

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from spanmq.client import AsyncClient
from spanmq.errors import InvalidBodyError
from spanmq.testing import with_database


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def foreign(request: pytest.FixtureRequest, spanmq_server: str) -> Iterator[str]:
    """The DSN of an empty database in another encoding."""
    name = f"spanmq_test_{uuid.uuid4().hex[:16]}"
    named = sql.Identifier(name)
    make = sql.SQL("create database {} template template0 encoding {} lc_collate 'C' lc_ctype 'C'")
    with psycopg.connect(spanmq_server, autocommit=True) as connection:
        connection.execute(make.format(named, request.param))
        yield with_database(spanmq_server, name)
        connection.execute(sql.SQL("drop database {} with (force)").format(named))


async def test_database_of_another_encoding_is_served(foreign: str) -> None:
    async with AsyncClient(foreign) as client:
        await client.install()
        await client.install()
        await client.queues.create("orders")
        await client.send("orders", "é", headers={"é": "ü"}, group="ö")
        await client.send_batch("orders", ["é"] * 2_500)
        first, *others = await client.receive("orders", 2_501)
        assert (first.body, first.headers, first.group) == ("é", {"é": "ü", "x-pgmq-group": "ö"}, "ö")
        assert [message.body for message in others] == ["é"] * 2_500
        assert [queue.name for queue in await client.queues.list()] == ["orders"]


@pytest.mark.parametrize(
    ("encoding", "lacking"), [("LATIN1", "☃"), ("EUC_JP", "\U0001f701"), ("SQL_ASCII", "")]
)
async def test_connection_of_another_encoding_gets_what_it_can_say(
    database: str, encoding: str, lacking: str
) -> None:
    async with await psycopg.AsyncConnection.connect(database, client_encoding=encoding) as connection:
        client = AsyncClient(connection=connection)
        await client.queues.create("orders")
        await client.send("orders", {"é": "ü"}, group="ö")
        [message] = await client.receive("orders")
        assert (message.body, message.group) == ({"é": "ü"}, "ö")
        assert [queue.name for queue in await client.queues.list()] == ["orders"]
        if lacking:
            with pytest.raises(InvalidBodyError, match="lacks the character"):
                await client.send("orders", lacking)
        assert (await client.queues.metrics("orders")).total_messages == 1


async def test_variable_of_libpq_changes_nothing(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    async with AsyncClient(database) as client:
        await client.queues.create("orders")
        await client.send("orders", "☃")
        bodies: list[Any] = [message.body for message in await client.receive("orders", wait=1)]
    assert bodies == ["☃"]
