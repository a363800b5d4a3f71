"""The process between a private PostgreSQL and its users: it stops the server when the last of them is gone.

A user of the server holds a shared `flock` on the file `holders`; the kernel drops it however the user ends.
The supervisor waits for the exclusive one, which it gets when no user is left, so it never has to look around.
A process that leaves normally stops the server itself (`server.py`): the supervisor is for processes that were
killed.

Standard library only: this file also runs as a script, in a bare interpreter (`python -I -S supervisor.py SPEC`).
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# The pause of every poll here and in `server.py`. A server starts in about 0.1 s and stops in about as much.
POLL_SECONDS = 0.01
# A fast shutdown writes a checkpoint: cutting it short on a slow disk means a recovery at the next start.
FAST_STOP_SECONDS = 60.0
IMMEDIATE_STOP_SECONDS = 5.0
KILL_SECONDS = 10.0
# Where Linux shows processes; elsewhere we ask `ps`.
PROC = Path("/proc")
HAS_PROC = Path("/proc/self/cmdline").exists()
# Files that this process has open for their locks: see `open_lock`.
_open_locks: set[int] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The supervisor's settings, as JSON in its only argument."""

    command: list[str]
    user: int | None
    group: int | None
    server_lock: str
    server_lock_fd: int
    holders: str
    data: str
    tag: str
    remove: str | None  # a temporary server's folder, which goes with the server
    socket: str | None  # a folder of the socket that does not lie beside the data, and goes too


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until `condition` holds, for up to `seconds`; return whether it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def open_lock(path: str | Path) -> int:
    """Open a file for its lock; `close_lock` closes it.

    A child that any thread forks meanwhile shares the lock, and would hold it as long as it lives: so the
    child closes it at once.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    _open_locks.add(fd)
    return fd


def close_lock(fd: int) -> None:
    """Close a file that `open_lock` opened."""
    _open_locks.discard(fd)
    os.close(fd)


def _forget_locks() -> None:
    for fd in _open_locks:
        with contextlib.suppress(OSError):
            os.close(fd)
    _open_locks.clear()


os.register_at_fork(after_in_child=_forget_locks)


def try_lock(fd: int, operation: int) -> bool:
    """Take a `flock` (LOCK_SH or LOCK_EX) if it is free; return whether it was."""
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def is_locked(path: str | Path) -> bool:
    """Return whether another open file holds the `flock` of `path` exclusively.

    For the file `server` this determines whether the server runs: only its processes inherit the lock, so it
    is free when the last of them has ended. A process id in a file does not prove that.
    """
    try:
        fd = open_lock(path)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(fd, fcntl.LOCK_SH)
    finally:
        close_lock(fd)


def has_its_name(fd: int, path: str | Path) -> bool:
    """Return whether an open file is still the one at `path`: its folder was neither moved nor deleted."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))  # noqa: PTH116, as Path has no fstat
    except (FileNotFoundError, NotADirectoryError):
        return False


def command_of(pid: int) -> str:
    """Return the command line of a process, empty if it has ended (even if it has not been reaped)."""
    if HAS_PROC:
        with contextlib.suppress(OSError):
            return Path(PROC, str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return ""
    listing = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False
    )
    return listing.stdout.decode(errors="replace")


def processes_of(tag: str) -> list[int]:
    """Return the processes of the server with this `tag`: its cluster_name, which their titles bear."""
    if HAS_PROC:
        pids = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if is_of(pid, tag)]
    listing = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,command="], capture_output=True, check=True)
    lines = [line.split(None, 1) for line in listing.stdout.decode(errors="replace").splitlines()]
    return [int(fields[0]) for fields in lines if is_title(fields[-1], tag)]


def is_of(pid: int, tag: str) -> bool:
    """Return whether a process is alive and belongs to the server with this `tag`."""
    return is_title(command_of(pid), tag)


def is_title(command: str, tag: str) -> bool:
    """Return whether this is the command line of a postmaster or a session (a supervisor's has the tag, too)."""
    # The program's own path may hold spaces. In a supervisor's JSON a quotation mark follows it.
    return tag in command and re.match(r"(.*/)?postgres(:? )", command) is not None


def postmaster_of(data: str | Path, tag: str) -> int | None:
    """Return the process id of the postmaster of a data folder, if it is alive and has this `tag`."""
    try:
        pid = int(Path(data, "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None
    return pid if is_of(pid, tag) else None


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def stop(*, data: str | Path, server_lock: str | Path, tag: str, keep_data: bool = True) -> bool:
    """Stop a server and return whether it has ended: fast shutdown first, then immediate, then SIGKILL.

    A server whose data is not kept (`keep_data` False) skips the last checkpoint.
    """

    def is_gone() -> bool:
        return not is_locked(server_lock)

    polite = [(signal.SIGINT, FAST_STOP_SECONDS)] if keep_data else []
    for number, seconds in [*polite, (signal.SIGQUIT, IMMEDIATE_STOP_SECONDS)]:
        postmaster = postmaster_of(data, tag)
        if postmaster is None:
            break
        send(postmaster, number)
        if wait_until(is_gone, seconds):
            return True
    return is_gone() or kill(server_lock=server_lock, tag=tag)


def stop_unheld(
    holders_fd: int,
    *,
    holders: str | Path,
    data: str | Path,
    server_lock: str | Path,
    tag: str,
    keep_data: bool,
) -> None:
    """Stop the server if no process holds it, even if its folder was moved or deleted while it ran."""
    is_here = has_its_name(holders_fd, holders)
    if is_here or not Path(holders).exists():  # otherwise the folder now belongs to another server
        stop(data=data, server_lock=server_lock, tag=tag, keep_data=keep_data)
    if not is_here:
        stop_stray(data=data, tag=tag)


def stop_stray(*, data: str | Path, tag: str) -> bool:
    """Stop a server whose folder was moved or deleted while it ran, and return whether it is gone.

    Its files can't be asked for it, and a checkpoint can't be written: the next start recovers, if there is
    one. Another server may run by now where it was, and bear the same tag; only that one works in the folder
    of this name. Of its socket, which is where the first had its own, a polite end would rob it.
    """

    def strays() -> list[int]:
        return [pid for pid in processes_of(tag) if not works_in(pid, data)]

    polite = [] if Path(data).exists() else [(signal.SIGQUIT, IMMEDIATE_STOP_SECONDS)]
    for number, seconds in [*polite, (signal.SIGKILL, KILL_SECONDS)]:
        for pid in strays():
            # The postmaster ends its sessions, and releases shared memory.
            if number == signal.SIGKILL or re.match(r"(.*/)?postgres -D ", command_of(pid)):
                send(pid, number)
        if wait_until(lambda: not strays(), seconds):
            return True
    return False


def works_in(pid: int, data: str | Path) -> bool:
    """Return whether a process has this as its current folder; False if that is not known."""
    with contextlib.suppress(OSError):
        return Path(PROC, str(pid), "cwd").readlink() == Path(data).resolve()
    return False


def kill(*, server_lock: str | Path, tag: str) -> bool:
    """Kill every process of a server, as a power cut would; return whether they are gone."""

    def is_gone() -> bool:
        # Each round again: the postmaster may have forked between our look and its own end.
        for pid in processes_of(tag):
            send(pid, signal.SIGKILL)
        return not is_locked(server_lock)

    return wait_until(is_gone, KILL_SECONDS)


def main(argument: str) -> None:
    """Start the server, then wait until it ends or until no process holds it."""
    spec = Spec(**json.loads(argument))
    if os.fork():
        os._exit(0)  # the parent reaps this half at once, and is left without a zombie
    os.setsid()
    os.chdir("/")
    postmaster = subprocess.Popen(
        spec.command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C at a terminal is for its users, not for the server
        pass_fds=[spec.server_lock_fd],
        user=spec.user,
        group=spec.group,
        extra_groups=None if spec.user is None else [],
    )
    os.close(spec.server_lock_fd)  # from here on only the server's own processes hold it
    is_last = threading.Event()

    def follow() -> None:
        postmaster.wait()
        if not is_last.is_set():
            os._exit(0)  # crashed, killed, or stopped by a user: the supervisor is done

    threading.Thread(target=follow, daemon=True).start()
    holders = os.open(spec.holders, os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(holders, fcntl.LOCK_EX)
    is_last.set()
    # A newcomer waits for our exclusive lock meanwhile, and then starts the server anew.
    stop_unheld(
        holders,
        holders=spec.holders,
        data=spec.data,
        server_lock=spec.server_lock,
        tag=spec.tag,
        keep_data=spec.remove is None,
    )
    if spec.socket is not None:
        with contextlib.suppress(OSError):
            Path(spec.socket).rmdir()
    if spec.remove is not None:
        shutil.rmtree(spec.remove, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
