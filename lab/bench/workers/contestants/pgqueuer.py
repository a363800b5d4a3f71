"""PGQueuer, over asyncpg as its documentation advises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import asyncpg
import uvloop
from lab.bench.workers.contestants import Body
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

SENT_BATCH = 1_000
BATCH = 100
loop_factory = uvloop.new_event_loop


class PGQueuer:
    """One entrypoint."""

    def __init__(self, dsn: str, called: Callable[[object], None]) -> None:
        self._dsn, self._called = dsn, called

    async def prepare(self) -> None:
        self._sender = PgQueuer(AsyncpgDriver(await asyncpg.connect(self._dsn)))
        await self._sender.qm.queries.install()

    async def send(self, bodies: Sequence[Body]) -> None:
        for start in range(0, len(bodies), SENT_BATCH):
            payloads: list[bytes | None] = [
                json.dumps(body).encode() for body in bodies[start : start + SENT_BATCH]
            ]
            await self._sender.qm.queries.enqueue(["handle"] * len(payloads), payloads, [0] * len(payloads))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        connection = await asyncpg.connect(self._dsn)
        runner = PgQueuer(AsyncpgDriver(connection))

        @runner.entrypoint("handle")
        async def handle(job: Job) -> None:
            self._called(job)

        work = asyncio.create_task(runner.run(batch_size=BATCH, max_concurrent_tasks=2 * BATCH))
        yield
        runner.shutdown.set()
        await work
        await connection.close()
