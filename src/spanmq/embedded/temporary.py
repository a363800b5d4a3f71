"""A server that lives as long as a test or a bench, and that may be crashed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from spanmq.embedded import supervisor
from spanmq.embedded.binaries import find_binaries
from spanmq.embedded.folder import ServerFolder, clear_errors
from spanmq.embedded.server import EmbeddedServer, join, run, start_lock
from spanmq.errors import EmbeddedError

# What `mkdtemp` makes of it has eight characters more.
PREFIX = "spanmq-"
# Contained in the file `start` of a folder that may be deleted: a folder with a similar name may hold other
# data.
MARK = "temporary"
# After this time no process is about to use a new folder.
ABANDONED_SECONDS = 600.0


class TemporaryServer:
    """A temporary server, with what an EmbeddedServer has, and methods to crash and restart it."""

    __slots__ = ("_folder", "_settings", "_timeout", "binaries", "dsn", "dsn_for", "folder", "log", "version")

    def __init__(
        self, folder: ServerFolder, hold: EmbeddedServer, settings: Mapping[str, str], timeout: float
    ) -> None:
        self.version = hold.version
        self.binaries = find_binaries(hold.version)
        self.dsn, self.dsn_for = hold.dsn, hold.dsn_for
        self.folder, self.log = hold.folder, hold.log
        self._folder = folder
        self._settings = dict(settings)
        self._timeout = timeout

    @property
    def is_running(self) -> bool:
        """Return whether the server accepts connections."""
        return self._folder.is_ready()

    def postmaster_id(self) -> int | None:
        """Return the process id of the postmaster, None if it is not alive."""
        return supervisor.postmaster_of(self._folder.data, self._folder.tag)

    def kill(self) -> None:
        """Kill all processes of the server with SIGKILL, as a crash would, and return when they are gone.

        Raises EmbeddedError if one survives.
        """
        if not supervisor.kill(server_lock=self._folder.server_lock, tag=self._folder.tag):
            raise EmbeddedError(f"the server in {self.folder} survived SIGKILL", code="embedded_start")

    def restart(self) -> None:
        """Start the server again, after a `kill()` with recovery, and return when it takes connections.

        A running server is stopped first, in good order. Raises EmbeddedError if it does not start.
        """
        with clear_errors(self.folder), start_lock(self._folder, self._timeout):
            supervisor.stop(
                data=self._folder.data, server_lock=self._folder.server_lock, tag=self._folder.tag
            )
            run(self._folder, self.binaries, settings=self._settings, timeout=self._timeout, keep_data=False)


def remove_abandoned(parent: Path) -> None:
    """Remove folders of ours whose users were killed before the server ran, or together with its supervisor."""
    for path in parent.glob(f"{PREFIX}????????"):
        folder = ServerFolder(path)
        with contextlib.suppress(OSError):  # not ours, or gone this instant
            status = path.lstat()
            age = time.time() - status.st_mtime
            if (
                status.st_uid != os.geteuid()
                or age < ABANDONED_SECONDS
                or folder.start_lock.read_text() != MARK
            ):
                continue
            fd = supervisor.open_lock(folder.holders)
            try:
                if supervisor.try_lock(fd, fcntl.LOCK_EX) and not supervisor.is_locked(folder.server_lock):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                supervisor.close_lock(fd)


@contextlib.contextmanager
def temporary(
    *,
    version: int = 18,
    settings: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    parent: str | Path | None = None,
) -> Iterator[TemporaryServer]:
    """Run a server of our own in a temporary folder, and remove both at the end, even if we are killed.

    `version` is PostgreSQL's major one, 16 or 18. It is as durable as any (fsync on) unless `settings`, PostgreSQL's
    own, say otherwise. `timeout` is in seconds, for each start. `parent` is where the folder is made, by default the
    system's place for temporary files. Raises what `start` raises.
    """
    with clear_errors(Path(parent or os.environ.get("TMPDIR", "/tmp"))):
        place = Path(parent or tempfile.gettempdir())
        remove_abandoned(place)
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        folder = ServerFolder(path.resolve())
        folder.start_lock.write_text(MARK)
    path.chmod(0o755)  # the server's user must pass; data and socket are closed
    # A child that is forked in the block may leave it, too: what is its parent's stays.
    process_id = os.getpid()
    try:
        hold = join(folder, version=version, settings=settings or {}, timeout=timeout, keep_data=False)
        server = TemporaryServer(folder, hold, settings or {}, timeout)
        try:
            yield server
        finally:
            # Only a start takes back the shared memory that a crash left behind.
            with contextlib.suppress(EmbeddedError):
                if os.getpid() == process_id and not server.is_running:
                    server.restart()
            hold.close()
    finally:
        if os.getpid() == process_id:
            shutil.rmtree(path, ignore_errors=True)
