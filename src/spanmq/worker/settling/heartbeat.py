"""Leases, which are extended before they expire."""

import math
from collections.abc import Collection
from typing import Final

from spanmq.worker.effect import Extend
from spanmq.worker.job import Lease

# A lease is extended when this share of it is over: the rest suffices for two more attempts.
SHARE: Final = 1 / 3


class Leases:
    """Every lease that still holds messages: when to extend it, for at most `longest` seconds after its receive.

    No I/O here: the caller passes the time.
    """

    __slots__ = ("_extending", "_held", "_longest", "due_at")

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._held: set[Lease] = set()
        # Those whose extension is under way.
        self._extending: set[Lease] = set()
        # When to look at them.
        self.due_at = math.inf

    def add(self, lease: Lease, now: float) -> None:
        """Add a lease; each has its own length, because queues differ and policies change."""
        self._held.add(lease)
        self.due_at = min(self.due_at, now + _tick_of(lease))

    def of(self, queues: Collection[str]) -> list[Lease]:
        """Return the leases of these queues."""
        return [lease for lease in self._held if lease.queue in queues]

    def discard(self, lease: Lease) -> None:
        """Remove a lease."""
        self._held.discard(lease)

    def extended(self, lease: Lease) -> None:
        """Record that the extension of a lease has ended."""
        self._extending.discard(lease)

    def due(self, now: float) -> tuple[list[Extend], list[Lease]]:
        """Return the extensions to begin now, and the leases that have ended, which may not be extended further."""
        extensions: list[Extend] = []
        ended: list[Lease] = []
        if now < self.due_at:
            return extensions, ended
        for lease in self._held - self._extending:
            if now < lease.ends_at - lease.seconds * (1 - SHARE):
                continue
            seconds = min(lease.seconds, lease.received_at + self._longest - now)
            if seconds > 0 and now + seconds > lease.ends_at:  # a shorter one would shorten it
                self._extending.add(lease)
                extensions.append(Extend(lease, seconds))
            elif now >= lease.ends_at:
                ended.append(lease)
        self._held.difference_update(ended)
        self.due_at = now + min(map(_tick_of, self._held), default=math.inf)
        return extensions, ended


def _tick_of(lease: Lease) -> float:
    return max(lease.seconds * SHARE / 4, 0.005)
