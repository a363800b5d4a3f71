"""The processes of one system on a server of its own, and what they say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import psycopg

from bench.database import upstream_sql
from bench.server import fresh, serving

PROCESSES = 2
SAMPLE_SECONDS = 2
START_SECONDS = 120.0


@dataclass(slots=True)
class Run:
    """The processes of one system, and what they have said."""

    system: str
    dsn: str
    environment: dict[str, str]
    began_at: float = field(default_factory=time.monotonic)
    # Seconds since the beginning, process, metric, value.
    samples: list[tuple[float, int, str, float]] = field(default_factory=list)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, instance: int) -> subprocess.Popen[str]:
        """Start a process of the adapter."""
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.harness.adapter", self.system],
            env={**os.environ, **self.environment, "BENCH_INSTANCE_ID": str(instance)},
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(ValueError, KeyError):
                sample = json.loads(line)
                place = (time.monotonic() - self.began_at, sample["instance_id"], sample["metric"])
                self.samples.append((*place, float(sample["value"])))

    @contextmanager
    def working(self) -> Iterator[None]:
        """Have the processes at work for a block, and fail if one of them has ended by itself."""
        self.processes = [self.start(instance) for instance in range(PROCESSES)]
        try:
            yield
            for process in self.processes:
                if process.poll() is not None:
                    raise RuntimeError(f"an adapter of {self.system} ended with {process.returncode}")
        finally:
            for process in self.processes:
                process.send_signal(signal.SIGTERM)
            for process in self.processes:
                process.wait(60)

    def begin(self) -> None:
        """Wait for a sample of each process; the time counts from then on."""
        deadline = time.monotonic() + START_SECONDS
        while len({instance for _, instance, _, _ in list(self.samples)}) < PROCESSES:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the adapters of {self.system} send no samples")
            time.sleep(0.1)
        self.samples.clear()
        self.began_at = time.monotonic()

    def values(self, metric: str, since: float, until: float) -> list[float]:
        """Return what the processes said of a metric in some seconds."""
        return [value for at, _, name, value in self.samples if name == metric and since <= at < until]


@contextmanager
def started(system: str, rate: int, workers: int, dsn: str | None) -> Iterator[Run]:
    """Have the processes of a system at work in a database of its own, on this server or a private one."""
    with ExitStack() as stack:
        dsn = stack.enter_context(fresh(stack.enter_context(serving(dsn))))
        if system == "pgmq":
            with psycopg.connect(dsn) as connection:
                connection.execute(upstream_sql().encode())
        environment = {
            "DATABASE_URL": dsn,
            "PRODUCER_PACING": "adapter",
            "PRODUCER_RATE": str(rate // PROCESSES),
            "WORKER_COUNT": str(workers // PROCESSES),
            "SAMPLE_EVERY_S": str(SAMPLE_SECONDS),
        }
        run = Run(system, dsn, environment)
        stack.enter_context(run.working())
        run.begin()
        yield run
