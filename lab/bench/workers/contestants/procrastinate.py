"""Procrastinate, with jobs deferred in batches, a hundred at once, and finished jobs deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import procrastinate
from lab.bench.workers.contestants import Body

BATCH = 1_000
CONCURRENCY = 100


class Procrastinate:
    """One task on one queue."""

    def __init__(self, dsn: str, called: Callable[[object], None]) -> None:
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn))

        @self._app.task(name="handle", queue="bench")
        async def handle(body: Body) -> None:
            called(body)

        self._task = handle

    async def prepare(self) -> None:
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()

    async def send(self, bodies: Sequence[Body]) -> None:
        for start in range(0, len(bodies), BATCH):
            arguments: list[Any] = [{"body": body} for body in bodies[start : start + BATCH]]
            await self._task.batch_defer_async(*arguments)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        work = asyncio.create_task(
            self._app.run_worker_async(
                concurrency=CONCURRENCY, install_signal_handlers=False, delete_jobs="successful"
            )
        )
        yield
        # It ends the running jobs first.
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
