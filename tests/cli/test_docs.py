"""The pages about the program say what it does."""

import re
from pathlib import Path

import pytest
from tests.cli.test_commands import COMMANDS

from spanmq.cli import failure
from spanmq.cli.app import NOUNS, VERBS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/cli.md").read_text("utf-8")


@pytest.mark.parametrize("code", [failure.OK, failure.FAILED, failure.USAGE, failure.INTERRUPTED])
def test_every_exit_code_is_documented(code: int) -> None:
    assert f"\n| {code} | " in PAGE


def test_every_command_that_is_named_exists() -> None:
    """Check commands in pages, and in the hints of Python, SQL and templates."""
    folders = [ROOT / "src", *ROOT.glob("*/src")]
    sources = [
        path for each in folders for path in each.rglob("*") if path.suffix in (".py", ".sql", ".html")
    ]
    wrong = []
    for path in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *sources):
        for words in re.findall(
            r"(?:`|<code>|^    |^\$ |\| |with: )spanmq ([a-z][a-z -]*)", path.read_text("utf-8"), re.MULTILINE
        ):
            first, *more = words.split()
            if first not in (*VERBS, *NOUNS) or (
                more and first in NOUNS and f"{first} {more[0]}" not in COMMANDS
            ):
                wrong.append(f"{path}: spanmq {words}")
    assert wrong == []


@pytest.mark.parametrize(("command", "page"), [("demo", "start/demo"), ("simulate", "guides/simulate")])
def test_page_names_every_option(command: str, page: str) -> None:
    text = (ROOT / f"docs/{page}.md").read_text("utf-8")
    assert [each.name for each in COMMANDS[command].params if not any(opt in text for opt in each.opts)] == []
