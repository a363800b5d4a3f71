"""A reader who follows a page from an empty folder: makes its files, types its commands, compares what they print."""

import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from threading import Timer

from tests.cli.program import PROGRAM, Program, environment
from tests.patience import WAIT_SECONDS

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^```(console|python|sh|sql)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?")
# The first command writes this line; pages leave it out.
SERVER_LINE = re.compile(r"spanmq: using the embedded server in .*\n")


def follow(page: Path, folder: Path, more: Mapping[str, str] | None = None) -> int:
    """Do what a page says, in its order, and return how many commands that were.

    A block of Python is the file that its first line names. A block of text is what the last command of the block
    of sh before it prints. `^C` ends a command that has printed the lines before.
    """
    programs = folder / "bin"
    programs.mkdir()
    for name, words in (("spanmq", PROGRAM), ("python", [sys.executable])):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (programs / name).chmod(0o755)
    sources = ":".join(str(each) for each in (ROOT / "src", *ROOT.glob("*/src")))
    env = environment(None, {"PYTHONPATH": sources, **(more or {})})
    env["PATH"] = f"{programs}:{env['PATH']}"
    count = 0
    for language, text, printed_last in BLOCK.findall(page.read_text("utf-8")):
        if language == "python":
            heading = re.match(r"# (\S+\.py)\n", text)
            assert heading, text
            (folder / heading[1]).write_text(text)
        elif language == "sql":
            _run("spanmq psql --quiet --set ON_ERROR_STOP=1", "…", folder, env, stdin=text)
        else:
            session = (
                text if language == "console" else re.sub("^", "$ ", text.strip("\n"), flags=re.MULTILINE)
            )
            for command, printed in COMMAND.findall(f"{session.strip()}\n{printed_last}"):
                count += 1
                if command.startswith(("pip ", "make ")):
                    check_installation(command)
                else:
                    # The default port may be in use.
                    _run(
                        command.replace("spanmq serve", "spanmq serve --port 0"),
                        printed.replace(":8080", "…"),
                        folder,
                        env,
                    )
    return count


def check_installation(command: str) -> None:
    """Check that the target of make, or what pip installs of a checkout, exist: a test installs nothing."""
    if command.startswith("make "):
        assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text("utf-8"), command
        return
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = re.search(r"\[(.*)\]", command)
    assert named, command
    assert set(named[1].split(",")) <= extras.keys()
    for folder in re.findall(r"\./(\w+)", command):
        assert (ROOT / folder / "pyproject.toml").exists(), command


def _run(command: str, printed: str, folder: Path, env: Mapping[str, str], *, stdin: str = "") -> None:
    expected, interrupt, _ = printed.partition("^C")
    with Program(
        # Not bash itself, which would keep the signal.
        ["bash", "-c", f"exec {command}" if interrupt else f"set -o pipefail; {command}"],
        cwd=folder,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        process.stdin.write(stdin)
        process.stdin.close()
        timer = Timer(WAIT_SECONDS, process.kill)
        timer.start()
        shown = ""
        for line in process.stdout:
            shown += line
            if interrupt and _fits(expected, shown):
                process.send_signal(signal.SIGINT)
                break
        rest = process.stdout.read()
        process.wait()
        timer.cancel()
    code = 130 if interrupt else 0
    assert process.returncode == code, f"{command}\n{shown}{rest}"
    assert _fits(expected, shown), f"{command}\n{shown}{rest}"


def _fits(expected: str, shown: str) -> bool:
    """Compare: … stands for anything with the line ends beside it, a time for any time, and nothing expected
    for whatever it is."""
    plain = [TIME.sub("a time", text).strip() for text in (expected, SERVER_LINE.sub("", shown))]
    pattern = ".*".join(re.escape(piece.strip()) for piece in plain[0].split("…"))
    return not plain[0] or re.fullmatch(pattern, plain[1], re.DOTALL) is not None
