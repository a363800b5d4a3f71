"""The choice of the queues for receives: those that may have a message, as far as slots are free. No I/O here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from spanmq.worker.effect import Effect, Later, PassOn, Poll, Receive, SetRoom
from spanmq.worker.incoming import QueueReady
from spanmq.worker.receiving.pool import Pool
from spanmq.worker.receiving.source import Source
from spanmq.worker.settling.gathering import Gathering

# The number of receives at once.
RECEIVES_MAX: Final = 8
# The number of batches of verdicts that may wait for the database: beyond it, nothing is received.
BACKLOG_BATCHES: Final = 20
# A timer may be early by this.
EARLY_SECONDS: Final = 0.001


@dataclass(slots=True)
class Server:
    """The receives of a server that are under way, and its verdicts; its poller knows of `has_room`."""

    gathering: Gathering
    receiving: int = 0
    has_room: bool = True


class Scheduler:
    """Divides the free slots among the queues.

    `sources` are the queues, `servers` the servers by name; both are the machine's, and change.
    """

    def __init__(
        self, pool: Pool, sources: Mapping[str, Source], servers: Mapping[str, Server], batch: int
    ) -> None:
        self._pool = pool
        self._sources = sources
        self._servers = servers
        self._backlog_max = batch * BACKLOG_BATCHES
        # Queues for which a send has woken this process.
        self._woken: set[str] = set()
        # Queues found empty since the last message was received or settled.
        self._emptied: set[str] = set()
        # Queues whose receives under way started since then.
        self._telling: set[str] = set()

    def ready(self, queue: str, now: float, *, is_woken: bool) -> bool:
        """Record that a queue may have a message; return False if it is not to be received from yet."""
        source = self._sources.get(queue)
        if (
            source is None
            or source.is_stopped
            or (not is_woken and now + EARLY_SECONDS < source.ignored_until)
        ):
            return False
        if is_woken:
            self._woken.add(queue)
        self._pool.ready(queue)
        return True

    def exhausted(self, queue: str) -> None:
        """Record that a queue has no message now."""
        if queue in self._sources:
            self._pool.exhausted(queue)

    def changed(self) -> None:
        """Record that a message was received or settled: its handler may have sent others."""
        self._emptied.clear()
        self._telling.clear()

    def divide(self, *, is_alone: bool) -> Iterable[Effect]:
        """Yield the receives for the free slots, none while a message is handled alone; and who may help."""
        quantities = {} if is_alone else self._pool.quantities()
        for queue, quantity in quantities.items():
            source = self._sources[queue]
            server = self._servers[source.server]
            if server.receiving < RECEIVES_MAX and server.gathering.backlog <= self._backlog_max:
                server.receiving += 1
                self._telling.add(queue)
                # Before it counts as asked for.
                retries = None if source.is_old_schema else source.share.room_for_retries
                is_trial = source.breaker.state == "trial"
                self._pool.asked(queue, quantity)
                yield Receive(queue, quantity, retries, is_trial, is_trial and not source.is_old_schema)
        is_full = self._pool.is_full or is_alone
        stuck = [queue for queue in self._woken - quantities.keys() if not self._sources[queue].share.asked]
        self._woken.difference_update(stuck)
        for name, server in self._servers.items():
            if queues := [queue for queue in stuck if self._sources[queue].server == name]:
                yield PassOn(name, queues, is_full)
            if server.has_room == is_full:
                server.has_room = not is_full
                yield SetRoom(name, server.has_room)

    def look_for_the_end(self) -> bool:
        """Have each queue received from once more, while nothing is held; return whether none had a message."""
        left = [
            queue
            for queue, source in self._sources.items()
            if not source.is_stopped and queue not in self._emptied
        ]
        for queue in left:
            if not self._sources[queue].failures:
                self._pool.ready(queue)
        return not left

    def received(
        self, asked: Receive, count: int | None, now: float, *, may_be_more: bool
    ) -> Iterable[Effect]:
        """Record the end of a receive that returned `count` messages, None after an error."""
        queue = asked.queue
        source = self._sources[queue]
        self._servers[source.server].receiving -= 1
        source.share.asked = 0
        if count:
            self.changed()
        elif count == 0 and queue in self._telling:
            self._emptied.add(queue)
        # One message does not show whether there are more. Of many queues a poll says so for less than a receive each.
        if may_be_more or (count == asked.quantity and (asked.quantity > 1 or len(self._sources) == 1)):
            self._pool.ready(queue)
            return
        self._pool.exhausted(queue)
        is_woken = queue in self._woken
        self._woken.discard(queue)
        if count is None:
            yield Later(max(source.ignored_until, now), QueueReady(queue, is_woken=False))
            return
        source.receive_ended(count, now, is_woken=is_woken)
        if count or is_woken:
            yield Poll(source.server, received=queue)
