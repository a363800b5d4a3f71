"""Extends leases before they lapse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from spanmq.client.concurrency import AsyncEvent
from spanmq.errors import SpanmqError
from spanmq.worker.event import LeaseExtended, LeaseLost, Seam
from spanmq.worker.job import Holding
from spanmq.worker.session import Session

# Nothing is held: whatever comes says how soon it wants to be looked at.
IDLE_SECONDS: Final = 60.0
# A lease is extended when this share of it is over: two more tries find room in the rest.
SHARE: Final = 1 / 3


class Heartbeat:
    """Keeps every lease that still holds something, for at most `lease_max` seconds after its receive."""

    def __init__(
        self,
        session: Session,
        *,
        lease_max: float,
        seam: Seam,
        on_lost: Callable[[Holding], None],
    ) -> None:
        self._session = session
        self._lease_max = lease_max
        self._seam = seam
        self._on_lost = on_lost
        self._holdings: set[Holding] = set()
        self._tick = IDLE_SECONDS
        self._is_shorter = AsyncEvent()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> asyncio.Task[None]:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="spanmq heartbeat")
        return self._task

    async def stop(self) -> None:
        """Let the leases end when they end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def add(self, holding: Holding) -> None:
        """Keep this lease, by its own length: queues differ, and a policy may change."""
        self._holdings.add(holding)
        if _tick_of(holding) < self._tick:
            self._is_shorter.set()

    def settled(self, holding: Holding) -> None:
        """Forget a lease that holds nothing any more."""
        if holding.unsettled <= 0:
            self._holdings.discard(holding)

    async def _run(self) -> None:
        while True:
            self._tick = min(map(_tick_of, self._holdings), default=IDLE_SECONDS)
            if await self._is_shorter.wait(self._tick):
                self._is_shorter.clear()
            now = monotonic()
            due = [each for each in self._holdings if now >= each.ends_at - each.seconds * (1 - SHARE)]
            if due:
                await asyncio.gather(*[self._extend(holding) for holding in due])

    async def _extend(self, holding: Holding) -> None:
        now = monotonic()
        if holding.received_at + self._lease_max <= now:
            if now >= holding.ends_at:
                self._lose(holding)
            return
        seconds = min(holding.seconds, holding.received_at + self._lease_max - now)
        try:
            count = await self._session.run(
                lambda client: client.extend(holding.queue, holding.lease_id, seconds)
            )
        except SpanmqError:
            # The session mends itself and this is called again. Whether the lease still holds nobody can tell
            # now: the settlement will.
            return
        if count:
            # From before the call: the database's time began later.
            holding.ends_at = now + seconds
            self._seam.emit(LeaseExtended(holding.queue, holding.lease_id, count, seconds))
        elif holding.undecided:
            self._lose(holding)
        elif holding.unsettled:
            holding.ends_at = now + seconds  # its settlement is on the way, and says what became of it

    def _lose(self, holding: Holding) -> None:
        if holding.is_lost:
            return
        holding.is_lost = True
        self._holdings.discard(holding)
        self._seam.emit(LeaseLost(holding.queue, holding.lease_id, holding.undecided))
        self._on_lost(holding)


def _tick_of(holding: Holding) -> float:
    return max(holding.seconds * SHARE / 4, 0.005)
