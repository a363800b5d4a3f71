"""Root and its unprivileged users, and what each may see."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.cli.program import ask
from tests.process.embedded.processes import (
    NOBODY,
    Holder,
    is_stopped,
    needs_root,
    python_for_everybody,
    start_python,
)

from spanmq import embedded
from spanmq.embedded import binaries
from spanmq.embedded.folder import environment
from spanmq.errors import EmbeddedError


@needs_root
def test_root_starts_the_server_as_nobody_without_roots_groups(folder: Path) -> None:
    holder = Holder(folder, groups=[4])
    status = Path(f"/proc/{holder.postmaster}/status").read_text()
    assert f"Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}\n" in status
    assert re.search(r"^Groups:\s*$", status, re.MULTILINE)
    holder.leave()


@needs_root
def test_unprivileged_user_shares_with_root_but_not_with_others(parent: Path) -> None:
    python = python_for_everybody()
    ada, bob = 4001, 4002  # nobody needs to be in the list of users to connect, only to make a server
    home = parent / "home"
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    holder = Holder(home / "postgres", python=python, user=NOBODY)
    with embedded.start(home / "postgres") as server:
        assert server.dsn == holder.dsn
        assert ask(server.dsn, "select 1") == 1
        for stranger in (ada, bob):
            code = "import sys, psycopg; psycopg.connect(sys.argv[1])"
            _, errors = start_python(code, server.dsn, python=python, user=stranger).communicate()
            assert "Permission denied" in errors
    assert ask(holder.dsn, "select 1") == 1
    holder.leave()
    assert is_stopped(home / "postgres")


def refusal_to_nobody(folder: Path) -> str:
    program = "import sys; from spanmq import embedded; embedded.start(sys.argv[1])"
    python = python_for_everybody()
    _, errors = start_python(program, str(folder), python=python, user=NOBODY).communicate()
    assert "EmbeddedError" in errors
    return errors


@needs_root
def test_server_of_another_user_is_refused(parent: Path) -> None:
    embedded.start(parent / "postgres").close()  # root's, so nobody's
    for path in (parent / "postgres", parent / "postgres/data"):
        os.chown(path, 4001, 4001)
    for name in ("start", "holders", "server"):
        (parent / "postgres" / name).chmod(0o666)
    errors = refusal_to_nobody(parent / "postgres")
    assert "belongs to user '4001'" in errors


@needs_root
def test_folder_without_rights_is_named(parent: Path) -> None:
    errors = refusal_to_nobody(parent / "postgres")
    assert "Permission denied" in errors


@needs_root
def test_folder_that_the_servers_user_cannot_enter_is_named(parent: Path) -> None:
    (parent / "closed").mkdir(mode=0o700)
    with pytest.raises(EmbeddedError, match=r"cannot enter .*/closed on the way"):
        embedded.start(parent / "closed/postgres")


@needs_root
def test_programs_that_the_servers_user_cannot_reach_are_copied(parent: Path) -> None:
    closed = parent / "closed"
    module = embedded.find_binaries().parents[1]
    for tree in (module, *binaries.library_folders(module)):
        shutil.copytree(tree, closed / tree.name, ignore=shutil.ignore_patterns("pginstall", "*.a"))
    closed.chmod(0o700)
    programs = closed / module.name / "pginstall18/bin"
    user = binaries.server_user(parent / "data")
    assert user is not None
    copied = binaries.reachable_binaries(programs, user, parent / "programs")
    assert copied.is_relative_to(parent / "programs")
    made = subprocess.run(
        [copied / "initdb", "-D", parent / "programs/data", "--no-sync"],
        **binaries.as_user(user),
        check=False,
        env=environment(),
        cwd="/",
        capture_output=True,
        text=True,
    )
    # It gets as far as it should: what it lacks is the right to write there.
    assert "could not create directory" in made.stderr
    assert binaries.reachable_binaries(programs, user, parent / "programs") == copied
