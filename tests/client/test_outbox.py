"""The transactional outbox through other software: what is sent stands and falls with its transaction."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

import asyncpg
import django
import psycopg
import pytest
from django.conf import settings
from django.db import transaction as django_transaction
from django.db.utils import ConnectionHandler
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from spanmq import errors
from spanmq.client import AsyncClient, Client

# Opens a transaction and yields what a client is given; commits at the end of the block unless it raises.
Opener = Callable[[str], AbstractContextManager[Any]]
AsyncOpener = Callable[[str], AbstractAsyncContextManager[Any]]


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.queues.create("orders")
        yield client


@contextmanager
def sqlalchemy_connection(dsn: str) -> Iterator[Any]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_session(dsn: str) -> Iterator[Any]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_scoped_session(dsn: str) -> Iterator[Any]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    registry = scoped_session(sessionmaker(engine))
    try:
        yield registry
        registry.commit()
    finally:
        registry.remove()
        engine.dispose()


@contextmanager
def django_connection(dsn: str) -> Iterator[Any]:
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    parts = conninfo_to_dict(dsn)
    handler = ConnectionHandler(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts["dbname"],
                "USER": parts.get("user", ""),
                "PASSWORD": parts.get("password", ""),
                "HOST": parts.get("host", ""),
                "PORT": parts.get("port", ""),
            }
        }
    )
    connection = handler["default"]
    try:
        connection.set_autocommit(False)
        yield connection
        connection.commit()
    finally:
        connection.close()


@contextmanager
def subclassed_session(dsn: str) -> Iterator[Any]:
    class BusinessSession(Session):
        pass

    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    try:
        with BusinessSession(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


async def connect_asyncpg(dsn: str) -> Any:
    parts = conninfo_to_dict(dsn)
    return await asyncpg.connect(
        host=parts.get("host"),
        port=parts.get("port"),
        user=parts.get("user"),
        password=parts.get("password"),
        database=parts["dbname"],
    )


@asynccontextmanager
async def asyncpg_connection(dsn: str) -> AsyncIterator[Any]:
    connection = await connect_asyncpg(dsn)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pooled_connection(dsn: str) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(min_size=1, max_size=1, connect=lambda *_, **__: connect_asyncpg(dsn)) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        # A codec of the user's own must not matter.
        await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=repr, decoder=repr)
        yield connection


@asynccontextmanager
async def sqlalchemy_asyncpg_session(dsn: str) -> AsyncIterator[Any]:
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda *_, **__: connect_asyncpg(dsn))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


@asynccontextmanager
async def sqlalchemy_psycopg_connection(dsn: str) -> AsyncIterator[Any]:
    engine = create_async_engine(
        "postgresql+psycopg://", async_creator=lambda *_, **__: psycopg.AsyncConnection.connect(dsn)
    )
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


sessions = pytest.mark.parametrize(
    "opener",
    [
        sqlalchemy_connection,
        sqlalchemy_session,
        sqlalchemy_scoped_session,
        subclassed_session,
        django_connection,
    ],
)
async_sessions = pytest.mark.parametrize(
    "opener",
    [
        asyncpg_connection,
        asyncpg_pooled_connection,
        sqlalchemy_asyncpg_session,
        sqlalchemy_psycopg_connection,
    ],
)


def asynchronously(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario()

    asyncio.run(run())


# Whatever the client can do, it can do there.


@sessions
def test_every_kind_of_call_works_on_a_session(database: str, opener: Opener, client: Client) -> None:
    with opener(database) as session:
        outbox = Client(connection=session)
        outbox.queues.create("events", unlogged=True)
        assert {queue.name for queue in outbox.queues.list()} == {"orders", "events"}
        body = {"text": 'it\'s 100% : :name \\ "é" {} $1', "list": [1, 2.5, None]}
        assert outbox.send("orders", body, headers={"h": ":x"}, group="g", delay=0) == 1
        assert outbox.send_batch("orders", [b"\0\xff", "text"], headers=[None, {"a": "%s"}]) == [2, 3]
        first, second, third = outbox.receive("orders", 5, slots=1)
        assert (first.body, first.headers, first.group) == (body, {"h": ":x", "x-pgmq-group": "g"}, "g")
        assert (second.body, third.body, third.headers) == (b"\0\xff", "text", {"a": "%s"})
        assert first.leased_until > first.enqueued_at
        assert first.lease_id is not None
        assert {settled.outcome for settled in outbox.ack([first, second])} == {"acked"}
        assert outbox.delete("orders", [3, 99]) == [3]
        assert outbox.delete("orders", [3]) == []
        assert outbox.queues.metrics("orders").length == 0
        assert outbox.receive("orders") == []
        assert outbox.receive("orders", wait=0.02) == []
        assert outbox.admin.flavour() == "spanmq"
        assert outbox.connection is session


@async_sessions
def test_every_kind_of_call_works_on_an_asynchronous_session(
    database: str, opener: AsyncOpener, client: Client
) -> None:
    async def scenario() -> None:
        async with opener(database) as session:
            outbox = AsyncClient(connection=session)
            await outbox.queues.create("events", unlogged=True)
            assert {queue.name for queue in await outbox.queues.list()} == {"orders", "events"}
            body = {"text": 'it\'s 100% : :name \\ "é" {} $1', "list": [1, 2.5, None]}
            assert await outbox.send("orders", body, headers={"h": ":x"}, group="g", delay=0) == 1
            assert await outbox.send_batch("orders", [b"\0\xff", "text"], headers=[None, {"a": "%s"}]) == [
                2,
                3,
            ]
            first, second, third = await outbox.receive("orders", 5, slots=1)
            assert (first.body, first.headers, first.group) == (body, {"h": ":x", "x-pgmq-group": "g"}, "g")
            assert (second.body, third.body, third.headers) == (b"\0\xff", "text", {"a": "%s"})
            assert first.leased_until > first.enqueued_at
            assert {settled.outcome for settled in await outbox.ack([first, second])} == {"acked"}
            assert await outbox.delete("orders", [3, 99]) == [3]
            assert (await outbox.queues.metrics("orders")).length == 0
            assert await outbox.receive("orders", wait=0.02) == []
            assert outbox.connection is session

    asynchronously(scenario)


# It stands and falls with the transaction.


@sessions
def test_commit_of_a_session_sends(database: str, opener: Opener, client: Client) -> None:
    with opener(database) as session:
        Client(connection=session).send("orders", 1)
        Client(connection=session).send_batch("orders", range(1_500))
        assert client.queues.metrics("orders").length == 0
    assert client.queues.metrics("orders").length == 1_501


@sessions
def test_rollback_of_a_session_sends_nothing(database: str, opener: Opener, client: Client) -> None:
    def fail() -> None:
        with opener(database) as session:
            Client(connection=session).send("orders", 1)
            Client(connection=session).send_batch("orders", range(1_500))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert client.queues.metrics("orders").length == 0


@async_sessions
def test_asynchronous_session_sends_when_it_commits(
    database: str, opener: AsyncOpener, client: Client
) -> None:
    async def send(*, fail: bool) -> None:
        async with opener(database) as session:
            outbox = AsyncClient(connection=session)
            await outbox.send("orders", 1)
            await outbox.send_batch("orders", range(1_500))
            if fail:
                raise ZeroDivisionError

    async def scenario() -> None:
        with pytest.raises(ZeroDivisionError):
            await send(fail=True)
        assert client.queues.metrics("orders").length == 0
        await send(fail=False)
        assert client.queues.metrics("orders").length == 1_501

    asynchronously(scenario)


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


# Errors are typed there too.


@sessions
def test_failed_transaction_of_a_session_says_so_at_every_call(
    database: str, opener: Opener, client: Client
) -> None:
    def swallow() -> None:
        with opener(database) as session:
            outbox = Client(connection=session)
            with pytest.raises(errors.QueueNotFoundError):
                outbox.send("nothing", 1)
            with pytest.raises(errors.InvalidTransactionError):
                outbox.send("orders", 1)
            with pytest.raises(errors.InvalidTransactionError):  # which looks first for what is installed
                outbox.receive("orders")
            with pytest.raises(errors.InvalidTransactionError):
                outbox.admin.flavour()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        swallow()


@sessions
def test_errors_on_a_session_are_typed(database: str, opener: Opener, client: Client) -> None:
    with pytest.raises(errors.QueueNotFoundError) as caught, opener(database) as session:
        Client(connection=session).send("nothing", 1)
    assert (caught.value.queue, caught.value.sqlstate) == ("nothing", "42P01")
    with pytest.raises(errors.NotPossibleError, match="begins no transaction"), opener(database) as session:
        Client(connection=session).transaction().__enter__()
    with pytest.raises(errors.NotPossibleError, match="install"), opener(database) as session:
        Client(connection=session).install()


@async_sessions
def test_errors_on_an_asynchronous_session_are_typed(
    database: str, opener: AsyncOpener, client: Client
) -> None:
    async def fail() -> None:
        async with opener(database) as session:
            await AsyncClient(connection=session).send("nothing", 1)

    async def scenario() -> None:
        with pytest.raises(errors.QueueNotFoundError) as caught:
            await fail()
        assert (caught.value.queue, caught.value.sqlstate) == ("nothing", "42P01")

    asynchronously(scenario)


@sessions
def test_session_on_upstream_names_what_is_missing(upstream_database: str, opener: Opener) -> None:
    with opener(upstream_database) as session:
        outbox = Client(connection=session)
        outbox.queues.create("orders")
        with pytest.raises(errors.NotSupportedByUpstreamError):
            outbox.receive("orders")
        outbox.send("orders", 1)
        assert [message.body for message in outbox.read("orders")] == [1]


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
        with pytest.raises(errors.ConnectionLostError, match=r"send\(\) on queue 'orders': .* unknown"):
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


def test_lost_connection_of_asyncpg_is_of_unknown_outcome(database: str, client: Client) -> None:
    async def scenario() -> None:
        connection = await connect_asyncpg(database)
        pid = connection.get_server_pid()
        with psycopg.connect(database, autocommit=True) as observer:
            observer.execute("select pg_terminate_backend(%s, 20000)", [pid])
        with pytest.raises(errors.ConnectionLostError):
            await AsyncClient(connection=connection).send("orders", 1)
        connection.terminate()

    asynchronously(scenario)


def test_session_of_the_other_world_is_refused(database: str) -> None:
    async def scenario() -> None:
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
        with pytest.raises(errors.InvalidArgumentError, match="no connection"):
            AsyncClient(connection="postgresql://")
        async with asyncpg.create_pool(
            min_size=0, connect=lambda *_, **__: connect_asyncpg(database)
        ) as pool:
            with pytest.raises(errors.InvalidArgumentError, match="no connection"):
                AsyncClient(connection=pool)

    asynchronously(scenario)


def test_what_makes_sessions_is_no_session(database: str) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database))
    for maker in (engine, sessionmaker(engine)):
        with pytest.raises(errors.InvalidArgumentError, match="no connection that a Client knows"):
            Client(connection=maker)


def test_closed_connection_of_asyncpg_is_a_typed_error(database: str, client: Client) -> None:
    async def scenario() -> None:
        connection = await connect_asyncpg(database)
        await connection.close()
        closed = AsyncClient(connection=connection)
        with pytest.raises(errors.ConnectionFailedError, match="closed"):
            await closed.send("orders", 1)
        # Ours alone: it looks first what the database holds.
        with pytest.raises(errors.ConnectionFailedError, match="closed"):
            await closed.receive("orders")

    asyncio.run(scenario())
