"""Join, start and leave a private server.

The order of the locks, for everyone: `start`, then `holders`. A newcomer waits for `holders` while the supervisor
or the last to leave holds it exclusively, that is while the server stops; it then starts the server anew.
"""

import atexit
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from spanmq.embedded import supervisor
from spanmq.embedded.binaries import (
    SYSTEM_FOLDER,
    check_reachable,
    find_binaries,
    reachable_binaries,
    server_user,
    unavailable,
    unusable,
)
from spanmq.embedded.folder import (
    LOG_BYTES_MAX,
    PORT,
    ServerFolder,
    check_not_foreign,
    check_same_name,
    check_version,
    clear_errors,
    environment,
    explain,
    initialise,
    prepare,
    remove_unfinished,
    socket_folder,
)
from spanmq.errors import EmbeddedError

# Sessions notice the death of their postmaster at once unless they compute; those are not waited for.
ORPHAN_SECONDS = 2.0
# How long `close` waits for a process that starts or leaves; after that the server is left to it.
LEAVE_SECONDS = 10.0


class EmbeddedServer:
    """One user's hold on a private server.

    `dsn` is the address of the database `postgres`, as its superuser `postgres`, for psycopg and every other
    driver; `folder` where the server's files are; `log` the file into which it writes its messages.

    The server runs until the last hold on it is closed, in whatever process. A hold closes with its `with`
    block, at `close()`, at the end of the process, and when the process is killed. It belongs to the process
    that made it: after a fork the child needs its own.
    """

    __slots__ = (
        "_closed",
        "_closing",
        "_folder",
        "_holders_fd",
        "_keep_data",
        "_process_id",
        "_socket",
        "dsn",
        "folder",
        "log",
        "version",
    )

    def __init__(self, folder: ServerFolder, holders_fd: int, *, version: int, keep_data: bool) -> None:
        self.version = version
        self._folder = folder
        self._holders_fd = holders_fd
        self._keep_data = keep_data
        postmaster = folder.postmaster()
        self._socket = postmaster.socket_folder if postmaster else folder.path / "socket"
        self.dsn = self.dsn_for("postgres")
        self.folder, self.log = folder.path, folder.log
        self._closed = False
        self._closing = threading.Lock()
        self._process_id = os.getpid()
        atexit.register(self.close)

    @property
    def binaries(self) -> Path:
        """The folder of PostgreSQL's programs: psql, pg_dump, pgbench."""
        return find_binaries(self.version)

    def dsn_for(self, database: str) -> str:
        """Return the address of another `database` of this server, by its name; it need not exist."""
        # Contains every setting that an environment variable could change.
        host = quote(str(self._socket), safe="")
        return f"postgresql://postgres@/{quote(database, safe='')}?host={host}&port={PORT}"

    def close(self) -> None:
        """Release the server; if no other process holds it, stop it and return when it has stopped."""
        if os.getpid() != self._process_id:  # before the lock: another thread may have had it at the fork
            return
        with self._closing:
            if self._closed:
                return
            self._closed = True
            atexit.unregister(self.close)
            leave(self._folder, self._holders_fd, self._socket, keep_data=self._keep_data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def default_folder(version: int = 18) -> Path:
    """Return where a server of a major `version` lives if no folder is passed: what SPANMQ_EMBEDDED_FOLDER names, if
    anything.

    For root that is a system folder: its home is closed to the user that PostgreSQL then runs as. Raises EmbeddedError
    for a user without a home.
    """
    if named := os.environ.get("SPANMQ_EMBEDDED_FOLDER"):
        return Path(named)
    if os.geteuid() == 0:
        return SYSTEM_FOLDER / f"postgres-{version}"
    try:
        home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    except RuntimeError as error:  # a container's user that is in no list of users
        raise unusable("the user has no home folder for the server") from error
    return Path(home, "spanmq", f"postgres-{version}")


def join(
    folder: ServerFolder, *, version: int, settings: Mapping[str, str], timeout: float, keep_data: bool = True
) -> EmbeddedServer:
    """Hold the server of a folder; create and start it if necessary."""
    binaries = find_binaries(version)
    with clear_errors(folder.path):
        prepare(folder)
        check_version(folder, version)
        holders_fd = supervisor.open_lock(folder.holders)
        try:
            with start_lock(folder, timeout):
                if not supervisor.wait_until(lambda: supervisor.try_lock(holders_fd, fcntl.LOCK_SH), timeout):
                    raise EmbeddedError(
                        f"the server in {folder.path} does not end its shutdown: see {folder.log}",
                        code="embedded_start",
                    )
                check_version(folder, version)  # again: another may have made the data just now
                run(folder, binaries, settings=settings, timeout=timeout, keep_data=keep_data)
        except BaseException:
            supervisor.close_lock(holders_fd)  # the supervisor stops a server without holders
            raise
    return EmbeddedServer(folder, holders_fd, version=version, keep_data=keep_data)


def leave(folder: ServerFolder, holders_fd: int, socket: Path, *, keep_data: bool) -> None:
    """Drop a hold, and stop the server if it was the last."""
    with contextlib.ExitStack() as stack:
        # In sequence, so that of two processes that leave together the second knows that it is the last.
        with contextlib.suppress(EmbeddedError, OSError):
            stack.enter_context(start_lock(folder, LEAVE_SECONDS))
        # Said aloud: a forked child may still have this file open, and must not hold the server for us.
        fcntl.flock(holders_fd, fcntl.LOCK_UN)
        if supervisor.try_lock(holders_fd, fcntl.LOCK_EX):
            supervisor.stop_unheld(
                holders_fd,
                holders=folder.holders,
                data=folder.data,
                server_lock=folder.server_lock,
                tag=folder.tag,
                keep_data=keep_data,
            )
        else:
            # Either others are left (then this is ours at once) or the supervisor was faster and is at it.
            supervisor.wait_until(
                lambda: supervisor.try_lock(holders_fd, fcntl.LOCK_SH), supervisor.FAST_STOP_SECONDS
            )
        if folder.path not in socket.parents and not supervisor.is_locked(folder.server_lock):
            with contextlib.suppress(OSError):
                socket.rmdir()
        supervisor.close_lock(holders_fd)


@contextlib.contextmanager
def start_lock(folder: ServerFolder, timeout: float) -> Iterator[None]:
    """Exclude other processes that start or leave."""
    fd = supervisor.open_lock(folder.start_lock)
    try:
        if not supervisor.wait_until(lambda: supervisor.try_lock(fd, fcntl.LOCK_EX), timeout):
            raise EmbeddedError(
                f"another process has been starting the server in {folder.path} for {timeout:g} s",
                hint=f"See {folder.log}",
                code="embedded_start",
            )
        yield
    finally:
        supervisor.close_lock(fd)


def run(
    folder: ServerFolder,
    binaries: Path,
    *,
    settings: Mapping[str, str],
    timeout: float,
    keep_data: bool = True,
) -> None:
    """See to it that the server runs. The caller holds `start` and a share of `holders`."""
    if await_decision(folder, timeout):
        return
    user = server_user(folder.data)
    if user is not None:
        check_reachable(user, folder.path)
        binaries = reachable_binaries(binaries, user)
    check_not_foreign(folder)
    # Each time: what a killed `initdb` started may still have written when the start after it looked.
    remove_unfinished(folder)
    if not folder.data.exists():
        initialise(folder, binaries, user, durable=keep_data)
    socket = socket_folder(folder, user)
    command = [
        str(binaries / "postgres"),
        "-D",
        str(folder.data),
        f"--port={PORT}",
        f"--unix_socket_directories={quote_path(socket)}",
        "--unix_socket_permissions=0700",
        "--listen_addresses=",
        f"--cluster_name={folder.tag}",
        *(f"--{name}={value}" for name, value in settings.items()),
    ]
    server_lock_fd = supervisor.open_lock(folder.server_lock)
    try:
        if not supervisor.wait_until(
            lambda: supervisor.try_lock(server_lock_fd, fcntl.LOCK_EX), ORPHAN_SECONDS
        ):
            raise EmbeddedError(
                f"the server in {folder.path} is being started by another process; try again",
                code="embedded_start",
            )
        spec = supervisor.Spec(
            command=command,
            user=user.uid if user else None,
            group=user.gid if user else None,
            server_lock=str(folder.server_lock),
            server_lock_fd=server_lock_fd,
            holders=str(folder.holders),
            data=str(folder.data),
            tag=folder.tag,
            remove=None if keep_data else str(folder.path),
            socket=None if folder.path in socket.parents else str(socket),
        )
        said_before = start_supervisor(folder, spec)
    finally:
        supervisor.close_lock(server_lock_fd)
    if not supervisor.wait_until(
        lambda: folder.is_ready() or not supervisor.is_locked(folder.server_lock), timeout
    ):
        raise EmbeddedError(
            f"the server in {folder.path} was not ready after {timeout:g} s",
            hint=f"Recovery from a crash may take longer: see {folder.log}, and raise timeout=…",
            code="embedded_start",
        )
    if not folder.is_ready():
        raise explain(folder, folder.log.read_bytes()[said_before:].decode(errors="replace"))


def await_decision(folder: ServerFolder, timeout: float) -> bool:
    """Wait while the server is neither ready (True) nor gone (False).

    Between the two it starts, stops, or has crashed and left sessions that still run.
    """

    def is_decided() -> bool:
        return folder.is_ready() or not supervisor.is_locked(folder.server_lock)

    deadline = time.monotonic() + timeout
    while not supervisor.wait_until(is_decided, ORPHAN_SECONDS):
        check_same_name(folder)
        has_orphans = supervisor.postmaster_of(folder.data, folder.tag) is None and supervisor.processes_of(
            folder.tag
        )
        if has_orphans:
            supervisor.kill(server_lock=folder.server_lock, tag=folder.tag)
        elif time.monotonic() >= deadline:
            raise EmbeddedError(
                f"the server in {folder.path} starts or stops for {timeout:g} s: see {folder.log}",
                code="embedded_start",
            )
    return supervisor.is_locked(folder.server_lock)


def start_supervisor(folder: ServerFolder, spec: supervisor.Spec) -> int:
    """Start the supervisor, which starts the server; return how long the log was before."""
    if not sys.executable:
        raise unavailable(
            "the embedded server needs a Python interpreter to run, and sys.executable is empty"
        )
    if folder.log.exists() and folder.log.stat().st_size > LOG_BYTES_MAX:
        folder.log.replace(folder.log.with_suffix(".log.1"))
    log_fd = os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        said_before = os.fstat(log_fd).st_size
        subprocess.run(
            [sys.executable, "-I", "-S", supervisor.__file__, json.dumps(asdict(spec))],
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            pass_fds=[spec.server_lock_fd],
            env=environment(),
            cwd="/",
            check=True,
        )
    finally:
        os.close(log_fd)
    return said_before


def quote_path(path: Path) -> str:
    """Write a path as an item of a PostgreSQL list."""
    doubled = str(path).replace('"', '""')
    return f'"{doubled}"'
