"""One worker in a process of its own: `python -m bench.workers.contestant NAME DSN COUNT`.

Sends its messages, works them off with a handler that does nothing, and prints four numbers, in milliseconds a
message: time and this process's processor time of the sends, and the same from the first call of the handler
until everything is settled.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.bodies import generate

CONCURRENCY = 100
BATCH = 100


class Clock:
    """Times the sends, and from the first call of a handler until the worker has settled all and ended.

    `on_last` is called at the last call.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.calls = 0
        self._numbers = iter(range(1, count + 1))
        self.began: _Stopwatch | None = None
        self.sent_ms = (0.0, 0.0)
        self.on_last: Callable[[], None] = lambda: None

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Time the block that sends; the messages made before are no work for the garbage collector."""
        gc.collect()
        gc.freeze()
        watch = _Stopwatch()
        yield
        self.sent_ms = watch.read_ms(self.count)

    def tick(self, _: object) -> None:
        """Note a call."""
        self.began = self.began or _Stopwatch()
        # One step for CPython, so that it is right in threads too.
        number = next(self._numbers)
        if number == self.count:
            self.calls = number
            self.on_last()

    def read_ms(self) -> tuple[float, ...]:
        """Return what is printed."""
        return self.sent_ms + (self.began or _Stopwatch()).read_ms(self.count)


class _Stopwatch:
    """The time, and the processor time of this process, since it was made."""

    def __init__(self) -> None:
        self._began_at, self._processor_seconds = time.perf_counter(), time.process_time()

    def read_ms(self, count: int) -> tuple[float, float]:
        """Return both in milliseconds, divided by a count."""
        seconds = time.perf_counter() - self._began_at
        processor_seconds = time.process_time() - self._processor_seconds
        return seconds * 1000 / count, processor_seconds * 1000 / count


def bodies(count: int) -> list[dict[str, Any]]:
    """Return so many bodies of 250 bytes."""
    texts = list(generate())
    return [json.loads(texts[number % len(texts)]) for number in range(count)]


async def spanmq_async(dsn: str, clock: Clock, *, threads: bool = False) -> None:
    """Work with spanmq, in the event loop or in threads."""
    from spanmq import Client, Message, Worker

    def fill() -> None:
        with Client(dsn, maintain_interval=1.0) as client:
            client.install()
            client.queues.create("bench")
            # The same message that a task has.
            messages = [{"task": "handle", "args": {"body": body}} for body in bodies(clock.count)]
            with clock.sending():
                client.send_batch("bench", messages)

    async def handle(message: Message) -> None:
        clock.tick(message)

    await asyncio.to_thread(fill)
    # With its defaults.
    worker = Worker("bench", clock.tick if threads else handle, dsn=dsn)
    clock.on_last = worker.stop
    await worker.work()


async def spanmq_threads(dsn: str, clock: Clock) -> None:
    """Work with spanmq in threads."""
    await spanmq_async(dsn, clock, threads=True)


async def spanmq_tasks(dsn: str, clock: Clock, *, threads: bool = False) -> None:
    """Work with spanmq's tasks: the same messages, whose argument is validated at both ends."""
    from spanmq import Client
    from spanmq.tasks import Task, Tasks

    tasks = Tasks("bench", dsn=dsn)

    def handle_in_thread(body: dict[str, Any]) -> None:
        clock.tick(body)

    async def handle(body: dict[str, Any]) -> None:
        clock.tick(body)

    task: Task[[dict[str, Any]], Any] = tasks.task(name="handle")(handle_in_thread if threads else handle)

    def fill() -> None:
        with Client(dsn, maintain_interval=1.0) as client:
            client.install()
            client.queues.create("bench")
        messages = bodies(clock.count)
        task.call(messages[0])  # imports Pydantic
        with clock.sending():
            tasks.send_many(task.call(body) for body in messages)

    await asyncio.to_thread(fill)
    worker = tasks.worker()
    clock.on_last = worker.stop
    await worker.work()


async def spanmq_tasks_threads(dsn: str, clock: Clock) -> None:
    """Work with spanmq's tasks, plain functions."""
    await spanmq_tasks(dsn, clock, threads=True)


async def procrastinate(dsn: str, clock: Clock) -> None:
    """Work with Procrastinate."""
    import procrastinate as library

    app = library.App(connector=library.PsycopgConnector(conninfo=dsn))

    @app.task(name="handle", queue="bench")
    async def handle(body: dict[str, Any]) -> None:
        clock.tick(body)

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        everything: list[dict[str, Any]] = [{"body": body} for body in bodies(clock.count)]
        with clock.sending():
            for start in range(0, len(everything), 1000):
                await handle.batch_defer_async(*everything[start : start + 1000])
        await app.run_worker_async(
            wait=False, concurrency=CONCURRENCY, install_signal_handlers=False, delete_jobs="successful"
        )


async def pgqueuer(dsn: str, clock: Clock) -> None:
    """Work with PGQueuer, over asyncpg as its documentation advises."""
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.models import Job
    from pgqueuer.types import QueueExecutionMode
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(dsn)
    connection = await asyncpg.connect(
        host=str(parts["host"]),
        port=int(str(parts.get("port", 5432))),
        user=str(parts["user"]),
        database=str(parts["dbname"]),
    )
    runner = PgQueuer(AsyncpgDriver(connection))
    await runner.qm.queries.install()

    @runner.entrypoint("handle")
    async def handle(job: Job) -> None:
        clock.tick(job)

    payloads: list[bytes | None] = [json.dumps(body).encode() for body in bodies(clock.count)]
    with clock.sending():
        for start in range(0, clock.count, 1000):
            chunk = payloads[start : start + 1000]
            await runner.qm.queries.enqueue(["handle"] * len(chunk), chunk, [0] * len(chunk))
    await runner.run(batch_size=BATCH, mode=QueueExecutionMode.drain, max_concurrent_tasks=2 * BATCH)
    await connection.close()


CONTESTANTS: dict[str, Callable[[str, Clock], Awaitable[None]]] = {
    "spanmq": spanmq_async,
    "spanmq-threads": spanmq_threads,
    "spanmq-tasks": spanmq_tasks,
    "spanmq-tasks-threads": spanmq_tasks_threads,
    "procrastinate": procrastinate,
    "pgqueuer": pgqueuer,
}


def main() -> int:
    name, dsn, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    clock = Clock(count)

    async def run() -> tuple[float, ...]:
        await CONTESTANTS[name](dsn, clock)
        return clock.read_ms()

    figures = asyncio.run(run())
    if clock.calls != count:
        print(f"{name} handled {clock.calls} of {count} messages", file=sys.stderr)
        return 1
    print(*figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
