"""What the tests of the embedded server do with processes: hold a server, kill one, be somebody else."""

import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.cli.program import Program, ask
from tests.patience import WAIT_SECONDS, wait_until

import spanmq
from spanmq import embedded
from spanmq.embedded import binaries, supervisor
from spanmq.embedded.folder import ServerFolder, environment

IS_ROOT = os.geteuid() == 0
NOBODY = pwd.getpwnam("nobody").pw_uid
needs_root = pytest.mark.skipif(not IS_ROOT, reason="becomes other users, so it must be root")

# A process that holds a server: it says where the server is, and leaves when it is told to, or at any line.
HOLDER = """
import json, sys
from spanmq import embedded
from spanmq.embedded.supervisor import postmaster_of
from spanmq.embedded.folder import ServerFolder
from pathlib import Path
server = embedded.start(sys.argv[1])
folder = ServerFolder(Path(sys.argv[1]))
print(json.dumps({"dsn": server.dsn, "postmaster": postmaster_of(folder.data, folder.tag)}), flush=True)
sys.stdin.readline()
"""


_started: list[Program[str]] = []


class Holder:
    """A process of its own that holds the server of a folder."""

    def __init__(
        self,
        folder: Path,
        *,
        python: str = sys.executable,
        user: int | None = None,
        groups: list[int] | None = None,
    ) -> None:
        self.process = start_python(HOLDER, str(folder), python=python, user=user, groups=groups)
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        said = json.loads(line)
        self.dsn: str = said["dsn"]
        self.postmaster: int = said["postmaster"]

    def leave(self) -> None:
        self.process.communicate("\n")
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def start_python(
    program: str,
    *arguments: str,
    python: str = sys.executable,
    user: int | None = None,
    groups: list[int] | None = None,
) -> Program[str]:
    become: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    if groups is not None:
        become["extra_groups"] = groups
    places = [Path(module.__file__ or "").parents[1] for module in (spanmq, psycopg)]
    process: Program[str] = Program(
        [python, "-c", program, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(str(place) for place in places)},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **become,
    )
    _started.append(process)
    return process


def end_all() -> None:
    """End what a test that failed has left running, and close all pipes."""
    while _started:
        process = _started.pop()
        process.kill()
        with suppress(ValueError):  # it was closed by the test
            process.communicate()


def is_stopped(folder: Path) -> bool:
    return not supervisor.is_locked(folder / "server")


def wait_until_stopped(folder: Path) -> bool:
    return supervisor.wait_until(lambda: is_stopped(folder), WAIT_SECONDS)


@contextmanager
def parent_folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="embedded-")).resolve()
    path.chmod(0o755)
    try:
        yield path
    finally:
        for lock in (found for found in path.glob("**/server") if found.is_file()):
            place = ServerFolder(lock.parent)
            supervisor.kill(server_lock=place.server_lock, tag=place.tag)
        delete(path)


def delete(folder: Path) -> None:
    """Delete it as `rm -rf` does, while a server or its supervisor may delete files of its own."""

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    wait_until(is_gone)


def fill(path: Path) -> None:
    """Take all the room that is left, to the last page."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(path).free == 0


def kill_postmaster(folder: Path) -> None:
    place = ServerFolder(folder)
    postmaster = supervisor.postmaster_of(place.data, place.tag)
    assert postmaster is not None
    os.kill(postmaster, signal.SIGKILL)
    assert supervisor.wait_until(lambda: supervisor.command_of(postmaster) == "", WAIT_SECONDS)


def all_processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def state(dsn: str, pid: int) -> Any:
    return ask(dsn, f"select state from pg_stat_activity where pid = {pid}")


@contextmanager
def open_lock(path: Path) -> Iterator[None]:
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def foreign_server(folder: Path) -> Iterator[None]:
    """Run PostgreSQL on a folder's data by other means than ours."""
    user, programs = binaries.server_user(folder / "data"), embedded.find_binaries()
    if user is not None:
        programs = binaries.reachable_binaries(programs, user)
    process = subprocess.Popen(
        [programs / "postgres", "-D", "data", "-k", folder / "socket", "-h", "", "-p", "7"],
        cwd=folder,
        env=environment(),
        stderr=subprocess.DEVNULL,
        **binaries.as_user(user),
    )
    try:
        pid_file = folder / "data/postmaster.pid"
        assert supervisor.wait_until(
            lambda: pid_file.exists() and "ready" in pid_file.read_text(), WAIT_SECONDS
        )
        yield
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait()


def python_for_everybody() -> str:
    """Find a Python of our version that other users may run, skip if there is none.

    Root's own Python and packages may lie in its closed home.
    """
    user = binaries.ServerUser(NOBODY, NOBODY, "nobody")
    if not binaries.can_reach(user, Path(spanmq.__file__).parent):
        pytest.skip("this checkout is closed to other users")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"):
        if Path(candidate).exists() and binaries.can_reach(user, Path(candidate), execute=True):
            return candidate
    pytest.skip("no Python here that other users may run")
