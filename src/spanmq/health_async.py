"""How queues and the server are; a part of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spanmq import health_calls, worker_report_calls
from spanmq.call import Seconds
from spanmq.link_async import AsyncLink
from spanmq.message import Finding, LatestStatistics, QueueHealth, Sample
from spanmq.worker_report_calls import TaskKind, WorkerReport


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

    async def report_worker(
        self,
        queue: str,
        worker: str,
        *,
        running_for: Seconds | None = None,
        slots: int = 0,
        held: int = 0,
        times: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """Report that a worker runs, since `running_for` seconds, or has stopped (None).

        Workers call it. `times` says what its handlers did since the last report: `kind`, `failed`, `bucket` and
        `n` of each, where `n` took up to 2^(bucket/2) ms.
        """
        await self._link.run(
            worker_report_calls.report_worker(queue, worker, running_for, slots, held, times)
        )

    async def list_workers(self, queue: str | None = None) -> list[WorkerReport]:
        """List the workers that have reported within a minute, for each of their queues."""
        found = await self._link.run(worker_report_calls.list_workers(queue))
        return sorted(found, key=lambda each: (each.worker, each.queue))

    async def list_task_kinds(self, queue: str | None = None, *, seconds: Seconds = 3600.0) -> list[TaskKind]:
        """List the kinds of tasks that workers handled in the last `seconds`, up to a day."""
        found = await self._link.run(worker_report_calls.list_task_kinds(queue, seconds))
        return sorted(found, key=lambda each: (each.queue, each.kind))

    async def doctor(self, *, connections: int | None = None) -> list[Finding]:
        """Look whether the server is fit for its job, and say what to do.

        `connections` is how many all pools that run may open together. Needs membership in pg_read_all_stats.
        """
        return await self._link.run(health_calls.doctor(connections))
