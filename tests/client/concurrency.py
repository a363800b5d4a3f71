"""Calls that run beside the test, under matching names in the two worlds, as in `spanmq.concurrency`."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from tests.cli.program import wait_until
from tests.patience import WAIT_SECONDS

SOMEBODY_WAITS = (
    "select count(*) > 0 from pg_stat_activity where datname = current_database()"
    " and pid <> pg_backend_pid() and wait_event_type = 'Lock'"
)


class AsyncTasks:
    """Tasks of the test's event loop."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.wait_for(asyncio.gather(*self._tasks, return_exceptions=True), WAIT_SECONDS)

    def start(
        self, call: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any
    ) -> Callable[[], Awaitable[Any]]:
        """Start a call; return what waits for its result."""

        async def run() -> Any:
            return await call(*arguments, **options)

        task = asyncio.create_task(run())
        self._tasks.append(task)

        async def result() -> Any:
            return await asyncio.wait_for(asyncio.shield(task), WAIT_SECONDS)

        return result


class Tasks:
    """Threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(64)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()

    def start(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[], Any]:
        """Start a call; return what waits for its result."""
        future = self._threads.submit(call, *arguments, **options)
        return lambda: future.result(WAIT_SECONDS)


async def until_async(observer: psycopg.Connection[Any], query: str) -> None:
    """Return as soon as a query returns true, and let the event loop go on meanwhile."""
    await asyncio.to_thread(until, observer, query)


def until(observer: psycopg.Connection[Any], query: str) -> None:
    """Return as soon as a query returns true."""

    def is_true() -> bool:
        observer.execute("select pg_stat_clear_snapshot()")
        row = observer.execute(query.encode()).fetchone()
        return row is not None and bool(row[0])

    wait_until(is_true)


@contextmanager
def away(server: str, database: str, pid: int) -> Iterator[None]:
    """Let nobody connect to a database within the block, at whose begin a session ends."""
    name = sql.Identifier(str(conninfo_to_dict(database)["dbname"]))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("alter database {} with allow_connections false").format(name))
        connection.execute("select pg_terminate_backend(%s, 20000)", [pid])
        yield
        connection.execute(sql.SQL("alter database {} with allow_connections true").format(name))
