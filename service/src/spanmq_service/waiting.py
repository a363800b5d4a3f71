"""Long polls: any number of requests wait without a database connection each.

The waiting requests of a queue form a line. One task for each line is woken by announcements, which all
arrive over one LISTEN connection, or by the clock, because not all messages that become visible are
announced: it asks when the next one becomes visible, for all lines together. It receives for the first
request in line, and continues as long as there are messages. So the cost of polling is the same for one
waiting request and for a thousand.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from time import monotonic
from typing import Any, Final, TypeVar

from spanmq import tracing
from spanmq.client import AsyncClient
from spanmq.client.calls import HEARD_SECONDS, LONGEST_SECONDS, Due, Polling, forget
from spanmq.errors import DecryptionError, InvalidBodyError, SpanmqError
from spanmq.model import Message, folded

logger = logging.getLogger("spanmq.service")

# For all lines together: the more queues are waited for, the less often each is polled.
LOOKS_PER_SECOND: Final = 400
JOIN_SECONDS: Final = 5.0
# Errors of a receive that got only messages that cannot be read, and nacked them: the next one gets others.
UNREADABLE: Final = (DecryptionError, InvalidBodyError)

Result = TypeVar("Result")
Take = Callable[[], Awaitable[list["Message"]]]
Permit = Callable[[], Awaitable[bool]]
# Limits the time of one statement: a waiting request polls for messages only after the answer.
QUEUES_MAX: Final = 200

Ask = Callable[[Sequence[str]], Awaitable[list[float | None]]]


class _Waiter:
    __slots__ = ("messages", "permit", "take")

    def __init__(self, take: Take, permit: Permit) -> None:
        self.take = take
        self.permit = permit
        self.messages: asyncio.Future[list[Message]] = asyncio.get_running_loop().create_future()


class Waiting:
    """All lines; each queue is polled after `first` seconds, then after twice as long, up to `longest`."""

    def __init__(
        self, client: AsyncClient, *, first: float | None = None, longest: float = LONGEST_SECONDS
    ) -> None:
        self._client = client
        self._first = first
        self._longest = longest
        self._ahead = Ahead(client.inspect.look_ahead)
        self._lines: dict[str, deque[_Waiter]] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    async def wait(
        self, queue: str, take: Take, seconds: float, gone: Awaitable[Any], *, permit: Permit
    ) -> list[Message]:
        """Return the result of `take` when it is first in line, or [] after `seconds` or when `gone` is done.

        Before each `take`, `permit` returns whether the caller may still receive; if not, the result is [].
        Messages that were taken for a client that has disconnected are released at once.
        """
        leaving: asyncio.Future[Any] = asyncio.ensure_future(gone)
        forget(leaving)
        if self._is_stopped:
            leaving.cancel()
            return []
        waiter = _Waiter(take, permit)
        self._stand(queue, waiter)
        try:
            await asyncio.wait(
                {waiter.messages, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if leaving.done() and waiter.messages.done() and not waiter.messages.exception():
                self._give_back(waiter.messages.result())
                return []
            return waiter.messages.result() if waiter.messages.done() else []
        except asyncio.CancelledError:
            if waiter.messages.done() and not waiter.messages.exception():
                self._give_back(waiter.messages.result())
            raise
        finally:
            leaving.cancel()
            self._leave(queue, waiter)

    @contextmanager
    def claimed(self, messages: list[Message]) -> Iterator[None]:
        """Release messages if the block raises: the caller did not get them, so no attempt is counted."""
        try:
            yield
        except BaseException:
            self._give_back(messages)
            raise

    def stop(self) -> None:
        """Answer all waiting requests with [], and accept no more."""
        self._is_stopped = True
        for line in self._lines.values():
            for waiter in line:
                self._dismiss(waiter)

    async def join(self) -> None:
        """Wait for running tasks, so that messages taken for disconnected clients are released."""
        while self._jobs:  # one may start another
            _, left = await asyncio.wait(self._jobs, timeout=JOIN_SECONDS)
            if left:
                return

    def _stand(self, queue: str, waiter: _Waiter) -> None:
        key = folded(queue)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = deque()
            line.append(waiter)
            self._begin(self._serve(key, line))
        else:
            line.append(waiter)

    def _leave(self, queue: str, waiter: _Waiter) -> None:
        if not waiter.messages.done():
            waiter.messages.cancel()
        line = self._lines.get(folded(queue))
        if line is not None and waiter in line:
            line.remove(waiter)

    def _begin(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        # It serves many requests, so it must not run in the context of the one that began it.
        job = asyncio.create_task(run(), context=Context())
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def _serve(self, key: str, line: deque[_Waiter]) -> None:
        try:
            async with self._client.admin.announcements(key) as announced:
                polling = Polling(self._longest, first=self._first)
                while line and not self._is_stopped:
                    # In this order: an announcement during the poll ends the next wait, and a message that
                    # becomes visible after the question is either known or found by the poll.
                    announced.clear()
                    if polling.is_asking:
                        polling.due = await self._ahead.of(key)
                    if await self._look(line):
                        polling.restart()
                    if line and not self._is_stopped:
                        is_announced = await self._pause(key, announced.wait, polling)
                        polling.longest = max(self._longest, len(self._lines) / LOOKS_PER_SECOND)
                        polling.paused(is_announced)
        finally:
            # Nothing is awaited since the line was found empty, so no request can have joined it.
            if self._lines.get(key) is line:
                del self._lines[key]
            for waiter in line:
                self._dismiss(waiter)

    async def _pause(self, key: str, wait: Callable[[float], Awaitable[bool]], polling: Polling) -> bool:
        """Wait for an announcement, for a pause or until a message becomes visible; return whether one came."""
        until = monotonic() + polling.seconds
        while True:
            left = until - monotonic()
            is_announced = await wait(polling.due.within(min(left, HEARD_SECONDS)))
            if is_announced or polling.due.is_over or left <= HEARD_SECONDS:
                return is_announced
            # A message that was hidden meanwhile for four seconds or more is not announced.
            polling.due = await self._ahead.of(key)

    async def _look(self, line: deque[_Waiter]) -> bool:
        """Serve the line from its head as long as there are messages; return whether any was received."""
        has_received = False
        while line and not self._is_stopped:
            waiter = line[0]
            try:
                messages = await waiter.take() if await waiter.permit() else None
            except SpanmqError as error:
                # Unless messages cannot be read, the queue or the database is gone: for all requests in line.
                for member in [waiter] if isinstance(error, UNREADABLE) else list(line):
                    if not member.messages.done():
                        member.messages.set_exception(error)
                    if member in line:
                        line.remove(member)
                continue
            if messages == []:
                return has_received
            has_received = has_received or messages is not None
            if messages is None:
                self._dismiss(waiter)
            elif waiter.messages.done():
                self._give_back(messages)
            else:
                waiter.messages.set_result(messages)
            if line and line[0] is waiter:
                line.popleft()
        return has_received

    def _dismiss(self, waiter: _Waiter) -> None:
        if not waiter.messages.done():
            waiter.messages.set_result([])

    def _give_back(self, messages: list[Message]) -> None:
        if messages:
            self._begin(self._release(messages))

    async def _release(self, messages: list[Message]) -> None:
        try:
            await self._client.release(messages)
        except SpanmqError as error:
            # Their lease ends by itself.
            logger.warning("release_failed error=%s count=%s", type(error).__name__, len(messages))


def in_own_trace(call: Callable[[], Awaitable[Result]]) -> Callable[[], Awaitable[Result]]:
    """Return a call that belongs to this request's trace, whichever task runs it."""
    if not tracing.is_on():
        return call
    own = copy_context()

    async def run() -> Result:
        return await call()

    async def traced() -> Result:
        return await asyncio.get_running_loop().create_task(run(), context=own)

    return traced


class Ahead:
    """Runs one statement at a time; queues that are added meanwhile are asked for together in the next one."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._pending: dict[str, asyncio.Future[Due]] = {}
        self._job: asyncio.Task[None] | None = None

    async def of(self, queue: str) -> Due:
        """Return when the next message of a queue becomes visible; None if that cannot be determined."""
        if queue not in self._pending:
            self._pending[queue] = asyncio.get_running_loop().create_future()
        due = self._pending[queue]
        if self._job is None:
            # It asks on behalf of many requests, so it must not run in the context of the one that began it.
            self._job = asyncio.create_task(self._run(), context=Context())
        return await asyncio.shield(due)

    async def _run(self) -> None:
        try:
            while self._pending:
                pending = list(self._pending.items())
                self._pending = {}
                for first in range(0, len(pending), QUEUES_MAX):
                    await self._answer(dict(pending[first : first + QUEUES_MAX]))
        finally:
            # Nothing is awaited after the last check for waiting requests, so none can have been added since.
            self._job = None

    async def _answer(self, pending: dict[str, asyncio.Future[Due]]) -> None:
        answers: Sequence[float | None] = [None] * len(pending)
        try:
            answers = await self._ask(list(pending))
        except SpanmqError:
            pass  # the poll that follows reports the error
        finally:
            for due, seconds in zip(pending.values(), answers, strict=True):
                if not due.done():
                    due.set_result(Due(seconds))
