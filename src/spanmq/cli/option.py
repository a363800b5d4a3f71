"""The options and arguments that several commands share, and how their texts are read."""

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated

import typer

from spanmq.body import Headers
from spanmq.cli.failure import FAILED, USAGE, say
from spanmq.cli.json_text import json_of

Expires = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS|TIME",
        help="When it ends, in so many seconds or at a time.",
        show_default="never",
    ),
]
Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        envvar="SPANMQ_DSN",
        metavar="DSN",
        help="The database, as an address or as key=value pairs. Without it the embedded server.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, a line a record.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]
Quantity = Annotated[int, typer.Option("--quantity", "-n", help="How many messages at most.")]
BodyBytesMax = Annotated[
    int | None,
    typer.Option(
        help="Leave out bodies of more bytes, as they are stored, and say how many.", show_default=False
    ),
]
Lease = Annotated[float, typer.Option(help="Seconds for which nobody else gets them.")]
Wait = Annotated[
    float | None, typer.Option(help="Seconds to wait for the first message.", show_default=False)
]
DelayText = Annotated[
    str | None,
    typer.Option(
        "--delay",
        metavar="SECONDS|TIME",
        help="Deliver it so many seconds from now, or at a time such as 2030-01-31T12:00:00Z.",
        show_default=False,
    ),
]
DelaySeconds = Annotated[
    float | None,
    typer.Option("--delay", help="Deliver it so many seconds from now.", show_default=False),
]
HeadersText = Annotated[
    str | None, typer.Option("--headers", metavar="JSON", help="A JSON object.", show_default=False)
]
GroupName = Annotated[
    str | None, typer.Option("--group", help="The group within which order is kept.", show_default=False)
]
MessageIds = Annotated[
    list[str],
    typer.Argument(
        metavar="ID...",
        help="Ids of messages; - reads them, or messages as JSON, from stdin, one a line.",
        show_default=False,
    ),
]


def delay_of(text: str) -> float | datetime:
    """Read seconds or a time."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is neither a number of seconds nor a time such as 2030-01-31T12:00:00Z"
        ) from error


def object_of(text: str | None, what: str) -> Headers | None:
    """Read a JSON object."""
    if text is None:
        return None
    try:
        value = json_of(text)
    except (ValueError, RecursionError) as error:
        verb = "are" if what.endswith("s") else "is"
        raise typer.BadParameter(f"the {what} {verb} not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f"the {what} must be a JSON object")
    return value


def ids_of(texts: Sequence[str]) -> list[int]:
    """Read the ids of messages, from stdin if they are "-"."""
    if list(texts) != ["-"]:
        return [_id_of(text) for text in texts]
    return [_id_of(line) for line in stdin_lines()]


def stdin_lines() -> Iterator[str]:
    """Give the lines of stdin that are not empty."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise typer.BadParameter(f"line {number} is not UTF-8: {error}") from error
        if text:
            yield text


def refuse_terminal(advice: str) -> None:
    """End with a usage error rather than wait for somebody who does not know that we wait for him."""
    if sys.stdin.isatty():
        raise typer.BadParameter(advice)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed; ends the program unless the answer is yes."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        say(f"spanmq: {question} Nobody is there to ask.\nhint: --yes says so beforehand.")
        raise typer.Exit(USAGE)
    # Not typer's: its question stands on stdout, and Ctrl-C would be no Ctrl-C.
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say("spanmq: nothing was changed")
        raise typer.Exit(FAILED)


def _id_of(text: str) -> int:
    try:
        value = json_of(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        value = value.get("message_id")
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise typer.BadParameter(f"{text[:80]!r} is no id of a message")
