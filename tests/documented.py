"""Programs and sessions that stand on pages of the documentation."""

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from tests.patience import WAIT_SECONDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = (*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md")))
# A block in a list is indented.
BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        """Return where it is."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page."""
    text = page.read_text("utf-8")
    for match in BLOCK.finditer(text):
        yield Block(page, text.count("\n", 0, match.start()) + 1, match[2], dedent(match[3]))


def prose(page: Path) -> str:
    """Return a page without its blocks."""
    return BLOCK.sub("", page.read_text("utf-8"))


def programs(page: str, language: str = "python") -> list[str]:
    """Return the blocks of a page in a language; it is named as within docs, without its suffix."""
    text = (DOCS / f"{page}.md").read_text("utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run_programs(
    page: str, scope: dict[str, Any] | None = None, change: Callable[[str], str] = str
) -> dict[str, Any]:
    """Run the programs of a page one after the other, and return their names with values."""
    names = {} if scope is None else scope
    for number, program in enumerate(programs(page)):
        exec(compile(change(program), f"docs/{page}.md, program {number}", "exec", dont_inherit=True), names)
    return names


def check_sessions(
    page: str, environment: dict[str, str], folder: Path, same: Callable[[str], str] = str
) -> None:
    """See that the commands of a page print what stands under them; … stands for anything."""
    sessions = [
        session
        for block in programs(page, "console")
        for session in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]
    assert len(sessions) > 4
    for command, printed in sessions:
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment,
            timeout=WAIT_SECONDS,
            check=False,
        )
        pattern = ".*".join(map(re.escape, same(printed).strip().split("…")))
        assert re.fullmatch(pattern, same(done.stdout).strip()), f"{command}\n{done.stdout}"
