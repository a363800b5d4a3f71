"""The sessions on the page about the program print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from tests.cli.program import PROGRAM, environment
from tests.cli.test_docs import sessions

ROOT = Path(__file__).resolve().parents[3]


TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


PAGE = (ROOT / "docs/reference/cli.md").read_text("utf-8")


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
