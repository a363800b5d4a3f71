"""Finds handlers that exceed their time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from spanmq.model import Message
from spanmq.worker.job import Job
from spanmq.worker.slots import Slot, TaskSlots, ThreadSlots, running

TICK_SECONDS_MAX = 1.0


class Watch:
    """Calls `on_overrun` for a handler beyond its own limit, or beyond that of its message's lease."""

    def __init__(
        self,
        slots: TaskSlots | ThreadSlots,
        *,
        handler_timeout: float | None,
        timeout_of: Callable[[Message], float | None] | None = None,
        lease_max: float,
        on_overrun: Callable[[Slot, Job, float], None],
    ) -> None:
        self._slots = slots
        self._limit = handler_timeout
        self._timeout_of = timeout_of
        self._lease_max = lease_max
        self._on_overrun = on_overrun

    async def run(self) -> None:
        """Look at the running handlers until cancelled."""
        shortest = min(self._lease_max, self._limit or self._lease_max)
        tick = max(min(shortest / 20, TICK_SECONDS_MAX), 0.005)
        # While the lease is still valid, so that the nack has an effect.
        lease_limit = self._lease_max - min(2 * tick, self._lease_max / 4)
        while True:
            await asyncio.sleep(tick)
            now = monotonic()
            for slot, job, started_at in running(self._slots.slots):
                seconds = now - started_at
                limit = self._limit if self._timeout_of is None else self._timeout_of(job.messages[0])
                is_over = limit is not None and seconds >= limit
                if is_over or now - job.holding.received_at >= lease_limit:
                    self._on_overrun(slot, job, seconds)
