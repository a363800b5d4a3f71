"""The program as a user runs it: in a process of its own, in a pipe or on a terminal.

In pipes it is forked from a Python that has imported it already. Who has to see it start from nothing runs
PROGRAM: on the terminal, as the documentation shows it, without a package, with closed streams.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from tests.cli.forked import Forked
from tests.patience import WAIT_SECONDS

PROGRAM = [sys.executable, "-m", "spanmq.cli"]
# Makes its stderr the terminal of its session, so that Ctrl-C is a key there, and becomes another program.
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(2, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """Read what --json printed."""
        return [json.loads(line) for line in self.out.splitlines()]


def environment(dsn: str | None, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give a user's environment, without what the tests were called with; wide, so that nothing wraps."""
    # Unbuffered, Python's stdout forgets what a pipe does not take at once.
    others = ("PG", "SPANMQ_", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    named = {} if dsn is None else {"SPANMQ_DSN": dsn}
    return {**kept, "COLUMNS": "300", "TERM": "dumb", **named, **(more or {})}


def spanmq(
    *arguments: str | bytes | int,
    dsn: str | None,
    stdin: str | bytes = "",
    more: Mapping[str, str] | None = None,
) -> Done:
    """Run it to its end, in pipes."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    process = Forked(
        [each if isinstance(each, bytes) else str(each) for each in arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(dsn, more),
    )
    try:
        return finish(process, given)
    finally:
        process.kill()


def records(*arguments: str | bytes | int, dsn: str, stdin: str | bytes = "") -> list[dict[str, Any]]:
    """Run it with --json, expect success, and read what it prints."""
    done = spanmq(*arguments, "--json", dsn=dsn, stdin=stdin)
    assert (done.code, done.err) == (0, "")
    return done.records


@contextmanager
def started(*arguments: str | int, dsn: str | None) -> Iterator[subprocess.Popen[bytes]]:
    """Start it, with pipes to all three streams; whatever happens, it is gone afterwards."""
    process = Forked(
        [*map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(dsn),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[bytes], stdin: bytes | None = None) -> Done:
    """Wait for its end."""
    out, err = process.communicate(stdin, timeout=WAIT_SECONDS)
    return Done(process.returncode, out.decode(), err.decode())


def on_terminal(*arguments: str | int, dsn: str, typed: str = "", stdin: bytes | None = None) -> Done:
    """Run it on a terminal, type something at the first question; `out` is all that it shows but colours.

    With `stdin`, this is a pipe, and only the rest is the terminal.
    """
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, *PROGRAM, *map(str, arguments)],
        stdin=slave if stdin is None else subprocess.PIPE,
        stdout=slave,
        stderr=slave,
        env=environment(dsn, {"TERM": "xterm", "NO_COLOR": "1"}),
        start_new_session=True,
    )
    os.close(slave)
    try:
        if stdin is not None and process.stdin is not None:
            process.stdin.write(stdin)
            process.stdin.close()
        shown = b""
        # On Linux the end of a terminal's other side is an error, not an end.
        with suppress(OSError):
            while select.select([master], [], [], WAIT_SECONDS)[0] and (piece := os.read(master, 1 << 16)):
                shown += piece
                if typed and b"[y/N]" in shown:
                    os.write(master, typed.encode())
                    typed = ""
        code = process.wait(WAIT_SECONDS)
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return Done(code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()), "")


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    """Return when it is so; an AssertionError if it does not become so, or the process ends before."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not become so in time"
        assert process is None or process.poll() is None, finish(process)
        time.sleep(POLL_SECONDS)


def ask(dsn: str, statement: str) -> Any:
    """Give the first value of a statement's first row."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
    return None if row is None else row[0]


def do(dsn: str, *statements: str) -> None:
    """Execute statements."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
