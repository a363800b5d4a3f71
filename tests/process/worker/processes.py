"""Workers in processes of their own: one that kills itself, and one that handles what is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.cli.program import child, wait_until
from tests.histories import EVERYTHING, checked, verbs
from tests.patience import WAIT_SECONDS

from spanmq import Client

PROGRAM = Path(__file__).with_name("program.py")
LEASE_SECONDS = 0.5


@contextmanager
def history(dsn: str, folder: Path) -> Iterator[tuple[object, ...]]:
    """Record the calls of this process, and of workers with the options that this yields; check them at the end."""
    with checked(dsn, folder):
        yield "--history", folder
    assert verbs(folder) >= EVERYTHING


def process(
    dsn: str, log: Path, *options: object, packages: Path | None = None
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run `program.py`, with the spanmq of this folder if one is named; whatever happens, it has ended afterwards."""
    root = Path(__file__).parents[3]
    command = [sys.executable, str(PROGRAM), dsn, str(log), *map(str, options)]
    environ = {**os.environ, "PYTHONPATH": str(root if packages is None else packages)}
    return child(command, cwd=root, env=environ)


def end_well(worker: subprocess.Popen[bytes]) -> None:
    """Ask a worker to end, and see that it does in good order."""
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(WAIT_SECONDS) == 0


def die(worker: subprocess.Popen[bytes]) -> None:
    """Wait until a worker has killed itself."""
    assert worker.wait(WAIT_SECONDS) == -signal.SIGKILL


def kill_at(seam: str, count: int, dsn: str, log: Path, *options: object) -> None:
    """Have a worker work until it kills itself at the n-th event of a seam."""
    with process(dsn, log, "--lease", LEASE_SECONDS, "--seam", seam, "--count", count, *options) as worker:
        die(worker)


def work_off(client: Client, dsn: str, log: Path, *options: object) -> None:
    """Have a worker handle what is left."""
    with process(dsn, log, "--lease", LEASE_SECONDS, *options) as worker:
        wait_until(lambda: not client.queues.metrics("orders").length, worker)
        end_well(worker)
