"""Servers of which an older state takes the place: a cold copy, a recovery to a point in time, a standby.

Each is a server of its own, under one address before and after, which is killed with its folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psycopg
from tests.cli.program import do
from tests.patience import wait_until

from spanmq.embedded.binaries import FOLDERS, as_user, find_binaries, reachable_binaries, server_user

PORT: Final = 5432
DEBIAN: Final = "/usr/lib/postgresql/{}/bin"
SETTINGS: Final = (
    "fsync=off autovacuum=off wal_level=logical archive_mode=on max_wal_senders=4 max_connections=100"
)
Past = Callable[[], None]


class Servers:
    """The server at `dsn`, and the folders of its data and of copies."""

    def __init__(self, folder: Path, version: int = 18) -> None:
        self.folder = folder
        self.user = server_user(folder / "data")
        self.programs = self.programs_of(version)
        # The position in the log to which `back_up` goes back.
        self.restore_point = 0
        self.dsn = f"postgresql://postgres@/postgres?host={folder}&port={PORT}"

    def programs_of(self, version: int) -> Path:
        """Return the folder of PostgreSQL's programs of a major version: the wheel's, or Debian's."""
        programs = find_binaries(version) if version in FOLDERS else Path(DEBIAN.format(version))
        return programs if self.user is None else reachable_binaries(programs, self.user)

    def run(self, program: str, *arguments: str | Path) -> None:
        """Run one of PostgreSQL's programs."""
        command = [self.programs / program, *arguments]
        with (self.folder / "programs.log").open("a") as log:
            done = subprocess.run(
                command, cwd=self.folder, stdout=log, stderr=log, check=False, **as_user(self.user)
            )
        assert done.returncode == 0, (self.folder / "programs.log").read_text()[-2000:]

    def create(self, name: str, *options: str) -> None:
        """Initialize the data of a server."""
        general = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale")
        self.run("initdb", "-D", name, *general, *options)

    def upgrade(self, version: int) -> None:
        """Stop the server, have pg_upgrade make a newer one of it, and start that."""
        self.stop()
        older, self.programs = self.programs, self.programs_of(version)
        # As the older one has it.
        self.create("copy", *(["--no-data-checksums"] if version >= 18 else []))
        self.run("pg_upgrade", "-b", older, "-B", self.programs, "-d", "data", "-D", "copy", "-U", "postgres")
        self.replace()

    def start(self, name: str = "data", port: int = PORT) -> None:
        """Start a server on a folder, and wait until it takes connections."""
        archive = f"archive_command='cp %p {self.folder}/wal/%f'"
        settings = [f"-c {each}" for each in (*SETTINGS.split(), "listen_addresses=''", archive)]
        options = f"-k {self.folder} -p {port} {' '.join(settings)}"
        log = self.folder / f"{name}.log"
        self.run("pg_ctl", "-D", self.folder / name, "-w", "-l", log, "-o", options, "start")

    def stop(self, name: str = "data", mode: str = "fast") -> None:
        """Stop it."""
        self.run("pg_ctl", "-D", self.folder / name, "-w", "-m", mode, "stop")

    def replace(self) -> None:
        """Start on the copy, in place of the server that was stopped."""
        shutil.rmtree(self.folder / "data")
        (self.folder / "copy").rename(self.folder / "data")
        self.start()
        self.until(self.dsn, "select not pg_is_in_recovery()")

    def until(self, dsn: str, condition: str) -> None:
        """Wait for a condition."""
        with psycopg.connect(dsn, autocommit=True) as connection:
            wait_until(lambda: connection.execute(condition.encode()).fetchone() == (True,))

    def copy_cold(self) -> Past:
        """Stop the server and copy its data; return what puts the copy in its place."""
        self.stop()
        shutil.copytree(self.folder / "data", self.folder / "copy", copy_function=_copied)
        _own(self.folder / "copy", self.folder / "data")
        self.start()

        def went_back() -> None:
            self.stop(mode="immediate")
            self.replace()

        return went_back

    def back_up(self) -> Past:
        """Take a base backup and name the time after it; return what recovers to that time."""
        self._copy()
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            point = "select (pg_create_restore_point('before') - '0/0')::bigint"
            [(self.restore_point,)] = connection.execute(point).fetchall()

        def went_back() -> None:
            # In good order, so that all that was written is in the archive.
            self.stop()
            (self.folder / "copy/recovery.signal").touch()
            with (self.folder / "copy/postgresql.auto.conf").open("a") as settings:
                settings.write(f"restore_command = 'cp {self.folder}/wal/%f %p'\n")
                settings.write("recovery_target_name = 'before'\nrecovery_target_action = 'promote'\n")
            _own(self.folder / "copy", self.folder / "data")
            self.replace()

        return went_back

    def add_standby(self) -> str:
        """Start an asynchronous standby that has all that was written; return its DSN."""
        self._copy("-R")
        self.start("copy", PORT + 1)
        standby = self.dsn.replace(f"port={PORT}", f"port={PORT + 1}")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            row = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        self.until(standby, f"select pg_last_wal_replay_lsn() >= '{row[0]}'")
        return standby

    def dump_into(self, name: str, port: int = PORT + 1) -> tuple[str, int, int]:
        """Dump the server into a new one; return that one's DSN, and two times between which the snapshot was taken."""
        place = f"--host={self.folder}", "--username=postgres"
        since = time.monotonic_ns()
        self.run("pg_dump", *place, f"--port={PORT}", "--file=dump.sql", "postgres")
        until = time.monotonic_ns()
        self.create(name)
        self.start(name, port)
        self.run(
            "psql",
            *place,
            f"--port={port}",
            "--quiet",
            "--set=ON_ERROR_STOP=1",
            "--file=dump.sql",
            "postgres",
        )
        return self.dsn.replace(f"port={PORT}", f"port={port}"), since, until

    def be_synchronous(self) -> None:
        """Have commits wait for the standby from now on."""
        do(self.dsn, "alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")
        self.until(self.dsn, "select sync_state = 'sync' from pg_stat_replication")

    def promote(self, dsn: str) -> None:
        """Promote a standby, and wait until it is writable."""
        do(dsn, "select pg_promote()")
        self.until(dsn, "select not pg_is_in_recovery()")

    def replicate(self) -> Past:
        """Start an asynchronous standby, which then hears no more; return what promotes it."""
        self.add_standby()
        self.stop("copy")

        def went_back() -> None:
            self.stop(mode="immediate")
            shutil.rmtree(self.folder / "data")
            (self.folder / "copy").rename(self.folder / "data")
            self.start()
            self.promote(self.dsn)

        return went_back

    def _copy(self, *options: str) -> None:
        place = f"--host={self.folder}", f"--port={PORT}", "--username=postgres"
        self.run("pg_basebackup", *place, "-D", "copy", "-c", "fast", *options)


def is_installed(version: int) -> bool:
    """Return whether PostgreSQL of a major version is here."""
    return version in FOLDERS or Path(DEBIAN.format(version)).exists()


@contextmanager
def serving(version: int = 18) -> Iterator[Servers]:
    """Run a server for a block."""
    folder = Path(tempfile.mkdtemp(prefix="spanmq-back-"))
    servers = Servers(folder, version)
    (folder / "wal").mkdir()
    if servers.user is not None:
        for path in (folder, folder / "wal"):
            os.chown(path, servers.user.uid, servers.user.gid)
    try:
        servers.create("data")
        servers.start()
        yield servers
    finally:
        for name in ("data", "copy"):
            if (folder / name / "postmaster.pid").exists():
                with suppress(AssertionError):
                    servers.stop(name, "immediate")
        shutil.rmtree(folder, ignore_errors=True)


def _copied(source: str, target: str) -> str:
    return str(shutil.copy2(source, target))


def _own(folder: Path, like: Path) -> None:
    """Make files those of the server's user."""
    status = like.stat()
    folder.chmod(0o700)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, status.st_uid, status.st_gid)
