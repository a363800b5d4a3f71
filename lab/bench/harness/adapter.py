"""An adapter of the harness: `python -m lab.bench.harness.adapter spanmq|spanmq-pgmq|pgmq`.

Settings come from the environment, tokens of the producer from stdin, samples go to stdout, as its
CONTRIBUTING_ADAPTERS.md says. `spanmq` sends tasks to a worker; the other two call PGMQ's functions, in a database
with spanmq or with PGMQ.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import psycopg

from spanmq import AsyncClient, Client, errors
from spanmq.tasks import Tasks
from spanmq.version import __version__

QUEUE = "long_horizon_bench"
WINDOW_SECONDS = 30
LATENCIES_MAX = 32_768
READ, READ_SECONDS, EMPTY_SECONDS = 10, 30, 0.05
LOST = (psycopg.OperationalError, errors.ConnectionLostError, errors.ConnectionFailedError)
# A job: receives the times in ms at which the messages of a call were sent, and works.
Job = Callable[[list[int]], Awaitable[None]]


def number(name: str, default: int) -> int:
    return int(os.environ.get(name) or default)


class System(Protocol):
    """A queue and its workers."""

    async def send(self, sent_ms: int, quantity: int) -> None:
        """Send that many jobs in one call."""

    @asynccontextmanager
    def working(self, job: Job) -> AsyncIterator[None]:
        """Have the workers at work for a block."""


class WithTasks:
    """Tasks, and a worker that runs them in its event loop."""

    def __init__(self, dsn: str, workers: int, padding: str) -> None:
        self._tasks = Tasks(QUEUE, dsn=dsn)
        self._workers, self._padding = workers, padding
        self._job: Job
        self._running: asyncio.Task[int]

        @self._tasks.task
        async def work(sent_ms: int, padding: str) -> None:
            assert padding is not None
            await self._job([sent_ms])

        self._work = work

    async def send(self, sent_ms: int, quantity: int) -> None:
        """Send tasks; raises what has ended the worker."""
        if self._running.done():
            await self._running
        calls = [self._work.call(sent_ms, self._padding) for _ in range(quantity)]
        await asyncio.to_thread(self._tasks.send_many, calls)

    @asynccontextmanager
    async def working(self, job: Job) -> AsyncIterator[None]:
        """Run a worker."""
        self._job = job
        worker = self._tasks.worker(concurrency=self._workers)
        self._running = asyncio.create_task(worker.work(signals=False))
        try:
            yield
        finally:
            worker.stop()
            await self._running
            await asyncio.to_thread(self._tasks.close)


class WithFunctions:
    """PGMQ's functions: a connection for each worker, each of which reads, works and deletes."""

    def __init__(self, dsn: str, workers: int, padding: str) -> None:
        self._dsn, self._workers, self._padding = dsn, workers, padding
        self._sender: psycopg.AsyncConnection[Any] | None = None

    async def send(self, sent_ms: int, quantity: int) -> None:
        """Send a batch."""
        if self._sender is None or self._sender.closed:
            self._sender = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
        body = json.dumps({"sent_ms": sent_ms, "padding": self._padding})
        send = "select count(*) from pgmq.send_batch(%s, array_fill(%s::jsonb, array[%s::int]))"
        await self._sender.execute(send, [QUEUE, body, quantity])

    @asynccontextmanager
    async def working(self, job: Job) -> AsyncIterator[None]:
        """Run loops of reads."""
        running = [asyncio.create_task(self._work(job)) for _ in range(self._workers)]
        yield
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _work(self, job: Job) -> None:
        while True:
            with suppress(*LOST):
                async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
                    while True:
                        await self._read(connection, job)
            await asyncio.sleep(EMPTY_SECONDS)

    async def _read(self, connection: psycopg.AsyncConnection[Any], job: Job) -> None:
        read = "select msg_id, (message ->> 'sent_ms')::bigint from pgmq.read(%s, %s, %s)"
        rows = await (await connection.execute(read, [QUEUE, READ_SECONDS, READ])).fetchall()
        if not rows:
            await asyncio.sleep(EMPTY_SECONDS)
            return
        await job([sent_ms for _, sent_ms in rows])
        await connection.execute(
            "select pgmq.delete(%s, %s)", [QUEUE, [message_id for message_id, _ in rows]]
        )


class Adapter:
    """The producer, the counts, and the samples of one process."""

    def __init__(self, name: str, dsn: str) -> None:
        self._name, self._dsn = name, dsn
        padding = "x" * max(0, number("JOB_PAYLOAD_BYTES", 256) - 96)
        kind = WithTasks if name == "spanmq" else WithFunctions
        self._system: System = kind(dsn, number("WORKER_COUNT", 32), padding)
        self._work_seconds = number("JOB_WORK_MS", 1) / 1000
        self._every = number("SAMPLE_EVERY_S", 5)
        self._instance = number("BENCH_INSTANCE_ID", 0)
        self._batch, self._pause = number("PRODUCER_BATCH_MAX", 128), number("PRODUCER_BATCH_MS", 25) / 1000
        self._sent = self._done = 0
        self._latencies: dict[str, deque[tuple[float, float]]] = {
            name: deque(maxlen=LATENCIES_MAX) for name in ("producer", "claim", "end_to_end")
        }

    async def run(self) -> None:
        """Work until SIGTERM."""
        ended = asyncio.Event()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(signal_number, ended.set)
        self._describe()
        async with self._system.working(self._job):
            running = [asyncio.create_task(self._produce()), asyncio.create_task(self._sample())]
            waiting = asyncio.create_task(ended.wait())
            await asyncio.wait([*running, waiting], return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                # One that has failed ends the process, and the harness sees that.
                if task.done():
                    task.result()
                task.cancel()

    async def _job(self, sent_ms: list[int]) -> None:
        self._note("claim", sent_ms)
        # As one job after the other.
        await asyncio.sleep(self._work_seconds * len(sent_ms))
        self._note("end_to_end", sent_ms)
        self._done += len(sent_ms)

    def _note(self, name: str, sent_ms: list[int]) -> None:
        now, now_ms = time.monotonic(), time.time() * 1000
        self._latencies[name].extend((now, now_ms - sent_at_ms) for sent_at_ms in sent_ms)

    async def _send(self, quantity: int) -> None:
        began = time.monotonic()
        with suppress(*LOST):
            await self._system.send(int(time.time() * 1000), quantity)
            self._sent += quantity
            now = time.monotonic()
            self._latencies["producer"].append((now, (now - began) * 1000 / quantity))

    async def _produce(self) -> None:
        if os.environ.get("PRODUCER_MODE", "fixed") == "depth-target":
            await self._fill(number("TARGET_DEPTH", 1000))
        elif os.environ.get("PRODUCER_PACING", "harness") == "harness":
            await self._obey()
        else:
            await self._pace()

    async def _obey(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            word, _, quantity = line.decode().partition(" ")
            if word == "ENQUEUE" and int(quantity) > 0:
                await self._send(int(quantity))
        await asyncio.Event().wait()

    async def _pace(self) -> None:
        credit, credited_at = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(self._pause)
            now = time.monotonic()
            credit += self._rate() * (now - credited_at)
            credited_at = now
            if quantity := min(int(credit), self._batch):
                credit -= quantity
                await self._send(quantity)

    async def _fill(self, depth: int) -> None:
        while True:
            missing = depth - await self._depth()
            if missing > 0:
                await self._send(min(missing, self._batch))
            await asyncio.sleep(self._pause if missing <= 0 else 0)

    def _rate(self) -> float:
        control = os.environ.get("PRODUCER_RATE_CONTROL_FILE")
        with suppress(OSError, ValueError):
            if control:
                return float(Path(control).read_text())
        return float(number("PRODUCER_RATE", 800))

    async def _depth(self) -> int:
        with suppress(*LOST):
            async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
                metrics = "select queue_length from pgmq.metrics(%s)"
                [(length,)] = await (await connection.execute(metrics, [QUEUE])).fetchall()
                return int(length)
        return 0

    async def _sample(self) -> None:
        sent, done = self._sent, self._done
        while True:
            await asyncio.sleep(self._every - time.time() % self._every)
            values = {
                "enqueue_rate": (self._sent - sent) / self._every,
                "completion_rate": (self._done - done) / self._every,
            }
            sent, done = self._sent, self._done
            if self._instance == 0:
                values["queue_depth"] = await self._depth()
                values["producer_target_rate"] = self._rate()
            since = time.monotonic() - WINDOW_SECONDS
            for name, latencies in self._latencies.items():
                ordered = sorted(value for at, value in latencies if at >= since) or [0.0]
                for percent in (50, 95, 99):
                    values[f"{name}_p{percent}_ms"] = ordered[round(percent / 100 * (len(ordered) - 1))]
            for metric, value in values.items():
                self._emit(
                    kind="adapter",
                    t=_now(),
                    subject_kind="adapter",
                    subject="",
                    metric=metric,
                    value=value,
                    window_s=WINDOW_SECONDS if metric.endswith("_ms") else self._every,
                )

    def _describe(self) -> None:
        manifest = Path(__file__).parent / f"{self._name}-bench" / "adapter.json"
        known = json.loads(manifest.read_text()) if manifest.exists() else {}
        shared = {name: known.get(name, []) for name in ("event_tables", "extensions")}
        self._emit(
            kind="descriptor",
            version=__version__,
            schema_version=__version__,
            db_name=known.get("db_name", "pgmq_bench"),
            started_at=_now(),
            **shared,
        )

    def _emit(self, **record: Any) -> None:
        print(json.dumps({"system": self._name, "instance_id": self._instance, **record}), flush=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def prepare(name: str, dsn: str) -> None:
    """Install the system and create its queue, unless another process has."""
    if name != "pgmq":
        with Client(dsn) as client:
            client.install()
    with psycopg.connect(dsn) as connection:
        connection.execute("select pg_advisory_xact_lock(1)")
        queues = "select from pgmq.list_queues() where queue_name = %s"
        if connection.execute(queues, [QUEUE]).fetchone() is None:
            connection.execute("select pgmq.create(%s)", [QUEUE])


async def _maintained(name: str, dsn: str) -> None:
    adapter = Adapter(name, dsn)
    if name != "spanmq-pgmq":
        await adapter.run()
        return
    # A worker maintains its queue; who only calls functions has a client that does.
    async with AsyncClient(dsn, maintain_interval=1.0) as client:
        await client.queues.metrics(QUEUE)
        await adapter.run()


if __name__ == "__main__":
    prepare(sys.argv[1], os.environ["DATABASE_URL"])
    asyncio.run(_maintained(sys.argv[1], os.environ["DATABASE_URL"]))
