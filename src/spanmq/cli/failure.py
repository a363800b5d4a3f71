"""Errors on the command line: one clear line, a hint, and an exit code."""

import contextlib
import json
import signal
from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer

from spanmq import errors
from spanmq.cli.interrupt import ENDING, Ended, end, handled

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
# As shells have it: so much more than the number of the signal.
SIGNALLED: Final = 128
INTERRUPTED: Final = SIGNALLED + signal.SIGINT
# The class of Typer's errors about arguments, which Typer itself does not export.
UsageError: Final[Any] = typer.BadParameter.__base__

# Used where the error's own hint is about SQL or Python, or where it has none.
HINTS: Final = {
    "dead_letter_not_found": (
        "spanmq dead-letter list shows the existing ones, spanmq message state the state of a message."
    ),
    "schedule_not_found": "spanmq schedule list shows the existing ones.",
    "token_not_found": "spanmq token list shows the existing ones.",
    "worker_not_found": "spanmq worker list shows those that have reported within a minute.",
    "queue_not_found": (
        "spanmq queue list shows those on which you have a right, spanmq queue create creates one."
    ),
    "connection_failed": "Check --dsn or SPANMQ_DSN, and whether the server runs.",
    "transaction_conflict": "Run it again.",
    "not_supported_by_upstream": "spanmq schema adopt takes PGMQ's queues over.",
    "data_loss": "spanmq schema uninstall --force drops all that too.",
}


@contextlib.contextmanager
def reported(*, as_json: bool = False) -> Iterator[None]:
    """Turn what a command raises, or a signal, into a message on stderr and an exit code."""
    try:
        with handled(end, *ENDING):
            yield
    except errors.SpanmqError as error:
        say(describe_as_json(error) if as_json else describe(error))
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt as error:
        text = "interrupted"
        say(in_json(text, text) if as_json else f"spanmq: {text}")
        number = error.number if isinstance(error, Ended) else signal.SIGINT
        raise typer.Exit(SIGNALLED + number) from error


def describe(error: errors.SpanmqError) -> str:
    """Return the lines for an error: message, details and hint."""
    name = error.code.replace("_", " ")
    message = " ".join(error.message.split())
    # A driver's text may begin with the same words.
    while message.startswith(f"{name}: "):
        message = message.removeprefix(f"{name}: ")
    lines = [f"spanmq: {name}: {message}"]
    if error.detail:
        lines += [f"detail: {line}" for line in error.detail.splitlines()]
    if hint := hint_of(error):
        lines.append(f"hint: {' '.join(hint.split())}")
    return "\n".join(lines)


def describe_as_json(error: errors.SpanmqError) -> str:
    """Return an error as the HTTP service does: {"error": {"code": "queue_not_found", …}}."""
    more = {"detail": error.detail, "hint": hint_of(error), "queue": error.queue}
    return in_json(error.code, error.message, **more)


def in_json(code: str, message: str, **more: str | None) -> str:
    """Return the JSON for an error."""
    present = {name: value for name, value in more.items() if value}
    return json.dumps({"error": {"code": code, "message": message, **present}}, ensure_ascii=False)


def hint_of(error: errors.SpanmqError) -> str | None:
    """Return what to do, in the words of the command line where it has its own."""
    return HINTS.get(error.code) or error.command_hint or error.hint


def wants_json(words: Sequence[str]) -> bool:
    """Return whether --json is among the options of a command line."""
    return "--json" in words[: words.index("--") if "--" in words else None]


def say(text: str) -> None:
    """Write a line to stderr; do nothing if that fails, for example on a closed terminal."""
    with contextlib.suppress(OSError):
        typer.echo(text, err=True)
