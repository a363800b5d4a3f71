"""Finds handlers that exceed their time limit, and those that take unusually long."""

import asyncio
from collections.abc import Callable
from time import monotonic

from spanmq.model import Message
from spanmq.worker.job import Job
from spanmq.worker.slots import Slot, TaskSlots, ThreadSlots, running

TICK_SECONDS_MAX = 1.0
# Time limits of handlers are exact to twice this.
LIMIT_TICK_SECONDS = 0.05


async def watch(
    slots: TaskSlots | ThreadSlots,
    *,
    handler_timeout: float | None,
    timeout_of: Callable[[Message], float | None] | None,
    lease_max: float,
    on_overrun: Callable[[Slot, Job, float], None],
    slow_after: float | None,
    slow_share: float,
    usual_of: Callable[[Job], float | None],
    on_slow: Callable[[Job, float, float | None, float | None], None],
) -> None:
    """Call `on_overrun` for a handler beyond its own limit, or beyond that of its message's lease, until cancelled.

    Calls `on_slow` once for one that has taken `slow_after` seconds and is beyond what `usual_of` returns, or that has
    used up `slow_share` of its limit, with the seconds, and the one of both that it is beyond.
    """
    shortest = min(lease_max, handler_timeout or lease_max)
    tick_max = TICK_SECONDS_MAX if handler_timeout is None and timeout_of is None else LIMIT_TICK_SECONDS
    tick = max(min(shortest / 20, tick_max), 0.005)
    # While the lease is still valid, so that the nack has an effect.
    lease_limit = lease_max - min(2 * tick, lease_max / 4)
    while True:
        await asyncio.sleep(tick)
        now = monotonic()
        for slot, job, started_at in running(slots.slots):
            seconds = now - started_at
            limit = handler_timeout if timeout_of is None else timeout_of(job.messages[0])
            is_over = limit is not None and seconds >= limit
            if is_over or now - job.holding.received_at >= lease_limit:
                on_overrun(slot, job, seconds)
            elif slow_after is not None and not job.is_slow:
                usual = usual_of(job) if seconds >= slow_after else None
                is_unusual = usual is not None and seconds > usual
                if is_unusual or seconds >= slow_share * (limit or lease_limit):
                    job.is_slow = True
                    on_slow(
                        job,
                        seconds,
                        usual if is_unusual else None,
                        None if is_unusual else limit or lease_limit,
                    )
