"""The simulator as a user runs it, in a folder of its own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli import program
from tests.cli.program import Done, Program, finish


def simulate(*arguments: object, dsn: str | None, folder: Path) -> Done:
    with started(*arguments, dsn=dsn, folder=folder) as process:
        return finish(process)


def report(*arguments: object, dsn: str, folder: Path, code: int = 0) -> dict[str, Any]:
    """Run it with --json, expect this exit code, and read the report."""
    done = simulate("--json", *arguments, dsn=dsn, folder=folder)
    assert done.code == code, done.err + done.out
    [found] = done.records
    return found


def objections(found: dict[str, Any]) -> dict[str, list[str]]:
    return {check["name"]: check["ids"] for check in found["checks"] if not check["passed"]}


@contextmanager
def started(*arguments: object, dsn: str | None, folder: Path) -> Iterator[Program[bytes]]:
    """Start it; whatever happens, it has ended afterwards."""
    words = ["simulate", *map(str, arguments)]
    with program.started(*words, dsn=dsn, cwd=folder, stdin=subprocess.DEVNULL) as process:
        yield process
