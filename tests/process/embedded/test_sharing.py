"""Several users of one embedded server: they join, leave, and are killed."""

import json
import os
import signal
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.cli.program import ask
from tests.patience import WAIT_SECONDS
from tests.process.embedded.processes import (
    HOLDER,
    Holder,
    all_processes,
    is_stopped,
    start_python,
)

from spanmq import __version__, embedded
from spanmq.embedded import supervisor
from spanmq.embedded.folder import ServerFolder


def test_client_without_arguments_installs_the_schema_in_the_embedded_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "from spanmq import Client; print(Client().admin.version())"
    monkeypatch.delenv("SPANMQ_DSN", raising=False)
    monkeypatch.setenv("SPANMQ_EMBEDDED_FOLDER", str(folder))
    process = start_python(program)
    assert process.communicate(timeout=WAIT_SECONDS)[0].strip() == __version__
    assert is_stopped(folder)


def test_closing_twice_lets_go_once(folder: Path) -> None:
    with embedded.start(folder) as first, embedded.start(folder) as second:
        second.close()
        second.close()
        assert ask(first.dsn, "select 1") == 1


def test_eight_that_start_together_make_one_server(folder: Path) -> None:
    started = [start_python(HOLDER, str(folder)) for _ in range(8)]
    said = [json.loads(process.stdout.readline()) for process in started]
    assert len({each["postmaster"] for each in said}) == 1
    assert [process.communicate("\n")[1] for process in started] == [""] * 8
    assert is_stopped(folder)


def test_killed_user_does_not_take_the_server_from_others(folder: Path) -> None:
    with embedded.start(folder) as server:
        Holder(folder).kill()
        assert ask(server.dsn, "select 1") == 1
    assert is_stopped(folder)


def test_killed_users_temporary_server_goes_with_its_folder() -> None:
    program = "import sys; from spanmq import embedded\nwith embedded.temporary() as server:\n"
    process = start_python(program + "    print(server.folder, flush=True); sys.stdin.readline()")
    folder = Path(process.stdout.readline().strip())
    assert (folder / "data").exists()
    process.kill()
    process.communicate()
    assert supervisor.wait_until(lambda: not folder.exists(), WAIT_SECONDS)


def test_killed_user_of_a_long_path_leaves_no_folder_of_the_socket(parent: Path) -> None:
    folder = parent / ("long" * 25)
    holder = Holder(folder)
    socket = str(conninfo_to_dict(holder.dsn)["host"])
    assert not Path(socket).is_relative_to(parent)
    holder.kill()
    assert supervisor.wait_until(lambda: not Path(socket).exists(), WAIT_SECONDS)


def test_last_user_stops_the_server_without_its_supervisor(folder: Path) -> None:
    with embedded.start(folder):
        place = ServerFolder(folder)
        mine = [pid for pid in all_processes() if "supervisor.py" in supervisor.command_of(pid)]
        [supervisor_id] = [pid for pid in mine if place.tag in supervisor.command_of(pid)]
        os.kill(supervisor_id, signal.SIGKILL)
    assert is_stopped(folder)
