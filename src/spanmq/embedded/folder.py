"""The folder of a private server: its content, the rights on it, and its initialization.

start        `flock`ed while a process starts or leaves; also marks the folder as spanmq's
holders      `flock`ed, shared, by each user of the server (supervisor.py)
server       `flock`ed by the server's own processes as long as one of them lives
data/        PostgreSQL's data folder; complete as soon as it has this name
socket/      the unix socket; no other user may enter
announced    the sessions of shells in which a command has named the server
server.log   what the server says; server.log.1 the megabyte before
"""

import contextlib
import errno
import hashlib
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spanmq.embedded.binaries import ELSEWHERE, ServerUser, as_user, make_folders, unusable
from spanmq.embedded.supervisor import command_of, is_of
from spanmq.errors import EmbeddedError

PORT = 5432  # a name only: with a socket folder of its own, no two servers meet
SOCKET_NAME = f".s.PGSQL.{PORT}"
# The shortest `sun_path` among the systems we run on is macOS's 104 bytes, with its closing zero.
SOCKET_PATH_BYTES_MAX = 103
LOG_BYTES_MAX = 1_000_000
DISK_FULL_TEXTS = ("No space left on device", "Disk quota exceeded")

# Written into postgresql.conf when the folder is made, so `alter system` and the owner's own editing win.
DEFAULTS = {
    "max_connections": "100",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    # Rows of state live for a second: the space of the dead ones is free again before the tables have grown.
    "autovacuum_naptime": "10s",
    # Queues are small statements: compiling them costs more than running them.
    "jit": "off",
    "log_checkpoints": "off",
}


@dataclass(frozen=True, slots=True)
class PostmasterFile:
    """The contents of `postmaster.pid`."""

    pid: int
    socket_folder: Path
    is_ready: bool


class ServerFolder:
    """The paths of one server, and what can be read from them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start_lock = path / "start"
        self.holders = path / "holders"
        self.server_lock = path / "server"
        self.data = path / "data"
        self.log = path / "server.log"

    @property
    def tag(self) -> str:
        """The server's cluster_name, by which its processes are known."""
        return f"spanmq-{hashlib.sha256(os.fsencode(self.data.resolve())).hexdigest()[:16]}"

    def postmaster(self) -> PostmasterFile | None:
        """Return what the running, starting or crashed server noted, None if it is not whole."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return PostmasterFile(
                int(lines[0]), Path(lines[4]), len(lines) > 7 and lines[7].strip() == "ready"
            )
        except (OSError, ValueError, IndexError):
            return None

    def is_ready(self) -> bool:
        """Return whether the server accepts connections."""
        postmaster = self.postmaster()
        return postmaster is not None and postmaster.is_ready and is_of(postmaster.pid, self.tag)


@contextlib.contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turn what the system says about a folder into what the reader can do about it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(path, str(error)) from error
        where = error.filename or path
        raise unusable(
            f"the embedded server cannot use the folder {path}: {error.strerror} ({where})"
        ) from error


def disk_full(path: Path, detail: str) -> EmbeddedError:
    """Return the error for a full disk, with the space that is left."""
    free = shutil.disk_usage(path).free // 1_000_000 if path.exists() else 0
    return EmbeddedError(
        f"the disk under {path} is full ({free} MB free; a new server needs about 60 MB): {detail}",
        code="embedded_disk_full",
    )


def prepare(folder: ServerFolder) -> None:
    """Create the folder and its lock files unless they exist. Folders of other users are not touched."""
    is_root = os.geteuid() == 0
    make_folders(folder.path)
    names = {entry.name for entry in folder.path.iterdir()}
    if names and folder.start_lock.name not in names:
        what = "is a PostgreSQL data folder" if "PG_VERSION" in names else "is not empty"
        raise unusable(f"{folder.path} {what} and was not made by spanmq.embedded")
    owner = folder.data.stat().st_uid if folder.data.exists() else os.geteuid()
    for path in (folder.start_lock, folder.holders, folder.server_lock):
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            if is_root:
                os.chown(path, owner, -1)  # the owner may start it without root next time
    if not is_root and owner != os.geteuid():
        name = next((entry.pw_name for entry in pwd.getpwall() if entry.pw_uid == owner), str(owner))
        raise unusable(f"the server in {folder.path} belongs to user {name!r}")


def check_version(folder: ServerFolder, version: int) -> None:
    """Raise an error for another major version's data: PostgreSQL cannot read it, and it is not converted."""
    file = folder.data / "PG_VERSION"
    if file.exists() and (data_version := file.read_text().strip()) != str(version):
        raise EmbeddedError(
            f"{folder.data} has data of PostgreSQL {data_version}, not {version}",
            hint=f"Start it with version={data_version}, choose another with folder=…, or dump it there and restore "
            "it here (docs/start/embedded.md).",
            code="embedded_version",
        )


def check_not_foreign(folder: ServerFolder) -> None:
    """Raise an error if a server that is not spanmq's runs on this folder; delete the files of a crashed one.

    Call this while the server's lock is free, which proves that no process of spanmq's server is left.
    `postmaster.pid` then names a server started by other means, a dead process, or another process with a
    reused id, as is common in containers: PostgreSQL would refuse that one, too.
    """
    postmaster = folder.postmaster()
    if postmaster is None:
        return
    command = command_of(postmaster.pid)
    if is_postmaster_on(folder.data, postmaster.pid, command):
        raise EmbeddedError(
            f"another PostgreSQL server (process {postmaster.pid}) runs on {folder.data}",
            hint=f"Stop that server. {ELSEWHERE}",
            code="embedded_folder_in_use",
        )
    if command:
        (folder.data / "postmaster.pid").unlink()


def check_same_name(folder: ServerFolder) -> None:
    """Refuse a folder that was moved while its server ran: no session can be had there any more."""
    postmaster = folder.postmaster()
    if postmaster is None or not postmaster.is_ready or is_of(postmaster.pid, folder.tag):
        return
    if is_postmaster_on(folder.data, postmaster.pid, command_of(postmaster.pid)):
        raise EmbeddedError(
            f"the server in {folder.path} (process {postmaster.pid}) was started when the folder had another name",
            hint="End the programs that use it, and start again.",
            code="embedded_folder_in_use",
        )


def is_postmaster_on(data: Path, pid: int, command: str) -> bool:
    """Return whether a process is a postmaster on this data folder; True if that is not known."""
    if not re.match(r"(.*/)?postgres( |$)", command):  # a session's title starts with `postgres:`
        return False
    with contextlib.suppress(OSError):  # no /proc, or not our process
        return Path(f"/proc/{pid}/cwd").readlink() == data.resolve()
    where = command.partition(" -D ")[2]
    return not where.startswith("/") or where.startswith(str(data))


def remove_unfinished(folder: ServerFolder) -> None:
    """Remove what first starts left that were killed in the middle."""
    for abandoned in folder.path.glob("data.new-*"):
        shutil.rmtree(abandoned, ignore_errors=True)


def initialise(folder: ServerFolder, binaries: Path, user: ServerUser | None, *, durable: bool) -> None:
    """Create the data folder with `initdb`. If killed, it leaves only files that are ignored."""
    # A new name each time: processes of a killed `initdb` may still use the old one.
    unfinished = Path(tempfile.mkdtemp(prefix="data.new-", dir=folder.path))
    if user is not None:
        os.chown(unfinished, user.uid, user.gid)
    command: list[str | Path] = [binaries / "initdb", "-D", unfinished, "-U", "postgres"]
    command += ["--auth=trust", "--encoding=UTF8", "--no-locale", "--data-checksums"]
    command += [f"--set={name}={value}" for name, value in DEFAULTS.items()]
    if not durable:
        command.append("--no-sync")
    done = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd="/",
        env=environment(),
        umask=0o077,
        **as_user(user),
    )
    if done.returncode != 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise explain(folder, done.stderr)
    unfinished.rename(folder.data)


def explain(folder: ServerFolder, output: str) -> EmbeddedError:
    """Return the error for the output of `initdb` or of the server."""
    tail = "\n".join(output.strip().splitlines()[-10:])
    has_cause = any(word in tail for word in ("FATAL", "PANIC", "error"))
    if not has_cause and shutil.disk_usage(folder.path).free < LOG_BYTES_MAX:
        return disk_full(folder.path, f"the server could not even write its log\n{tail}".strip())
    if any(
        text in line and "shared memory" not in line for line in tail.splitlines() for text in DISK_FULL_TEXTS
    ):
        return disk_full(folder.path, tail)
    return EmbeddedError(f"PostgreSQL did not start in {folder.path}:\n{tail}", code="embedded_start")


def make_private(path: Path, user: ServerUser | None) -> None:
    """Create a folder that only the server's user may enter; accept an existing one with these rights."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
        if user is not None:
            os.chown(path, user.uid, user.gid)
    owner = os.geteuid() if user is None else user.uid
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner:
        raise unusable(f"{path} exists and is not a folder of the server's user", "Remove it.")
    path.chmod(0o700)


def socket_folder(folder: ServerFolder, user: ServerUser | None) -> Path:
    """Make and return the folder of the socket: beside the data, or a short one under the temporary folder.

    The system takes no socket path over about a hundred bytes, and libpq reads a comma as a list of hosts.
    """
    owner = os.geteuid() if user is None else user.uid
    near = folder.path / "socket"
    short = [Path(parent) / f"{folder.tag}-{owner}" for parent in (tempfile.gettempdir(), "/tmp")]
    fitting = next((candidate for candidate in [near, *short] if is_socket_path(candidate)), short[-1])
    make_private(fitting, user)
    for name in (SOCKET_NAME, f"{SOCKET_NAME}.lock"):  # what a crash left; the same trap of reused numbers
        (fitting / name).unlink(missing_ok=True)
    return fitting


def is_socket_path(path: Path) -> bool:
    """Return whether a socket in this folder can be created and named in a DSN."""
    return len(os.fsencode(path / SOCKET_NAME)) <= SOCKET_PATH_BYTES_MAX and "," not in str(path)


def environment() -> dict[str, str]:
    """Return our environment without what would lead PostgreSQL astray; we read its messages in English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C"}
