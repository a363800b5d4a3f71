"""What is particular to a kind of session: how it begins and ends, and what it says when its connection is lost."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from django.db import transaction as django_transaction
from sqlalchemy import text
from sqlalchemy.orm import sessionmaker
from tests.client.sessions import (
    django_connection,
    django_in_autocommit,
    engine_of,
    new_django_connection,
    sqlalchemy_session,
)
from tests.client.sessions_async import asyncpg_connection, connect_asyncpg, sqlalchemy_asyncpg_session

from spanmq import errors
from spanmq.client import AsyncClient, Client
from spanmq.client.call import ACTOR


def test_message_and_business_row_commit_together(database: str, client: Client) -> None:
    with psycopg.connect(database) as owner:
        owner.execute("create table business (number int primary key)")
    with sqlalchemy_session(database) as session:
        session.execute(text("insert into business values (1)"))
        Client(connection=session).send("orders", 1)

    def fail() -> None:
        with sqlalchemy_session(database) as session:
            session.execute(text("insert into business values (2)"))
            Client(connection=session).send("orders", 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with psycopg.connect(database) as owner:
        assert owner.execute("select number from business").fetchall() == [(1,)]
    assert [message.body for message in client.peek("orders")] == [1]


def test_atomic_block_of_django_decides(
    database: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with django_connection(database) as connection:
        connection.set_autocommit(True)
        monkeypatch.setattr(django_transaction, "get_connection", lambda using=None: connection)

        def fail() -> None:
            with django_transaction.atomic():
                Client(connection=connection).send("orders", 1)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with django_transaction.atomic():
            Client(connection=connection).send("orders", 2)
            assert client.queues.metrics("orders").length == 0
    assert [message.body for message in client.peek("orders")] == [2]


@contextmanager
def acting(actor: str) -> Iterator[None]:
    before = ACTOR.set(actor)
    yield
    ACTOR.reset(before)


@pytest.mark.parametrize("opened", [sqlalchemy_session, django_connection])
def test_user_of_a_change_is_recorded(database: str, client: Client, opened: Any) -> None:
    with opened(database) as session, acting("Django, user anna"):
        Client(connection=session).queues.pause("orders")
    [change] = client.inspect.changes("orders", limit=1)
    assert (change.action, change.actor) == ("pause", "Django, user anna")


@pytest.mark.parametrize("opened", [asyncpg_connection, sqlalchemy_asyncpg_session])
async def test_user_of_a_change_is_recorded_asynchronously(
    database: str, client: Client, opened: Any
) -> None:
    async with opened(database) as session:
        with acting("Django, user anna"):
            await AsyncClient(connection=session).queues.pause("orders")
    [change] = client.inspect.changes("orders", limit=1)
    assert (change.action, change.actor) == ("pause", "Django, user anna")


def break_network(connection: Any) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as cable:
        cable.shutdown(socket.SHUT_RDWR)


def test_lost_connection_of_sqlalchemy_is_of_unknown_outcome(database: str, client: Client) -> None:
    with sqlalchemy_session(database) as session:
        break_network(session.connection().connection.driver_connection)
        with pytest.raises(errors.ConnectionLostError, match=r"send\(\)"):
            Client(connection=session).send("orders", 1)
        with pytest.raises(errors.InvalidTransactionError, match="hint: Roll back"):
            Client(connection=session).send("orders", 1)
        session.rollback()
    assert client.queues.metrics("orders").length == 0


def test_session_that_the_server_has_ended_is_of_unknown_outcome(database: str, client: Client) -> None:
    with sqlalchemy_session(database) as session, psycopg.connect(database, autocommit=True) as observer:
        pid = session.execute(text("select pg_backend_pid()")).scalar()
        observer.execute("select pg_terminate_backend(%s, 20000)", [pid])
        with pytest.raises(errors.ConnectionLostError, match=r"send\(\) on queue 'orders' .* unknown"):
            Client(connection=session).send("orders", 1)
        session.rollback()


def test_lost_connection_of_django_is_of_unknown_outcome(database: str, client: Client) -> None:
    with django_connection(database) as connection:
        connection.ensure_connection()
        break_network(connection.connection)
        with pytest.raises(errors.ConnectionLostError, match=r"send\(\)"):
            Client(connection=connection).send("orders", 1)
        connection.close()
        connection.connect()
    assert client.queues.metrics("orders").length == 0


async def test_lost_connection_of_asyncpg_is_of_unknown_outcome(database: str, client: Client) -> None:
    connection = await connect_asyncpg(database)
    pid = connection.get_server_pid()
    with psycopg.connect(database, autocommit=True) as observer:
        observer.execute("select pg_terminate_backend(%s, 20000)", [pid])
    with pytest.raises(errors.ConnectionLostError):
        await AsyncClient(connection=connection).send("orders", 1)
    connection.terminate()


async def test_session_of_the_other_world_is_refused(database: str) -> None:
    async with asyncpg_connection(database) as session:
        with pytest.raises(errors.InvalidArgumentError, match="AsyncClient"):
            Client(connection=session)
    async with sqlalchemy_asyncpg_session(database) as session:
        with pytest.raises(errors.InvalidArgumentError, match="AsyncClient"):
            Client(connection=session)
    with (
        sqlalchemy_session(database) as session,
        pytest.raises(errors.InvalidArgumentError, match="a Client"),
    ):
        AsyncClient(connection=session)
    with pytest.raises(errors.InvalidArgumentError, match="is not a connection"):
        AsyncClient(connection="postgresql://")
    async with asyncpg.create_pool(min_size=0, connect=lambda *_, **__: connect_asyncpg(database)) as pool:
        with pytest.raises(errors.InvalidArgumentError, match="is not a connection"):
            AsyncClient(connection=pool)


def test_what_makes_sessions_is_no_session(database: str) -> None:
    with engine_of(database) as engine:
        for maker in (engine, sessionmaker(engine)):
            with pytest.raises(errors.InvalidArgumentError, match="not a connection that a Client supports"):
                Client(connection=maker)


async def test_closed_connection_of_asyncpg_is_a_typed_error(database: str, client: Client) -> None:
    connection = await connect_asyncpg(database)
    await connection.close()
    closed = AsyncClient(connection=connection)
    with pytest.raises(errors.ConnectionFailedError, match="closed"):
        await closed.send("orders", 1)
    # Ours alone: it looks first what the database holds.
    with pytest.raises(errors.ConnectionFailedError, match="closed"):
        await closed.receive("orders")


def test_transaction_that_was_begun_by_hand_is_not_committed(database: str, client: Client) -> None:
    with django_in_autocommit(database) as connection, connection.cursor() as cursor:
        cursor.execute("begin")
        Client(connection=connection).send_batch("orders", range(1_500))
        cursor.execute("rollback")
    assert client.queues.metrics("orders").length == 0


def test_raw_connection_of_sqlalchemy_is_one_of_its_driver(database: str, client: Client) -> None:
    with engine_of(database) as engine:
        connection = engine.raw_connection()
        Client(connection=connection).send_batch("orders", range(1_500))
        assert client.queues.metrics("orders").length == 0
        connection.commit()
        connection.close()
    assert client.queues.metrics("orders").length == 1_500


async def test_schema_of_a_queue_is_read_through_every_driver(database: str, client: Client) -> None:
    client.queues.set_schema("orders", {"type": "object"})
    found = client.queues.schema("orders")
    with sqlalchemy_session(database) as session:
        assert Client(connection=session).queues.schema("orders") == found
    async with asyncpg_connection(database) as opened:
        assert await AsyncClient(connection=opened).queues.schema("orders") == found


NOWHERE = "host=127.0.0.1 port=1 dbname=none"


def test_server_that_does_not_answer_is_not_a_lost_connection() -> None:
    with pytest.raises(errors.ConnectionFailedError, match="refused"), sqlalchemy_session(NOWHERE) as session:
        Client(connection=session).send("orders", 1)
    with pytest.raises(errors.ConnectionFailedError, match="refused"):
        Client(connection=new_django_connection(NOWHERE)).send("orders", 1)


async def test_server_that_does_not_answer_asyncpg_is_not_a_lost_connection() -> None:
    with pytest.raises(errors.ConnectionFailedError, match=r"refused|Connect call failed"):
        async with sqlalchemy_asyncpg_session(NOWHERE) as session:
            await AsyncClient(connection=session).send("orders", 1)


def test_pool_of_sqlalchemy_without_a_free_connection_is_a_typed_error(database: str) -> None:
    with (
        engine_of(database, pool_size=1, max_overflow=0, pool_timeout=0.01) as engine,
        engine.connect(),
        sessionmaker(engine)() as session,
        pytest.raises(errors.ConnectionFailedError, match="QueuePool limit"),
    ):
        Client(connection=session).send("orders", 1)
