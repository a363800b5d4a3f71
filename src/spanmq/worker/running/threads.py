"""Threads for plain functions, beside the event loop of the worker's tasks."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Returned(Generic[T]):
    """Takes what threads return into the event loop, where `take` is called with each."""

    def __init__(self, take: Callable[[T], None]) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[T] = deque()
        self._is_woken = False

    def put(self, item: T) -> None:
        """Pass one on, from a thread; nothing happens if the loop is closed."""
        self._waiting.append(item)
        # One call for all that come before the event loop runs again.
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        # First, so that later ones wake the loop again.
        self._is_woken = False
        while self._waiting:
            self._take(self._waiting.popleft())


class Threads:
    """Runs functions in threads for one event loop, as many as are called concurrently.

    They are daemon threads: a function that never returns does not keep the process alive.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._ended: Returned[tuple[asyncio.Future[Any], Any, BaseException | None]] = Returned(self._end)
        self._running = 0
        self._threads = 0

    async def call(self, function: Callable[[], Any]) -> Any:
        """Run a function in a thread, in a copy of the caller's context.

        When cancelled, it waits for the function, which cannot be stopped; when cancelled again, it does not.
        """
        future = self.begin(function)
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise
        return future.result()

    def begin(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a function in a thread, in a copy of the caller's context; return a future, not to be cancelled."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._running += 1
        if self._running > self._threads:
            self._threads += 1
            threading.Thread(target=self._run, name="spanmq task", daemon=True).start()
        self._calls.put((future, partial(copy_context().run, function)))
        return future

    def close(self) -> None:
        """End the idle threads."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            result, error = None, None
            try:
                result = function()
            except BaseException as raised:  # noqa: BLE001, SystemExit too is only this function's
                error = raised
            self._ended.put((future, result, error))

    def _end(self, ended: tuple[asyncio.Future[Any], Any, BaseException | None]) -> None:
        future, result, error = ended
        self._running -= 1
        if error is None:
            future.set_result(result)
        else:
            # A future cannot carry this exception.
            future.set_exception(RuntimeError("StopIteration") if isinstance(error, StopIteration) else error)
            future.exception()  # not logged by asyncio if the caller was cancelled
