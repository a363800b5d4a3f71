"""A worker for the tasks of a program: alone in a process, or beside other async code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from spanmq.client import AsyncClient
from spanmq.tasks import periodic
from spanmq.tasks.handling import Handling
from spanmq.tasks.task import Catalog
from spanmq.worker import Worker, WorkerOptions, log
from spanmq.worker.event import Event, WorkerStarted
from spanmq.worker.runtime import new_event_loop


def worker_of(
    catalog: Catalog, handling: Handling, queues: Iterable[str] | None, settings: WorkerOptions
) -> Worker:
    """Return a worker for these tasks."""
    catalog.check()
    settings = {"weights": catalog.weights, "limits": catalog.limits, **settings}
    settings["dsn"] = settings.get("dsn") or catalog.sender.clients.address()
    function = handling.handler(settings.get("handler_timeout"))
    return Worker(catalog.queues if queues is None else queues, function, **settings)


def run(catalog: Catalog, queues: Iterable[str] | None, settings: WorkerOptions) -> None:
    """Work until a signal, in an event loop of its own."""
    handling = Handling(catalog)
    worker = worker_of(catalog, handling, queues, settings)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_work(catalog, worker, handling, settings, signals=True))


@asynccontextmanager
async def working(
    catalog: Catalog, queues: Iterable[str] | None, settings: WorkerOptions
) -> AsyncIterator[Worker]:
    """Start a worker, yield it, and stop it; raises errors that prevent it from starting or continuing."""
    started = asyncio.Event()

    def observe(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            started.set()

    observe.hears_routine = lambda: False  # type: ignore[attr-defined]
    handling = Handling(catalog)
    observers = [*settings.get("observers", (log.write,)), observe]
    worker = worker_of(catalog, handling, queues, {**settings, "observers": observers})
    work = asyncio.create_task(_work(catalog, worker, handling, settings, signals=False), name="spanmq tasks")
    begun = asyncio.create_task(started.wait())
    try:
        await asyncio.wait([work, begun], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            yield worker
    finally:
        begun.cancel()
        worker.stop()
        await work


async def _work(
    catalog: Catalog, worker: Worker, handling: Handling, settings: WorkerOptions, *, signals: bool
) -> None:
    client = AsyncClient(
        settings.get("dsn") or catalog.sender.clients.address(),
        encryption=catalog.sender.clients.encryption,
        pool_size=1,
        pooler=settings.get("pooler", False),
        listen=False,
    )
    checks: asyncio.Task[None] | None = None
    try:
        await periodic.synchronise(client, catalog, at_start=True)
        if catalog.periodic:
            checks = asyncio.create_task(periodic.keep(client, catalog), name="spanmq periodic")
        else:
            await client.close()
        await worker.work(signals=signals)
    finally:
        if checks is not None:
            checks.cancel()
            await asyncio.wait([checks])
        await client.close()
        handling.close()
        await catalog.sender.clients.close_async()
