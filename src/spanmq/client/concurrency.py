"""The primitives of the two worlds under matching names, so that one twin can be made of the other.

- AsyncEvent, Event: set, clear, is_set, wait(timeout) -> bool
- AsyncLock, Lock: (async) with
- AsyncBackgroundTask, BackgroundTask: something that runs beside the caller until it returns
- AsyncEndingPool, EndingPool: a pool of connections
- in_thread, in_place: run what blocks, beside the event loop or here
"""

import asyncio
import threading
from asyncio import Lock as AsyncLock
from collections.abc import Awaitable, Callable
from contextlib import suppress
from threading import Event, Lock
from typing import Any, Final, TypeVar

from psycopg_pool import AsyncConnectionPool, ConnectionPool

__all__ = [
    "AsyncBackgroundTask",
    "AsyncEndingPool",
    "AsyncEvent",
    "AsyncLock",
    "BackgroundTask",
    "EndingPool",
    "Event",
    "Lock",
    "forget",
    "in_place",
    "in_thread",
]

# A task that is still connecting to an unreachable server is abandoned after this time.
JOIN_SECONDS: Final = 5.0

Result = TypeVar("Result")


class AsyncEvent:
    """An `asyncio.Event` whose `wait` takes a time-out, as that of `threading.Event` does."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake all waiting tasks."""
        self._event.set()

    def clear(self) -> None:
        """Reset the event, so that `wait` waits again."""
        self._event.clear()

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._event.is_set()

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109, the twin of threading's
        """Wait until set, for up to `timeout` seconds; return whether it is set."""
        # Not wait_for: up to Python 3.11 it makes a task of it, and so takes a turn of the loop more.
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return self._event.is_set()
        return True


class AsyncBackgroundTask:
    """A task."""

    __slots__ = ("_task",)

    def __init__(self, function: Callable[[], Awaitable[None]], name: str) -> None:
        async def run() -> None:
            await function()

        self._task = asyncio.create_task(run(), name=name)

    async def join(self) -> None:
        """Wait for its end, up to a time limit; then cancel it."""
        await asyncio.wait([self._task], timeout=JOIN_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=JOIN_SECONDS)


class BackgroundTask:
    """A daemon thread: a program that forgets to close its client can still end."""

    __slots__ = ("_thread",)

    def __init__(self, function: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=function, name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for its end, up to a time limit."""
        self._thread.join(JOIN_SECONDS)


EndingPool = ConnectionPool


class AsyncEndingPool(AsyncConnectionPool[Any]):
    """A pool that is closed when its event loop ends its tasks, as `asyncio.run` does at its end: it waits for each.

    A task of psycopg's pool that is cancelled while it connects or begins goes on to wait for work, for ever.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_ending = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    async def open(self, wait: bool = False, timeout: float = 30.0) -> None:  # noqa: ASYNC109, psycopg's
        """Open the pool, as psycopg's does."""
        await super().open(wait, timeout)
        if self._ending is None:
            self._ending = asyncio.create_task(self._end_with_loop(), name="spanmq pool")

    async def close(self, timeout: float = 5.0) -> None:  # noqa: ASYNC109, psycopg's
        """Close the pool, as psycopg's does."""
        self._is_ending.set()
        await super().close(timeout)
        if self._ending is not None:
            await asyncio.wait([self._ending])

    async def _end_with_loop(self) -> None:
        try:
            await self._is_ending.wait()
        except asyncio.CancelledError:
            with suppress(asyncio.CancelledError):  # of those tasks that have ended
                await super().close()
            raise


def forget(future: asyncio.Future[Any]) -> None:
    """Wait for a future no more: asyncio logs no error that it ends with."""
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception())


async def in_thread(function: Callable[[], Result]) -> Result:
    """Run a function that blocks, beside the event loop."""
    return await asyncio.to_thread(function)


def in_place(function: Callable[[], Result]) -> Result:
    """Run a function."""
    return function()
