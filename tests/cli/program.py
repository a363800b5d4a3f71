"""The program as a user runs it: in this process, in one of its own, or on a terminal."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any, AnyStr

import psycopg
import pytest
from tests.patience import WAIT_SECONDS
from tests.patience import wait_until as wait_until  # noqa: PLC0414, tests of programs take it from here

from spanmq.cli import main

PROGRAM = [sys.executable, "-m", "spanmq.cli"]
# Makes its stderr the terminal of its session, so that Ctrl-C is a key there, and becomes another program.
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(2, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
# Of the tests' own environment, the program sees nothing that would change what it does. Unbuffered, Python's
# stdout drops what a pipe does not take at once.
UNSEEN = ("PG", "SPANMQ_", "PYTHONUNBUFFERED")


class Program(subprocess.Popen[AnyStr]):
    """A process with pipes to the streams that a test uses."""

    stdin: IO[AnyStr]
    stdout: IO[AnyStr]
    stderr: IO[AnyStr]


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
    """Return a user's environment; wide, so that nothing wraps."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(UNSEEN)}
    named = {} if dsn is None else {"SPANMQ_DSN": dsn}
    return {**own, "COLUMNS": "300", "TERM": "dumb", **named, **(more or {})}


def words_of(arguments: Sequence[str | int]) -> list[str]:
    """Return the words of a command, of which the first argument may be two: a noun and a verb."""
    return [*str(arguments[0]).split(), *map(str, arguments[1:])] if arguments else []


def spanmq(
    *arguments: str | int, dsn: str | None, stdin: str | bytes = "", more: Mapping[str, str] | None = None
) -> Done:
    """Run it to its end in this process, with files for its three streams; see `words_of`."""
    code: object = 0
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        given, out, err = (stack.enter_context(TemporaryFile()) for _ in range(3))
        given.write(stdin.encode() if isinstance(stdin, str) else stdin)
        given.seek(0)
        for name, mode, file in (("stdin", "r", given), ("stdout", "w", out), ("stderr", "w", err)):
            stream = stack.enter_context(open(file.fileno(), mode, encoding="utf-8", closefd=False))
            patch.setattr(sys, name, stream)
        patch.setattr(sys, "argv", ["spanmq", *words_of(arguments)])
        patch.setattr(sys, "path", [*sys.path])
        wanted = environment(dsn, more)
        for name in os.environ.keys() - wanted.keys():
            patch.delenv(name)
        for name, value in wanted.items():
            patch.setenv(name, value)
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        assert isinstance(code, int), code
        sys.stdout.flush()
        sys.stderr.flush()
        shown = []
        for file in (out, err):
            file.seek(0)
            shown.append(file.read().decode())
    return Done(code, *shown)


def records(*arguments: str | int, dsn: str, stdin: str | bytes = "") -> list[dict[str, Any]]:
    """Run it with --json, expect success, and read what it prints."""
    done = spanmq(*arguments, "--json", dsn=dsn, stdin=stdin)
    assert (done.code, done.err) == (0, "")
    return done.records


def run(*arguments: str | int, dsn: str | None, more: Mapping[str, str] | None = None) -> Done:
    """Run it to its end in a process of its own, with nothing to read."""
    with started(*arguments, dsn=dsn, more=more) as process:
        return finish(process)


@contextmanager
def started(
    *arguments: str | int, dsn: str | None, more: Mapping[str, str] | None = None, **options: Any
) -> Iterator[Program[bytes]]:
    """Start it in a process of its own, with pipes to all three streams unless the options say otherwise.

    Whatever happens, it has ended afterwards.
    """
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with child(
        [*PROGRAM, *words_of(arguments)], env=environment(dsn, more), **{**pipes, **options}
    ) as process:
        yield process


@contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator[Program[Any]]:
    """Start any program; whatever happens, it has ended afterwards."""
    process: Program[Any] = Program(command, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[bytes], stdin: bytes | None = None) -> Done:
    """Wait for its end, and return what it wrote."""
    out, err = process.communicate(stdin, timeout=WAIT_SECONDS)
    return Done(process.returncode, (out or b"").decode(), (err or b"").decode())


def end(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM) -> Done:
    """Send a signal, wait for the end, and return what it wrote."""
    process.send_signal(number)
    return finish(process)


def on_terminal(
    *arguments: str | int, dsn: str, typed: str = "", stdin: bytes | None = None, columns: int = 300
) -> Done:
    """Run it on a terminal, type something at the first question; `out` is all that it shows but colours.

    With `stdin`, this is a pipe, and only the rest is the terminal.
    """
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, *PROGRAM, *words_of(arguments)],
        stdin=slave if stdin is None else subprocess.PIPE,
        stdout=slave,
        stderr=slave,
        env=environment(dsn, {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(columns)}),
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


def ask(dsn: str, statement: str) -> Any:
    """Return the first value of a statement's first row."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
    return None if row is None else row[0]


def do(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
