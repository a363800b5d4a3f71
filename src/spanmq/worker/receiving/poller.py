"""Polls for queues of a server with messages: one registration, one poll and one channel for all of them."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final

from spanmq.client import AsyncClient
from spanmq.client.call import Result, SqlCall
from spanmq.client.concurrency import AsyncEvent
from spanmq.client.outage import Outage
from spanmq.client.polling import Due, Polling
from spanmq.client.registration import REGISTER_SECONDS, Registration
from spanmq.errors import ConnectionFailedError, ConnectionLostError, MissingPrivilegeError, SpanmqError
from spanmq.worker.event import CallFailed, EventBus
from spanmq.worker.inbox import Inbox
from spanmq.worker.incoming import CancelAsked, CommandAsked, PolicySeen, QueueEmpty, QueueReady
from spanmq.worker.session import Session, backoff
from spanmq.worker.setting import Settings

# The pause of a worker without a free slot, which has several queues: one of them may have become ready.
FULL_LOOK_SECONDS: Final = 0.1
# At least this long a pause for each queue, so that polls take at most a tenth of a processor.
GAP_SECONDS: Final = 30e-6
# How long a worker that stops waits for its last call.
LAST_SECONDS: Final = 1.0


@dataclass(eq=False, kw_only=True)
class Poller:
    """Puts what polls and notifications of a server say: that queues are ready, policies, cancels, commands."""

    server: str
    session: Session
    settings: Settings
    bus: EventBus
    inbox: Inbox
    clock: Callable[[], float] = monotonic

    def __post_init__(self) -> None:
        """Begin without queues."""
        self._registration = Registration()
        self._queues: set[str] = set()
        # Those that were dropped, or to which the worker lacks the right.
        self._unknown: set[str] = set()
        self._hearing: asyncio.Task[None] | None = None
        # Of the connection that listens.
        self._outage = Outage(self.clock)
        self._set_heard(False)
        # Whether senders know that this process waits.
        self._is_announced = False
        self._is_wanted = AsyncEvent()
        self._has_room = AsyncEvent()
        self._has_room.set()
        # Queues of which messages were received since the poll under way began.
        self._received: set[str] = set()

    async def add(self, queues: Iterable[str]) -> None:
        """Poll for these queues, too; raises QueueNotFoundError for one that does not exist."""
        added = set(queues)
        for queue in added:
            self.session.warm_for(queue)
        self._queues |= added
        try:
            await self._register()
            for queue in added & self._unknown:
                try:
                    is_ordered = await self.session.run(partial(_is_ordered, queue))
                except MissingPrivilegeError:
                    is_ordered = True  # unknown without the right to look: assume that it is
                self.inbox.put(PolicySeen(queue, is_ordered))
        except BaseException:
            self._queues -= added
            raise
        self.poll_soon()

    def remove(self, queue: str) -> None:
        """Poll for a queue no more."""
        self._queues.discard(queue)
        self._registration.forget()

    def poll_soon(self) -> None:
        """Poll now, or as soon as polls for this number of queues may follow each other."""
        self._is_wanted.set()

    def received(self, queue: str) -> None:
        """Poll soon, and ignore what a poll under way says of this queue: it may have seen the received messages."""
        self._received.add(queue)
        self.poll_soon()

    def room(self, has_room: bool) -> None:
        """Record whether the worker has a free slot."""
        if not has_room:
            self._has_room.clear()
        elif not self._has_room.is_set():
            self._has_room.set()
            if not self._is_announced:
                self.poll_soon()

    def pass_on(self, queues: Iterable[str], *, is_busy: bool) -> None:
        """Wake other processes for queues with messages left; put those without any."""
        left = set(queues)
        numbers = {number: name for number, name in self._registration.names.items() if name in left}
        if self._registration.channel is not None:
            self.inbox.begin(self._pass_on(numbers, is_busy=is_busy), "passing on")

    async def run(self) -> None:
        """Poll until cancelled."""
        failures = 0
        try:
            while True:
                if not self._has_room.is_set():
                    is_one = len(self._queues) == 1
                    pause = max(FULL_LOOK_SECONDS, 10 * self._gap)
                    await self._has_room.wait(REGISTER_SECONDS if is_one else pause)
                self._is_wanted.clear()
                self._received.clear()
                waits = self._is_heard and self._has_room.is_set()
                self._is_announced = waits
                call = self._registration.poll(waits=waits)
                try:
                    if self._registration.is_due:
                        await self._register()
                    polled = await self.session.run(partial(_run, call))
                except (ConnectionFailedError, ConnectionLostError):
                    continue  # the session connects again
                except SpanmqError as error:
                    failures += 1
                    pause = backoff(failures)
                    names = ", ".join(sorted(self._queues)[:3])
                    self.bus.emit(CallFailed(names, " ".join(str(error).split()), pause))
                    await asyncio.sleep(pause)
                    continue
                if polled.ready is None:  # the server has crashed, or this process stood still
                    failures += 1
                    self._registration.forget()
                    await asyncio.sleep(0 if failures == 1 else backoff(failures))
                    continue
                failures = 0
                for name in [*self._registration.queues(polled.ready), *self._unknown]:
                    if name not in self._received:
                        self.inbox.put(QueueReady(name, is_woken=False))
                await self._pause(Due(polled.due_in))
        finally:
            if self._hearing is not None:
                self._hearing.cancel()

    async def stop(self) -> None:
        """Announce that this process does not wait any more."""
        if self._registration.channel is not None:
            with suppress(TimeoutError, SpanmqError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self.session.run(partial(_run, self._registration.pass_on([], is_busy=True)))

    @property
    def _gap(self) -> float:
        return len(self._queues) * GAP_SECONDS

    async def _pause(self, due: Due) -> None:
        polling = self._polling
        polling.due = due
        until = self.clock() + self._gap
        is_wanted = await self._is_wanted.wait(polling.pause)
        polling.paused()
        if is_wanted:
            polling.restart()
        if (left := until - self.clock()) > 0:
            await asyncio.sleep(left)

    def _set_heard(self, is_heard: bool) -> None:
        """Note whether notifications arrive: without them it looks more often."""
        self._is_heard = is_heard
        self._polling = Polling.of_worker(self.settings.poll_interval, is_heard=is_heard)

    async def _register(self) -> None:
        queues = sorted(self._queues)
        call = self._registration.register(queues, has_channel=not self.settings.pooler)
        awaited = await self.session.run(partial(_run, call))
        is_new = self._registration.registered(awaited)
        self._unknown = self._queues.difference(entry.queue for entry in awaited)
        for entry in awaited:
            self.inbox.put(PolicySeen(entry.queue, entry.is_ordered))
        if is_new:
            self._set_heard(False)
            if self._hearing is not None:
                self._hearing.cancel()
            if (channel := self._registration.channel) is not None:
                self._hearing = self.inbox.begin(self._hear(channel), "listener")

    async def _hear(self, channel: str) -> None:
        while True:
            client = await self.session.client()
            with suppress(SpanmqError):
                await client.admin.notifications.hear(channel, self._rung)
            self._set_heard(False)
            self.poll_soon()
            await asyncio.sleep(self._outage.failed())

    def _rung(self, number: int | None) -> None:
        if number is None:
            self._outage.end()
            self._set_heard(True)
            self.poll_soon()  # which announces this process
            self.inbox.put(CancelAsked({*self._queues}))  # what was cancelled before
        elif number == 0:
            self.inbox.put(CommandAsked(self.server))
        elif number < 0:
            self.inbox.put(CancelAsked({self._registration.names.get(-number, "")}))
        elif (name := self._registration.names.get(number)) is not None:
            self.inbox.put(QueueReady(name, is_woken=True))
        else:
            self._registration.forget()

    async def _pass_on(self, queues: dict[int, str], *, is_busy: bool) -> None:
        with suppress(SpanmqError):  # others poll, too
            left = await self.session.run(partial(_run, self._registration.pass_on(queues, is_busy=is_busy)))
            for number, name in queues.items():
                if number not in left:
                    self.inbox.put(QueueEmpty(name))
        if is_busy:
            # The server may have had a poll before it that began while it was under way.
            self._is_announced = False
            if self._has_room.is_set():
                self.poll_soon()


async def _run(call: SqlCall[Result], client: AsyncClient) -> Result:
    return await client.admin.run(call)


async def _is_ordered(queue: str, client: AsyncClient) -> bool:
    return (await client.queues.policy(queue)).ordered
