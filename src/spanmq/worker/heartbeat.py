"""Extends leases before they expire."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

from spanmq.client.concurrency import AsyncEvent
from spanmq.errors import SpanmqError
from spanmq.worker.event import EventBus, LeaseExtended, LeaseLost
from spanmq.worker.job import Holding
from spanmq.worker.session import Session

# The interval while no lease is held: a new lease sets its own.
IDLE_SECONDS: Final = 60.0
# A lease is extended when this share of it is over: the rest suffices for two more attempts.
SHARE: Final = 1 / 3


class Heartbeat:
    """Extends every lease that still holds messages, for at most `lease_max` seconds after its receive.

    `on_extended` is called after each extension: it finds out what was cancelled, if no notification comes.
    """

    def __init__(
        self,
        session: Session,
        *,
        lease_max: float,
        bus: EventBus,
        on_lost: Callable[[Holding], None],
        on_extended: Callable[[Holding], Awaitable[None]],
    ) -> None:
        self._session = session
        self._lease_max = lease_max
        self._bus = bus
        self._on_lost = on_lost
        self._on_extended = on_extended
        self._holdings: set[Holding] = set()
        # Those whose extension is under way.
        self._extending: set[Holding] = set()
        self._tick = IDLE_SECONDS
        self._is_shorter = AsyncEvent()

    def add(self, holding: Holding) -> None:
        """Add a lease; each has its own length, because queues differ and policies change."""
        self._holdings.add(holding)
        if _tick_of(holding) < self._tick:
            self._is_shorter.set()

    def settled(self, holding: Holding) -> None:
        """Remove a lease that holds no more messages."""
        if holding.unsettled <= 0:
            self._holdings.discard(holding)

    async def run(self) -> None:
        """Extend leases until cancelled."""
        # Each for itself: one that waits for a lock does not hold up the others.
        async with asyncio.TaskGroup() as extensions:
            while True:
                self._tick = min(map(_tick_of, self._holdings), default=IDLE_SECONDS)
                if await self._is_shorter.wait(self._tick):
                    self._is_shorter.clear()
                now = monotonic()
                for each in self._holdings - self._extending:
                    if now >= each.ends_at - each.seconds * (1 - SHARE):
                        self._extending.add(each)
                        extensions.create_task(self._extend(each), name="spanmq extension")

    async def _extend(self, holding: Holding) -> None:
        now = monotonic()
        seconds = min(holding.seconds, holding.received_at + self._lease_max - now)
        try:
            if seconds <= 0:
                if now >= holding.ends_at:
                    self._lose(holding)
                return
            count = await self._session.run(
                lambda client: client.extend(holding.queue, holding.lease_id, seconds)
            )
        except SpanmqError:
            # The session reconnects, and this is called again. Whether the lease is still valid will be known
            # from the settlement.
            return
        finally:
            self._extending.discard(holding)
        if count:
            # Measured before the call, because the database's time began later.
            holding.ends_at = now + seconds
            self._bus.emit(LeaseExtended(holding.queue, holding.lease_id, count, seconds))
            await self._on_extended(holding)
        elif holding.undecided:
            self._lose(holding)
        elif holding.unsettled:
            holding.ends_at = now + seconds  # its settlement is under way and will report the outcome

    def _lose(self, holding: Holding) -> None:
        if holding.is_lost:
            return
        holding.is_lost = True
        self._holdings.discard(holding)
        self._bus.emit(LeaseLost(holding.queue, holding.lease_id, holding.undecided))
        self._on_lost(holding)


def _tick_of(holding: Holding) -> float:
    return max(holding.seconds * SHARE / 4, 0.005)
