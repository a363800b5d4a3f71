"""The pages about the program say what it does."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from tests.cli.program import PROGRAM, environment

from spanmq.cli import failure
from spanmq.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
PAGE = (ROOT / "docs/cli.md").read_text("utf-8")


def sessions(page: str) -> list[tuple[str, str]]:
    """Give the commands of the console blocks, each with what it prints."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    return [
        (command, printed)
        for block in blocks
        for command, printed in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]


def test_the_session_on_the_page_goes_as_printed(database: str, tmp_path: Path) -> None:
    program = tmp_path / "spanmq"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    found = sessions(PAGE)
    assert len(found) > 8
    for command, printed in found:
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(database, {"PATH": path}),
            text=True,
            check=False,
        )
        # … stands for anything.
        pattern = ".*".join(map(re.escape, TIME.sub("a time", printed).split("…")))
        assert re.fullmatch(pattern, TIME.sub("a time", done.stdout)), f"{command}\n{done.stdout}"


def test_reference_is_fresh() -> None:
    subprocess.run([sys.executable, ROOT / "tools/generate_cli_reference.py", "--check"], check=True)


@pytest.mark.parametrize("code", [failure.OK, failure.FAILED, failure.USAGE, failure.INTERRUPTED])
def test_every_exit_code_is_documented(code: int) -> None:
    assert f"\n| {code} | " in PAGE


def test_demo_page_names_every_option() -> None:
    page = (ROOT / "docs/demo.md").read_text("utf-8")
    command = dict(getattr(typer.main.get_command(app), "commands"))["demo"]  # noqa: B009
    assert [opt for each in command.params for opt in each.opts if opt not in page] == []


def test_simulator_page_names_every_option() -> None:
    page = (ROOT / "docs/simulate.md").read_text("utf-8")
    command = dict(getattr(typer.main.get_command(app), "commands"))["simulate"]  # noqa: B009
    assert [each.name for each in command.params if not any(opt in page for opt in each.opts)] == []
