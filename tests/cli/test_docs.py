"""The pages about the program say what it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from spanmq.cli import failure
from spanmq.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/cli.md").read_text("utf-8")


def sessions(page: str) -> list[tuple[str, str]]:
    """Give the commands of the console blocks, each with what it prints."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    return [
        (command, printed)
        for block in blocks
        for command, printed in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]


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
