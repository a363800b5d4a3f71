"""Reports to the database that the worker runs, what it holds, progress and times of tasks; they return commands."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from spanmq.client import AsyncClient, argument
from spanmq.client.argument import optional
from spanmq.client.call import SqlCall
from spanmq.client.rows import worker_commands
from spanmq.errors import SpanmqError
from spanmq.model import Message
from spanmq.model.queue import folded
from spanmq.worker.failure import ERROR_LENGTH_MAX
from spanmq.worker.inbox import Inbox
from spanmq.worker.incoming import BreakerCloseAsked, StopAsked
from spanmq.worker.job import Job, Slot, Slots
from spanmq.worker.observing.stacks import stack_of
from spanmq.worker.observing.usual import HandlingTimes, Times
from spanmq.worker.receiving.source import Source
from spanmq.worker.session import Session

# A worker is listed for 60 seconds after its last report.
REPORT_SECONDS: Final = 20.0
# A progress is reported at most once in this time.
PROGRESS_SECONDS: Final = 1.0
# The running handlers of a queue of which a progress is reported.
PROGRESS_MAX: Final = 100
# Those of which the stacks are reported.
STACKS_MAX: Final = 20
LAST_SECONDS: Final = 2.0


@dataclass(eq=False)
class Reporter:
    """Sends a report on all queues of a server periodically, and a last one; its errors do not affect the worker.

    `sources` are the queues of all servers, `slots` those of the worker, and `times` those of its handlers.
    """

    server: str
    session: Session
    worker: str
    concurrency: int
    kind_of: Callable[[Message], str | None] | None
    sources: Mapping[str, Source]
    slots: Slots
    times: HandlingTimes
    inbox: Inbox
    clock: Callable[[], float] = monotonic

    def __post_init__(self) -> None:
        """Begin with nothing recorded."""
        self._started_at = self.clock()
        self._asked = asyncio.Event()
        # The queues of which a command wants the stacks of running handlers.
        self._wanted: set[str] = set()

    def report_soon(self) -> None:
        """Report without waiting for the next turn, but not twice within a second."""
        self._asked.set()

    async def report_end(self) -> None:
        """Report that the worker has stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._report(is_last=True)

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            self._asked.clear()
            await self._report()
            await asyncio.sleep(PROGRESS_SECONDS)
            if any(source.breaker.number and not source.is_stopped for source in self.sources.values()):
                continue  # a report returns what a command has closed
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS - PROGRESS_SECONDS):
                    await self._asked.wait()

    async def _report(self, *, is_last: bool = False) -> None:
        # A shard that the worker has left has had its last report.
        queues = [
            queue
            for queue, source in self.sources.items()
            if source.server == self.server and (is_last or not source.is_stopped)
        ]
        times = self.times.take(queues)
        try:
            commands = await self.session.run(self._call(queues, times, is_last=is_last))
        except SpanmqError:
            self.times.put_back(times)
            return
        self._wanted.clear()
        self.times.reported(times)
        if is_last:
            return
        for queue in queues:
            if (folded(queue), "stacks") in commands:
                self._wanted.add(queue)
                self.report_soon()
            if (folded(queue), "close_breaker") in commands:
                self.inbox.put(BreakerCloseAsked(queue))
        if (None, "stop") in commands:
            self.inbox.put(StopAsked())

    def _call(
        self, queues: list[str], times: Mapping[str, Times], *, is_last: bool
    ) -> Callable[[AsyncClient], Awaitable[list[tuple[str | None, str | None]]]]:
        reports: dict[str, dict[str, Any]] = {}
        progress = self._progress()
        slow = self._handlers(lambda job: job.is_slow)
        for queue in queues:
            if queue in progress:
                reports.setdefault(folded(queue), {})["progress"] = progress[queue]
            if queue in slow:
                reports.setdefault(folded(queue), {})["slow"] = [entry for _, _, entry in slow[queue]]
            if queue in self._wanted:
                reports.setdefault(folded(queue), {})["stacks"] = self._stacks(queue)
            breaker = self.sources[queue].breaker
            if breaker.number:
                reports.setdefault(folded(queue), {})["breaker"] = {
                    "open_for": breaker.remaining(self.clock()),
                    "opening": breaker.number,
                    "error": (breaker.error or "")[:ERROR_LENGTH_MAX],
                }
            if held := self.sources[queue].share.held:
                reports.setdefault(folded(queue), {})["held"] = held
            if counts := times.get(queue):
                reports.setdefault(folded(queue), {})["times"] = [
                    {"kind": kind, "failed": failed, "bucket": bucket, "n": n}
                    for (kind, failed, bucket), n in counts.items()
                ]
        arguments = (
            argument.texts("queues", queues),
            argument.text("worker", self.worker),
            argument.integer("slots", self.concurrency),
            argument.json("reports", json.dumps(reports)),
            *optional(argument.seconds, "running_for", None if is_last else self.clock() - self._started_at),
        )
        call = SqlCall("report_worker", arguments, worker_commands, None, native=True, idle=True)
        return lambda client: client.admin.run(call)

    def _progress(self) -> dict[str, list[dict[str, Any]]]:
        """Return what running handlers have reported, by queue; a batch of messages counts as its first one."""
        entries_of: dict[str, list[dict[str, Any]]] = {}
        for _, job, _ in self.slots.running():
            job.is_told = False
            if (progress := job.progress) is None:
                continue
            message = job.messages[0]
            entries = entries_of.setdefault(job.lease.queue, [])
            if len(entries) < PROGRESS_MAX:
                kind = None if self.kind_of is None else self.kind_of(message)
                share, note = progress
                entries.append({"msg_id": message.message_id, "kind": kind, "share": share, "note": note})
        return entries_of

    def _handlers(self, chosen: Callable[[Job], bool]) -> dict[str, list[tuple[Slot, Job, dict[str, Any]]]]:
        """Return running handlers, by queue, those first that have run longest."""
        entries_of: dict[str, list[tuple[Slot, Job, dict[str, Any]]]] = {}
        now = self.clock()
        for slot, job, started_at in sorted(self.slots.running(), key=lambda running: running[2]):
            entries = entries_of.setdefault(job.lease.queue, []) if chosen(job) else []
            if chosen(job) and len(entries) < PROGRESS_MAX:
                message = job.messages[0]
                kind = None if self.kind_of is None else self.kind_of(message)
                shown = {"msg_id": message.message_id, "kind": kind, "seconds": max(now - started_at, 0.0)}
                entries.append((slot, job, shown))
        return entries_of

    def _stacks(self, queue: str) -> list[dict[str, Any]]:
        handlers = self._handlers(lambda job: job.lease.queue == queue).get(queue, ())
        return [{**shown, "stack": stack_of(slot, job)} for slot, job, shown in handlers[:STACKS_MAX]]
