"""Leases, which are extended before they expire."""

import math
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from spanmq.errors import SpanmqError
from spanmq.worker.effect import Extend
from spanmq.worker.inbox import Inbox
from spanmq.worker.incoming import ExtensionEnded
from spanmq.worker.job import Holding
from spanmq.worker.session import Session

# A lease is extended when this share of it is over: the rest suffices for two more attempts.
SHARE: Final = 1 / 3


class Leases:
    """Every lease that still holds messages: when to extend it, for at most `longest` seconds after its receive.

    No I/O here: the caller passes the time.
    """

    __slots__ = ("_extending", "_held", "_longest", "due_at")

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._held: set[Holding] = set()
        # Those whose extension is under way.
        self._extending: set[Holding] = set()
        # When to look at them.
        self.due_at = math.inf

    def add(self, holding: Holding, now: float) -> None:
        """Add a lease; each has its own length, because queues differ and policies change."""
        self._held.add(holding)
        self.due_at = min(self.due_at, now + _tick_of(holding))

    def of(self, queues: Collection[str]) -> list[Holding]:
        """Return the leases of these queues."""
        return [holding for holding in self._held if holding.queue in queues]

    def discard(self, holding: Holding) -> None:
        """Remove a lease."""
        self._held.discard(holding)

    def extended(self, holding: Holding) -> None:
        """Record that the extension of a lease has ended."""
        self._extending.discard(holding)

    def due(self, now: float) -> tuple[list[Extend], list[Holding]]:
        """Return the extensions to begin now, and the leases that have ended, which may not be extended further."""
        extensions: list[Extend] = []
        ended: list[Holding] = []
        if now < self.due_at:
            return extensions, ended
        for holding in self._held - self._extending:
            if now < holding.ends_at - holding.seconds * (1 - SHARE):
                continue
            seconds = min(holding.seconds, holding.received_at + self._longest - now)
            if seconds > 0:
                self._extending.add(holding)
                extensions.append(Extend(holding, seconds))
            elif now >= holding.ends_at:
                ended.append(holding)
        self._held.difference_update(ended)
        self.due_at = now + min(map(_tick_of, self._held), default=math.inf)
        return extensions, ended


async def extend(asked: Extend, session: Session, inbox: Inbox, clock: Callable[[], float]) -> None:
    """Extend a lease, and put the end of that."""
    holding = asked.holding
    begun_at = clock()
    count: int | None = None
    # After an error the session reconnects, and this is called again. Whether the lease is still valid will be known
    # from the settlement.
    with suppress(SpanmqError):
        count = await session.run(
            lambda client: client.extend(holding.queue, holding.lease_id, asked.seconds)
        )
    inbox.put(ExtensionEnded(holding, count, begun_at, asked.seconds))


def _tick_of(holding: Holding) -> float:
    return max(holding.seconds * SHARE / 4, 0.005)
