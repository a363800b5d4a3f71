"""One run of one contestant: its process is started, and the clocks are read at each of its marks."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from lab.bench import bodies
from lab.bench.processor import seconds_of, server_of
from lab.bench.server import fresh
from lab.bench.workers import packages
from lab.bench.workers.targets import Times
from psycopg.conninfo import conninfo_to_dict

TIMEOUT_SECONDS: Final = 1_800.0
PROGRAMS: Final[Mapping[str, str]] = {
    "spanmq": "spanmq:handlers",
    "spanmq-threads": "spanmq:handlers_in_threads",
    "spanmq-tasks": "spanmq:tasks",
    "spanmq-tasks-threads": "spanmq:tasks_in_threads",
    "graphile-worker": "graphile_worker.mjs",
    "pg-boss": "pg_boss.mjs",
    "awa": "awa:Awa",
    "oban": "oban:Oban",
    "pgqueuer": "pgqueuer:PGQueuer",
    "procrastinate": "procrastinate:Procrastinate",
}
# A job takes it milliseconds.
JOBS_MAX: Final[Mapping[str, int]] = {"procrastinate": 3_000}


@dataclass(frozen=True, slots=True)
class Clocks:
    """The time, and the processor time of the client and of the server, in seconds."""

    at: float
    client: float
    server: float

    def __sub__(self, other: Clocks) -> Clocks:
        return Clocks(self.at - other.at, self.client - other.client, self.server - other.server)


def run(name: str, dsn: str, count: int, latencies: int) -> Times:
    """Run a contestant in a new database; raise UnavailableError where it cannot be installed."""
    interpreter = packages.interpreter_for(name)
    program = PROGRAMS[name]
    start = (
        [str(Path(__file__).parent / "contestants" / program), str(packages.PACKAGES[name].folder)]
        if program.endswith(".mjs")
        else ["-m", "lab.bench.workers.contestant", program]
    )
    count = min(count, JOBS_MAX.get(name, count))
    with fresh(dsn) as address, tempfile.TemporaryDirectory() as folder:
        texts = Path(folder, "bodies.json")
        texts.write_text(json.dumps(list(bodies.generate())))
        command = [str(interpreter), *start, _uri(address), str(count), str(latencies), str(texts)]
        server = server_of(address)
        marks, latencies_ms = _marks(name, command, server, Path(folder, "errors.txt"))
    # A phase lasts from the end of one mark to the start of the next.
    send = marks["sent"][0] - marks["sending"][1]
    handle = marks["handled"][0] - marks["began"][1]
    settle = marks["settled"][0] - marks["handled"][1]
    return Times(
        send_ms=send.at * 1000 / count,
        send_processor_ms=send.client * 1000 / count,
        send_server_ms=send.server * 1000 / count,
        work_ms=handle.at * 1000 / count,
        work_processor_ms=(handle.client + settle.client) * 1000 / count,
        work_server_ms=(handle.server + settle.server) * 1000 / count,
        latencies_ms=latencies_ms,
    )


def _marks(
    name: str, command: Sequence[str], server: int | None, errors: Path
) -> tuple[dict[str, tuple[Clocks, Clocks]], list[float]]:
    """Run a command; return the clocks at the start and the end of each mark, and the latencies."""
    marks: dict[str, tuple[Clocks, Clocks]] = {}
    latencies_ms: list[float] = []
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=packages.ROOT,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(TIMEOUT_SECONDS, process.kill)
        timer.start()
        try:
            for line in process.stdout:
                word, _, rest = line.strip().partition(" ")
                if word == "@latencies":
                    latencies_ms = json.loads(rest)
                elif word.startswith("@"):
                    start = _clocks(process.pid, server)
                    marks[word[1:]] = start, replace(start, at=time.perf_counter())
                    process.stdin.write("\n")
                    process.stdin.flush()
            process.wait()
        finally:
            timer.cancel()
            process.kill()
    if process.returncode or not latencies_ms:
        raise SystemExit(f"{name} failed after {list(marks)}: {errors.read_text().strip()[-2000:]}")
    return marks, latencies_ms


def _clocks(client: int, server: int | None) -> Clocks:
    """Read the clocks; the processor time of a server on another machine is 0."""
    return Clocks(time.perf_counter(), seconds_of(client), 0.0 if server is None else seconds_of(server))


def _uri(dsn: str) -> str:
    """Return the address in the one form that all contestants' drivers read."""
    parts = {key: quote(str(value), safe="") for key, value in conninfo_to_dict(dsn).items()}
    user, password, database = parts.pop("user"), parts.pop("password", ""), parts.pop("dbname")
    options = "&".join(f"{key}={value}" for key, value in parts.items())
    return f"postgresql://{user}{':' if password else ''}{password}@/{database}?{options}"
