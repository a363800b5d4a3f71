"""awa, with jobs sent by COPY, and permits for 1,024 jobs, as its guide advises for queues of short jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import awa
from lab.bench.workers.contestants import Body

QUEUE = "bench"
BATCH = 1_000
WORKERS = 1_024


@dataclass
class Handle:
    """The argument of a job."""

    body: Body


class Awa:
    """One kind of job on one queue."""

    def __init__(self, dsn: str, called: Callable[[object], None]) -> None:
        # Its parser needs a name before the host of the query.
        self._dsn, self._called = dsn.replace("@/", "@localhost/"), called
        self._sender = awa.AsyncClient(self._dsn)

    async def prepare(self) -> None:
        await self._sender.migrate()
        await self._sender.install_queue_storage()

    async def send(self, bodies: Sequence[Body]) -> None:
        for start in range(0, len(bodies), BATCH):
            jobs = [Handle(body) for body in bodies[start : start + BATCH]]
            await self._sender.enqueue_many_copy(jobs, queue=QUEUE)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        client = awa.AsyncClient(self._dsn)

        async def handle(job: object) -> None:
            self._called(job)

        client.task(Handle, queue=QUEUE)(handle)
        await client.start([(QUEUE, WORKERS)])
        yield
        await client.shutdown(timeout_ms=60_000)
        await client.close()
