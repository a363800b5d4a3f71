"""Oban for Python, whose documentation has no advice on throughput."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import oban
import uvloop
from lab.bench.workers.contestants import Body
from oban.schema import install

QUEUE = "bench"
LIMIT = 100
loop_factory = uvloop.new_event_loop


class Oban:
    """One worker class on one queue."""

    def __init__(self, dsn: str, called: Callable[[object], None]) -> None:
        self._dsn = dsn

        @oban.worker(queue=QUEUE)
        class Handle:
            async def process(self, job: object) -> None:
                called(job)

        self._worker: Any = Handle

    async def prepare(self) -> None:
        self._pool = await oban.Oban.create_pool(self._dsn)
        await install(self._pool)
        self._sender = oban.Oban(pool=self._pool, name="sender")

    async def send(self, bodies: Sequence[Body]) -> None:
        await self._sender.enqueue_many(self._worker.new({"body": body}) for body in bodies)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with oban.Oban(pool=self._pool, queues={QUEUE: LIMIT}):
            yield
