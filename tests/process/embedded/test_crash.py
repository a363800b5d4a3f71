"""An embedded server, or whoever starts it, is killed; the next start finds everything committed."""

import os
import signal
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.cli.program import ask
from tests.patience import WAIT_SECONDS
from tests.process.embedded.processes import (
    HOLDER,
    kill_postmaster,
    start_python,
    state,
    wait_until_stopped,
)

from spanmq import embedded
from spanmq.embedded import binaries, supervisor


def test_killed_postmaster_is_recovered_by_the_next_start(folder: Path) -> None:
    with embedded.start(folder) as first, psycopg.connect(first.dsn, autocommit=True) as connection:
        connection.execute("create table kept as select 42 as answer")
        kill_postmaster(folder)
        with embedded.start(folder) as second:
            assert second.dsn == first.dsn
            assert ask(first.dsn, "select answer from kept") == 42
            assert "database system was interrupted" in first.log.read_text()


def test_session_that_computes_on_after_its_postmaster_does_not_block_the_next_start(folder: Path) -> None:
    with embedded.start(folder) as first, closing(psycopg.connect(first.dsn)) as connection:
        # This loop never looks at its postmaster; asked for asynchronously, so that we can go on.
        connection.pgconn.send_query(b"do $$ begin loop end loop; end $$")
        pid = connection.info.backend_pid
        assert supervisor.wait_until(lambda: state(first.dsn, pid) == "active", WAIT_SECONDS)
        kill_postmaster(folder)
        with embedded.start(folder) as second:
            assert ask(second.dsn, "select 1") == 1
        assert supervisor.command_of(pid) == ""


@pytest.mark.parametrize("name", ["data/postmaster.pid", "socket/.s.PGSQL.5432.lock"])
def test_number_of_a_dead_postmaster_may_belong_to_another_process(name: str) -> None:
    with embedded.temporary() as server:
        server.kill()
        file = server.folder / name
        # Of the same user: PostgreSQL takes the hint by itself when it may not signal the process.
        become = binaries.as_user(binaries.server_user(server.folder / "data"))
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, **become) as stranger:
            lines = file.read_text().splitlines()
            file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
            server.restart()
            assert ask(server.dsn, "select 1") == 1


def test_what_killed_first_starts_left_goes_with_the_next(folder: Path) -> None:
    embedded.start(folder).close()
    (folder / "data.new-1/base").mkdir(parents=True)
    embedded.start(folder).close()
    assert not (folder / "data.new-1").exists()


def test_temporary_folder_of_a_killed_start_goes_with_a_later_one(parent: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TMPDIR", str(parent))
    monkeypatch.setattr(tempfile, "tempdir", None)
    never = "import pathlib, signal\npathlib.Path.rename = lambda *_: signal.pause()\n"
    process = start_python(never + "from spanmq import embedded\nwith embedded.temporary(): pass")
    assert supervisor.wait_until(lambda: any(parent.glob("*/data.new-*/global")), WAIT_SECONDS)
    process.kill()
    process.communicate()
    [abandoned] = parent.iterdir()
    lasting = parent / "spanmq-somebody"
    embedded.start(lasting).close()
    with embedded.temporary() as server:
        # It could be of somebody who is just about to start it.
        assert abandoned.exists()
        for each in (abandoned, lasting, server.folder):
            os.utime(each, (0, 0))
        with embedded.temporary():
            assert not abandoned.exists()
        assert ask(server.dsn, "select 1") == 1
    assert list(parent.iterdir()) == [lasting]
    with embedded.start(lasting) as kept:
        assert ask(kept.dsn, "select 1") == 1


def test_interrupted_first_start_leaves_nothing_in_the_way(folder: Path) -> None:
    # However late the interrupt comes, the folder has not got its name by then.
    never = "import pathlib, signal\npathlib.Path.rename = lambda *_: signal.pause()\n"
    process = start_python(never + HOLDER, str(folder))
    assert supervisor.wait_until(lambda: any(folder.glob("data.new-*/global")), WAIT_SECONDS)
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate()[1]
    assert wait_until_stopped(folder)
    assert not (folder / "data").exists()
    with embedded.start(folder) as server:
        assert ask(server.dsn, "select 1") == 1
