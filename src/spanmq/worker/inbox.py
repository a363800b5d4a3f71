"""The one inbox of a worker: its parts put events into it, and one loop takes them. No part calls another one back."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any


@dataclass(slots=True)
class PartFailed:
    """A part of the worker has failed otherwise than by the database: a bug, for which the worker ends."""

    error: BaseException


class Inbox:
    """Events in the order in which they were put, for one loop; it also begins the tasks of the parts."""

    __slots__ = ("_clock", "_events", "_is_woken", "_loop", "_take", "_tasks", "_waiter")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._events: deque[Any] = deque()
        self._take: Callable[[list[Any]], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_woken = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def put(self, event: object) -> None:
        """Put an event, from the event loop's thread."""
        self._events.append(event)
        if self._waiter is not None:
            self._wake()

    def put_from_thread(self, event: object) -> None:
        """Put an event, from any thread; nothing happens if the loop is closed."""
        self._events.append(event)
        # One call for all that come before the event loop runs again.
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake_from_thread)

    async def serve(self, take: Callable[[list[Any]], None], turn: Callable[[], float]) -> None:
        """Have events taken, and call `turn` after them, and at the time that it returns, until cancelled."""
        self._take = take
        while True:
            self.flush()
            await self._wait(turn())

    def flush(self) -> None:
        """Have the events taken at once: for a slot without a job, for which one may follow from them."""
        events = self._events
        if events and self._take is not None:
            # Threads append meanwhile: each is taken once.
            self._take([events.popleft() for _ in range(len(events))])

    async def _wait(self, until: float) -> None:
        if self._events:
            return
        waiter = self._waiter = self._loop.create_future()
        timer = None
        if until != math.inf:
            # In whole milliseconds, as timers are: it would be early.
            milliseconds = math.ceil((until - self._clock()) * 1000)
            timer = self._loop.call_later(max(milliseconds, 0) / 1000, self._wake)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def begin(self, run: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Begin a task of a part; if it raises an error, that is put."""
        task = asyncio.create_task(run, name=f"spanmq {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.put(PartFailed(error))

    def _wake_from_thread(self) -> None:
        # First, so that later ones wake the loop again.
        self._is_woken = False
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
