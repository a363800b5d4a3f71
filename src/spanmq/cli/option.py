"""The arguments and options that several commands share, and how their texts are read."""

import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanmq.cli.failure import FAILED, UsageError, say
from spanmq.codec.exact_json import json_of

if TYPE_CHECKING:
    from spanmq.codec.body import RawJson


def stdin_lines() -> Iterator[str]:
    """Yield the lines of stdin that are not empty."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise typer.BadParameter(f"line {number} is not UTF-8: {error}") from error
        if text:
            yield text


def _complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the queues of the named database; an embedded server is not started for it."""
    from spanmq.client import Client
    from spanmq.errors import SpanmqError

    dsn = ctx.params.get("dsn") or os.environ.get("SPANMQ_DSN")
    if not dsn:
        return []
    try:
        with Client(dsn, pool_size=2) as client:
            return [each.name for each in client.queues.list() if each.name.startswith(incomplete)]
    except SpanmqError:
        return []


def _seconds_or_time(text: str) -> float | datetime:
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


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time such as 2030-01-31T12:00:00Z") from error
    # Without a zone it is the time of this machine.
    return time.astimezone()


def _parsed(text: str) -> Any:
    try:
        return json_of(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"not valid JSON: {error}") from error


def _object(text: str) -> dict[str, Any]:
    value = _parsed(text)
    if not isinstance(value, dict):
        raise typer.BadParameter("must be a JSON object")
    return value


def json_file(path: str) -> Any:
    """Read JSON from a file, or from stdin."""
    try:
        return _parsed(sys.stdin.read() if path == "-" else Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"can't read {path}: {error}") from error


def raw_json(text: str) -> "RawJson":
    """Check JSON that is sent as it is written."""
    from spanmq.codec.body import RawJson

    _parsed(text)
    return RawJson(text)


def _setting(text: str) -> tuple[str, object]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise typer.BadParameter(f"{text!r} is not of the form SETTING=VALUE")
    try:
        return name, json_of(value)
    except ValueError:
        # An interval, such as 3 days, needs no quotes.
        return name, value


def _ids(ctx: typer.Context, texts: list[str] | None) -> list[int]:
    if list(texts or ()) != ["-"]:
        return [_id(text) for text in texts or ()]
    return [] if ctx.resilient_parsing else [_id(line) for line in stdin_lines()]


def _id(text: str) -> int:
    try:
        value = json_of(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        value = value.get("message_id")
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise typer.BadParameter(f"{text[:80]!r} is not the id of a message")


def time_option(text: str) -> Any:
    """Return an option that is a time."""
    return typer.Option(metavar="TIME", parser=_time, help=text)


def object_option(text: str) -> Any:
    """Return an option that is a JSON object."""
    return typer.Option(metavar="JSON", parser=_object, help=text)


IDS_HELP = "Ids of messages; - reads them, or messages as JSON, from stdin, one a line."
if TYPE_CHECKING:
    MessageIds = list[int]
    SomeMessageIds = list[int] | None
else:  # Typer reads texts, and the callback makes numbers of them.
    MessageIds = Annotated[list[str], typer.Argument(metavar="MESSAGE_ID", callback=_ids, help=IDS_HELP)]
    SomeMessageIds = Annotated[
        list[str] | None, typer.Argument(metavar="MESSAGE_ID", callback=_ids, help=IDS_HELP)
    ]

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=_complete_queue)]
SomeQueue = Annotated[
    str | None,
    typer.Argument(metavar="QUEUE", help="One queue; default: all.", autocompletion=_complete_queue),
]
SomeQueues = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUEUE", help="These queues; default: all.", autocompletion=_complete_queue),
]
MessageId = Annotated[int, typer.Argument(metavar="MESSAGE_ID", help="The message.")]
Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        envvar="SPANMQ_DSN",
        metavar="DSN",
        help="The database, as an address or as key=value pairs. Default: the embedded server.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, a line a record; errors too.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; only show what would be done.")]
Quantity = Annotated[int, typer.Option("--limit", "-n", help="Maximum number of messages.")]
Limit = Annotated[int, typer.Option("--limit", "-n", help="Maximum number of rows.")]
After = Annotated[int, typer.Option(help="Only ids above this one; with --newest-first, below it.")]
NewestFirst = Annotated[bool, typer.Option("--newest-first", help="The newest one first.")]
BodyBytesMax = Annotated[
    int | None,
    typer.Option(help="Leave out bodies of more bytes, as they are stored, and show how many they have."),
]
Lease = Annotated[float, typer.Option(help="Seconds for which no other receiver gets them.")]
Wait = Annotated[float | None, typer.Option(help="Seconds to wait for the first message.")]
DelayTime = Annotated[
    Any,
    typer.Option(
        "--delay",
        metavar="SECONDS|TIME",
        parser=_seconds_or_time,
        help="Deliver it that many seconds from now, or at a time such as 2030-01-31T12:00:00Z.",
    ),
]
Expires = Annotated[
    Any,
    typer.Option(
        metavar="SECONDS|TIME",
        parser=_seconds_or_time,
        help="Its expiry: seconds from now, or a time.",
        show_default="never",
    ),
]
Headers = Annotated[Any, typer.Option("--headers", metavar="JSON", parser=_object, help="A JSON object.")]
SETTINGS: Any = typer.Argument(metavar="SETTING=VALUE", parser=_setting, help="Such as max_attempts=5.")
Settings = Annotated[list[Any], SETTINGS]
SomeSettings = Annotated[list[Any] | None, SETTINGS]
GroupName = Annotated[str | None, typer.Option("--group", help="The group within which order is kept.")]
Category = Annotated[str | None, typer.Option(help="TRANSIENT, DEPENDENCY, PERMANENT, BUSINESS or UNKNOWN.")]
ErrorText = Annotated[str | None, typer.Option("--error", help="The text of the error.")]


def refuse_terminal(advice: str) -> None:
    """Raise a usage error if stdin is a terminal, where input is not expected."""
    if sys.stdin.isatty():
        raise typer.BadParameter(advice)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed; ends the program unless the answer is yes."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        # Not BadParameter, whose text begins with "Invalid value".
        raise UsageError(f"Without a terminal, this command needs --yes: {question}")
    # Not typer's: it asks on stdout, and does not end with Ctrl-C's exit code.
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say("spanmq: nothing was changed")
        raise typer.Exit(FAILED)
