"""Looking into queues at a bounded price, as pages for people do; a part of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterable

from spanmq import insides_calls
from spanmq.call import Seconds
from spanmq.link_async import AsyncLink
from spanmq.queue_part import Glance, Group, HeldLease, Segment, StatisticsStep


class AsyncInsides:
    """What stands in a queue; none of it costs more when more waits."""

    _link: AsyncLink

    async def glance(self, queues: Iterable[str] | None = None, *, most: int = 200) -> list[Glance]:
        """Count each of these queues (None: all) of at most `most` runs; counts of others are None."""
        return await self._link.run(insides_calls.glance(queues, most))

    async def list_leases(self, queue: str, quantity: int = 100) -> list[HeldLease]:
        """List what receivers hold, the oldest lease first."""
        return await self._link.run(insides_calls.list_leases(queue, quantity))

    async def list_groups(self, queue: str, quantity: int = 100) -> list[Group]:
        """List groups, those first that give nothing now, and what they wait for.

        Reads the next 2,000 held runs to become visible, the 2,000 that became so first, and the first
        2,000 fresh ones.
        """
        return await self._link.run(insides_calls.list_groups(queue, quantity))

    async def list_segments(self, queue: str, quantity: int = 100) -> list[Segment]:
        """List the tables of a queue's log, the newest first."""
        return await self._link.run(insides_calls.list_segments(queue, quantity))

    async def sum_statistics(
        self, queues: Iterable[str] | None = None, *, seconds: Seconds = 3600.0, step: Seconds = 60.0
    ) -> list[StatisticsStep]:
        """Tell what these queues (None: all) did together, in steps, up to a minute ago, oldest first."""
        return await self._link.run(insides_calls.sum_statistics(queues, seconds, step))
