"""How queues and the server are; a part of AsyncClient."""

from __future__ import annotations

from spanmq import health_calls
from spanmq.call import Seconds
from spanmq.link_async import AsyncLink
from spanmq.message import Finding, LatestStatistics, QueueHealth, Sample


class AsyncHealth:
    """Looking at all queues at once, at their last hours, and at the server."""

    _link: AsyncLink

    async def health(self) -> list[QueueHealth]:
        """Return the health of each queue that you may look into. Costs what its runs cost."""
        return await self._link.run(health_calls.health())

    async def statistics(self, queue: str, *, seconds: Seconds = 3600.0) -> list[Sample]:
        """Give what a queue did within the last so many seconds, a sample a minute, oldest first.

        Empty where nobody calls `maintain`, which takes the samples and keeps them for three days.
        """
        return await self._link.run(health_calls.statistics(queue, seconds))

    async def latest_statistics(self) -> list[LatestStatistics]:
        """Return the last sample of each queue that you may look into.

        Costs the same whatever waits there, where `health` reads every run.
        """
        return await self._link.run(health_calls.latest_statistics())

    async def report_breaker(self, queue: str, worker: str, seconds: Seconds | None = None) -> None:
        """Report that a worker's circuit breaker is open for `seconds` more, or closed (None).

        Workers call it; `health`, `glance` and `latest_statistics` show it until that time has passed.
        """
        await self._link.run(health_calls.report_breaker(queue, worker, seconds))

    async def doctor(self, *, connections: int | None = None) -> list[Finding]:
        """Look whether the server is fit for its job, and say what to do.

        `connections` is how many all pools that run may open together. Needs membership in pg_read_all_stats.
        """
        return await self._link.run(health_calls.doctor(connections))
