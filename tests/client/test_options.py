"""What a client is given to work on, and what it says to who gave it the wrong thing."""

import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from spanmq import AsyncClient, Client, ShardedQueue, Worker
from spanmq.errors import InvalidArgumentError


def test_connection_that_goes_without_its_name_is_refused_with_the_name(database: str) -> None:
    with psycopg.connect(database) as connection:
        for kind in (Client, AsyncClient):
            with pytest.raises(
                InvalidArgumentError, match=r"a string.*psycopg\.Connection(.|\n)*connection=…"
            ):
                kind(connection)  # type: ignore[arg-type]
        assert Client(connection=connection).queues.list() == []


def test_pool_that_goes_without_its_name_is_refused_with_the_name(database: str) -> None:
    with ConnectionPool(database, min_size=1, open=True) as pool:
        with pytest.raises(InvalidArgumentError, match=r"a string.*ConnectionPool(.|\n)*pool=…"):
            Client(pool)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match=r"(.|\n)*pool=…"):
            Client(connection=pool)
        assert Client(pool=pool).queues.list() == []


@pytest.mark.parametrize("dsn", [b"postgresql://", 5, {"host": "x"}], ids=repr)
def test_dsn_that_is_no_text_is_refused(dsn: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"a DSN must be a string, got a builtins.{type(dsn).__name__}"
    ):
        Client(dsn)
    with pytest.raises(InvalidArgumentError, match="a DSN must be a string"):
        Worker("orders", print, dsn=dsn)


def test_dsn_that_goes_as_something_else_is_refused(database: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"builtins\.str(.|\n)*first argument"):
        Client(connection=database)
    with pytest.raises(InvalidArgumentError, match=r"builtins\.str(.|\n)*first argument"):
        Client(pool=database)  # type: ignore[arg-type]
    with psycopg.connect(database) as connection:
        for kind in (Client, AsyncClient):
            with pytest.raises(InvalidArgumentError, match="either a dsn, a pool or a connection"):
                kind("", connection=connection)


async def test_connection_and_pool_of_the_other_world_are_refused(database: str) -> None:
    with (
        psycopg.connect(database) as connection,
        pytest.raises(InvalidArgumentError, match="not asynchronous"),
    ):
        AsyncClient(connection=connection)
    async with await psycopg.AsyncConnection.connect(database) as asynchronous:
        with pytest.raises(InvalidArgumentError, match="is asynchronous"):
            Client(connection=asynchronous)
    with pytest.raises(InvalidArgumentError, match=r"builtins\.int"):
        Client(connection=5)
    engine = create_engine("sqlite://")
    with (
        closing(sqlite3.connect(":memory:")) as files,
        Session(engine) as session,
        engine.connect() as of_engine,
    ):
        for each in (files, session, of_engine):
            with pytest.raises(InvalidArgumentError, match="connection to sqlite, not to PostgreSQL"):
                Client(connection=each)
    with pytest.raises(InvalidArgumentError, match="not asynchronous: pass it to a Client"):
        AsyncClient(pool=ConnectionPool(database, open=False))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="is asynchronous: pass it to an AsyncClient"):
        Client(pool=AsyncConnectionPool(database, open=False))  # type: ignore[arg-type]


def test_worker_and_sharded_queue_that_get_the_other_thing_say_so(database: str) -> None:
    with Client(database, maintain_interval=None) as client:
        with pytest.raises(
            InvalidArgumentError, match=r"a DSN must be a string, got a spanmq\.client\._sync\.client\.Client"
        ):
            Worker("orders", print, dsn=client)  # type: ignore[arg-type]
        wrong: list[Any] = [database, {"here": database}, {"here": AsyncClient(database)}, 5]
        for servers in wrong:
            with pytest.raises(InvalidArgumentError, match="a mapping from servers"):
                ShardedQueue("orders", servers)
        assert ShardedQueue("orders", client).servers == {"": client}


def test_what_is_no_message_is_not_settled(database: str) -> None:
    with Client(database, maintain_interval=None) as client:
        client.queues.create("orders")
        client.send("orders", 1)
        (message,) = client.receive("orders")
        wrong: list[Any] = [1, [message, 1], "orders", None, {"message_id": 1}]
        for settle in (client.ack, client.nack, client.reject, client.release):
            for given in wrong:
                with pytest.raises(InvalidArgumentError, match=r"messages from `receive`(.|\n)*Leased"):
                    settle(given)
        assert client.inspect.state("orders", 1) == "processing"


@pytest.mark.parametrize(
    "option",
    [
        {"pool_size": "3"},
        {"pool_size": 0},
        {"timeouts": 5},
        {"timeout": -1},
        {"timeout": "x"},
        {"maintain_interval": -1},
        {"maintain_interval": "x"},
        {"poll_interval": 0},
        {"poll_interval": float("nan")},
        {"encoder": 5},
        {"decoder": "orjson"},
    ],
    ids=str,
)
def test_option_that_means_nothing_is_refused_by_its_name(option: dict[str, Any]) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(InvalidArgumentError, match=next(iter(option))):
            kind("host=/nowhere", **option)
