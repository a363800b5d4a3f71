"""spanmq: a handler of messages, and a task for the same messages whose argument is validated at both ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import uvloop
from lab.bench.workers.contestants import Body

from spanmq import Client, Message, Worker
from spanmq.tasks import Task, Tasks

QUEUE = "bench"
loop_factory = uvloop.new_event_loop


class _Spanmq:
    """What both kinds share: the installation, and a worker with its defaults."""

    def __init__(
        self, dsn: str, worker: Callable[[], Worker], send: Callable[[Sequence[Body]], object]
    ) -> None:
        self._dsn, self._worker, self._send = dsn, worker, send

    async def prepare(self) -> None:
        def install() -> None:
            with Client(self._dsn) as client:
                client.install()
                client.queues.create(QUEUE)

        await asyncio.to_thread(install)

    async def send(self, bodies: Sequence[Body]) -> None:
        await asyncio.to_thread(self._send, bodies)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        worker = self._worker()
        work = asyncio.create_task(worker.work())
        yield
        worker.stop()
        await work


def handlers(dsn: str, called: Callable[[object], None], *, threads: bool = False) -> _Spanmq:
    """Handle messages, in the event loop or in threads."""
    client = Client(dsn, maintain_interval=1.0)

    async def handle(message: Message) -> None:
        called(message)

    def send(bodies: Sequence[Body]) -> None:
        # The same message that a task has.
        client.send_batch(QUEUE, [{"task": "handle", "args": {"body": body}} for body in bodies])

    return _Spanmq(dsn, lambda: Worker(QUEUE, called if threads else handle, dsn=dsn), send)


def tasks(dsn: str, called: Callable[[object], None], *, threads: bool = False) -> _Spanmq:
    """Handle tasks, in the event loop or in threads."""
    all_tasks = Tasks(QUEUE, dsn=dsn)

    async def handle(body: Body) -> None:
        called(body)

    def handle_in_thread(body: Body) -> None:
        called(body)

    task: Task[[Body], Any] = all_tasks.task(name="handle")(handle_in_thread if threads else handle)
    task.call({})  # imports Pydantic
    return _Spanmq(dsn, all_tasks.worker, lambda bodies: all_tasks.send_many(map(task.call, bodies)))


handlers_in_threads = partial(handlers, threads=True)
tasks_in_threads = partial(tasks, threads=True)
