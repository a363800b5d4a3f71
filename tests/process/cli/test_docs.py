"""The sessions on the page about the program print what it shows."""

import os
import re
import shlex
from pathlib import Path

from tests.cli.program import PROGRAM, environment
from tests.documented import check_sessions

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def test_the_session_on_the_page_goes_as_printed(database: str, tmp_path: Path) -> None:
    program = tmp_path / "spanmq"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    more = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    check_sessions(
        "reference/cli", environment(database, more), tmp_path, lambda text: TIME.sub("a time", text)
    )
