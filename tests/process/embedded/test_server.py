"""What an embedded server is, and that its folder may lie anywhere."""

import os
import stat
import tempfile
from pathlib import Path

import pytest
from tests.cli.program import ask, do
from tests.process.embedded.processes import IS_ROOT, NOBODY

from spanmq import embedded
from spanmq.embedded.folder import ServerFolder
from spanmq.errors import EmbeddedError


@pytest.mark.parametrize(
    ("setting", "value"),
    [("fsync", "on"), ("full_page_writes", "on"), ("data_checksums", "on"), ("listen_addresses", "")],
)
def test_server_is_durable_and_listens_on_no_port(
    temporary: embedded.TemporaryServer, setting: str, value: str
) -> None:
    assert ask(temporary.dsn, f"show {setting}") == value
    assert ask(temporary.dsn, "show server_version_num").startswith("18")


def test_postgresql_16_comes_from_the_same_wheel() -> None:
    with embedded.temporary(version=16) as server:
        assert ask(server.dsn, "show server_version_num").startswith("16")
        assert server.version == 16


def test_nobody_else_may_enter_data_or_socket(temporary: embedded.TemporaryServer) -> None:
    for name in ("data", "socket"):
        assert stat.S_IMODE((temporary.folder / name).stat().st_mode) == 0o700


def test_dsn_of_another_database_quotes_its_name(temporary: embedded.TemporaryServer) -> None:
    do(temporary.dsn, 'create database "a/b?c d"')
    assert ask(temporary.dsn_for("a/b?c d"), "select current_database()") == "a/b?c d"


def test_settings_are_passed_on() -> None:
    with embedded.temporary(settings={"fsync": "off", "work_mem": "7MB"}) as server:
        assert ask(server.dsn, "show work_mem") == "7MB"
        assert ask(server.dsn, "show fsync") == "off"


def test_environment_of_postgresql_clients_does_not_lead_astray(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPORT": "1", "PGDATA": "/nowhere", "PGHOST": "nowhere", "PGUSER": "noone"}.items():
        monkeypatch.setenv(name, value)
    with embedded.start(folder) as server:
        assert ask(server.dsn, "select current_user") == "postgres"


def test_program_starts_the_server_of_the_folder_that_the_environment_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANMQ_EMBEDDED_FOLDER", str(folder))
    assert embedded.default_folder() == folder
    with embedded.start() as server:
        assert server.folder == folder
        assert (server.binaries / "psql").exists()


def test_temporary_server_leaves_nothing_behind() -> None:
    with embedded.temporary() as server:
        folder = server.folder
        shared_memory = (folder / "data/postmaster.pid").read_text().splitlines()[6].split()[-1]
        server.kill()
    assert not folder.exists()
    if (listing := Path("/proc/sysvipc/shm")).exists():
        assert shared_memory not in [line.split()[1] for line in listing.read_text().splitlines()]


def test_default_folder_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert embedded.default_folder() == tmp_path / "spanmq/postgres-18"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert embedded.default_folder(16) == Path("/home/ada/.local/share/spanmq/postgres-16")


@pytest.mark.parametrize("name", ["with space", "quote\"d'", "50%25", "ünïcode", "com,ma", "#and?and&"])
def test_folder_may_have_any_name(parent: Path, name: str) -> None:
    with embedded.start(parent / name) as server:
        assert ask(server.dsn, "select 1") == 1


def test_long_path_gets_a_short_private_socket_folder(parent: Path) -> None:
    folder = parent / ("long" * 25) / "postgres"
    with embedded.start(folder) as first:
        place = Path(ask(first.dsn, "show unix_socket_directories").strip('"'))
        assert folder not in place.parents
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        with embedded.start(folder) as second:
            assert ask(second.dsn, "select 1") == 1
    assert not place.exists()


def test_short_socket_folder_that_somebody_else_put_there_is_refused(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = parent / ("long" * 25) / "postgres"
    owner = NOBODY if IS_ROOT else os.geteuid()
    trap = Path(tempfile.gettempdir()) / f"{ServerFolder(folder).tag}-{owner}"
    trap.symlink_to(parent)
    try:
        with pytest.raises(EmbeddedError, match="not a folder of the server's user"):
            embedded.start(folder)
    finally:
        trap.unlink()
