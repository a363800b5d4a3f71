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
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import psycopg
from lab.bench.database import upstream_sql
from lab.bench.harness.adapter import QUEUE
from lab.bench.server import fresh, private
from lab.bench.workers import packages
from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from spanmq.embedded import TemporaryServer

# The harness's own adapters of other queues.
PEERS = {
    "pgque": "pgque-bench/main.py",
    "procrastinate": "procrastinate-bench/main.py",
    "pgboss": "pgboss-bench/main.js",
}
PROCESSES = 2
SAMPLE_SECONDS = 2
START_SECONDS = 120.0
# After SIGTERM; the harness asks for five.
END_SECONDS = 60.0
# Of a private server: for each worker, and for clients, listeners and readers beside them.
CONNECTIONS_A_WORKER, CONNECTIONS_BESIDE = 2, 60


@dataclass(slots=True)
class Run:
    """The processes of one system, and what they have said."""

    system: str
    dsn: str
    command: list[str]
    environment: dict[str, str]
    # None: it is the user's, and is neither restarted nor killed.
    server: TemporaryServer | None = None
    # What readers count the rows of.
    table: str = f"pgmq.q_{QUEUE}"
    began_at: float = field(default_factory=time.monotonic)
    # Seconds since the beginning, process, metric, value.
    samples: list[tuple[float, int, str, float]] = field(default_factory=list)
    processes: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

    def start(self, instance: int) -> None:
        """Start a process of the adapter."""
        with _signals_later():
            process = self.processes[instance] = subprocess.Popen(
                self.command,
                env={**os.environ, **self.environment, "BENCH_INSTANCE_ID": str(instance)},
                stdout=subprocess.PIPE,
                text=True,
            )
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def start_ended(self) -> int:
        """Start the processes again that have ended by themselves; return how many."""
        ended = [instance for instance, process in self.processes.items() if process.poll() is not None]
        for instance in ended:
            self.start(instance)
        return len(ended)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(ValueError, KeyError):
                sample = json.loads(line)
                place = (time.monotonic() - self.began_at, sample["instance_id"], sample["metric"])
                self.samples.append((*place, float(sample["value"])))

    @contextmanager
    def working(self) -> Iterator[None]:
        """Have the processes at work for a block, and fail if one of them ends by itself."""
        try:
            # One after the other: some install themselves, and two at a time disturb each other.
            for instance in range(PROCESSES):
                self.start(instance)
                self._await(instance)
            self.samples.clear()
            self.began_at = time.monotonic()
            yield
            for process in self.processes.values():
                if process.poll() is not None:
                    raise RuntimeError(f"an adapter of {self.system} ended with {process.returncode}")
        finally:
            with _signals_later():
                self._end()

    def _end(self) -> None:
        """End all processes, in good order if they do within a minute."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _await(self, instance: int) -> None:
        """Wait for a sample of a process."""
        deadline = time.monotonic() + START_SECONDS
        while not any(other == instance for _, other, _, _ in list(self.samples)):
            if time.monotonic() > deadline or self.processes[instance].poll() is not None:
                raise RuntimeError(f"an adapter of {self.system} sends no samples")
            time.sleep(0.1)

    def values(self, metric: str, since: float, until: float) -> list[float]:
        """Return what the processes said of a metric in some seconds."""
        return [value for at, _, name, value in self.samples if name == metric and since <= at < until]


@contextmanager
def ending_in_good_order() -> Iterator[None]:
    """Have SIGTERM end a block as an interrupt does, so that its processes and its server end with it."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Put off SIGTERM and SIGINT until a block ends: a process that was started in it is known then."""
    arrived: list[int] = []
    before = {
        signal_number: signal.signal(signal_number, lambda number, _: arrived.append(number))
        for signal_number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)
        for number in arrived:
            signal.raise_signal(number)


def command_of(system: str, harness: Path | None) -> list[str]:
    """Return the command of an adapter: ours, or one of a clone of the harness."""
    if harness is None or system not in PEERS:
        return [sys.executable, "-m", "lab.bench.harness.adapter", system]
    interpreter, modules = sys.executable, ""
    if system == "pgboss":
        interpreter = str(packages.interpreter_for("pg-boss"))
        modules = str(packages.PACKAGES["pg-boss"].folder / "node_modules")
    return ["env", f"NODE_PATH={modules}", interpreter, str(harness / PEERS[system])]


def _url(dsn: str) -> str:
    """Return a DSN as an URL, which the drivers of all languages read."""
    parts = conninfo_to_dict(dsn)
    database = quote(str(parts.pop("dbname")))
    return f"postgresql:///{database}?{urlencode(parts)}"


@contextmanager
def started(
    system: str, rate: int, workers: int, dsn: str | None, harness: Path | None = None
) -> Iterator[Run]:
    """Have the processes of a system at work in a database of its own, on this server or a private one.

    `harness` is a clone of the harness, of which the adapters of peers are run.
    """
    with ExitStack() as stack:
        server = None
        if dsn is None:
            connections = CONNECTIONS_A_WORKER * workers + CONNECTIONS_BESIDE
            server = stack.enter_context(private(max_connections=str(connections)))
            dsn = server.dsn
        dsn = stack.enter_context(fresh(dsn))
        if system == "pgmq":
            with psycopg.connect(dsn) as connection:
                connection.execute(upstream_sql().encode())
        environment = {
            "SCENARIO": "long_horizon",
            "DATABASE_URL": _url(dsn),
            "PRODUCER_PACING": "adapter",
            "PRODUCER_RATE": str(rate // PROCESSES),
            "WORKER_COUNT": str(workers // PROCESSES),
            "SAMPLE_EVERY_S": str(SAMPLE_SECONDS),
        }
        run = Run(system, dsn, command_of(system, harness), environment, server)
        if harness is not None and system in PEERS:
            manifest = (harness / PEERS[system]).with_name("adapter.json")
            run.table = json.loads(manifest.read_text())["event_tables"][0]
        stack.enter_context(run.working())
        yield run
