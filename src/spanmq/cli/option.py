"""The arguments and options that several commands share, and how their texts are read."""

import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

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
            return [queue.name for queue in client.queues.list() if queue.name.startswith(incomplete)]
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
CategoryName = Annotated[
    str, typer.Argument(metavar="CATEGORY", help="TRANSIENT, DEPENDENCY, PERMANENT, BUSINESS or UNKNOWN.")
]
ForQueue = Annotated[
    str | None, typer.Option("--queue", metavar="QUEUE", help="Name of the queue; default: all queues.")
]
ReceiverName = Annotated[str, typer.Argument(metavar="RECEIVER", help="Its label or id.")]
Redriven = Annotated[bool, typer.Option("--redriven", help="Redriven ones instead of pending ones.")]
RoleName = Annotated[str, typer.Argument(metavar="ROLE", help="A role of the database, or public.")]
QUEUES_HELP: Final = "A queue, or a pattern such as orders-*; may be repeated."
VERBS_HELP: Final = "send, receive, look or manage; may be repeated."
VERB_ON_ALL: Any = typer.Argument(
    metavar="send|receive|look|manage|create|maintain|serve|admin",
    help="Privilege; the last four: create queues, run maintenance, serve HTTP, handle tokens and keys.",
)
WorkerName = Annotated[str, typer.Argument(metavar="WORKER", help="Its name, as queue workers shows it.")]


def _some(ids: list[int] | None) -> list[int] | None:
    # Typer makes an empty list of an option that is missing.
    return ids or None


class DeadLetterOptions(TypedDict):
    """A selection of dead letters."""

    category: Annotated[str | None, typer.Option(help="Only this category.")]
    error: Annotated[str | None, typer.Option(metavar="PATTERN", help="Only errors that match; a regex.")]
    error_class: Annotated[str | None, typer.Option(help="Only this class.")]
    since: Annotated[Any, time_option("Only those that died then or later.")]
    until: Annotated[Any, time_option("Only those that died before.")]
    payload: Annotated[Any, object_option("Only those whose body contains this.")]
    where: Annotated[
        str | None, typer.Option(metavar="PATH", help="Only those whose body meets this JSON path.")
    ]
    dead_letter_ids: Annotated[
        list[int] | None, typer.Option("--id", callback=_some, help="Only these dead_letter_ids.")
    ]


class FailingOptions(TypedDict):
    """A selection of failing messages, by the values that `queue failing` shows."""

    task: Annotated[str | None, typer.Option(help="Only this task.")]
    category: Annotated[str | None, typer.Option(help="Only this category.")]
    error_class: Annotated[str | None, typer.Option(help="Only this class.")]
    error: Annotated[str | None, typer.Option(help="Only this error, as queue failing shows it.")]


# The words for parameters of methods with a command in spanmq.doors: those of a noun, of an option (`--queue`), of
# an argument that may be missing (`[queue]`), or of the name.
WORDS: Final[dict[str, Any]] = {
    **{f"dead-letter {name}": word for name, word in DeadLetterOptions.__annotations__.items()},
    **{f"queue {name}": word for name, word in FailingOptions.__annotations__.items()},
    "access_key_id": Annotated[str, typer.Argument(metavar="ID", help="The key's id.")],
    "after": After,
    "signal after": Annotated[str | None, typer.Option(help="Only names after this one.")],
    "before": Annotated[int | None, typer.Option(help="Only those with an id below this one.")],
    "body": Annotated[Any, typer.Argument(metavar="BODY", parser=raw_json, help="JSON.")],
    "[body]": Annotated[Any, typer.Argument(metavar="[BODY]", parser=raw_json, help="JSON.")],
    "body_bytes_max": BodyBytesMax,
    "catch_up": Annotated[
        bool, typer.Option("--catch-up", help="Send every missed message, not one for all of them.")
    ],
    "category": CategoryName,
    "--category": Category,
    "cron": Annotated[
        str, typer.Argument(metavar="CRON", help="A cron expression: '*/5 * * * *' is every five minutes.")
    ],
    "error": ErrorText,
    "category error": Annotated[str | None, typer.Argument(metavar="ERROR", help="The text of the error.")],
    "error_class": Annotated[str | None, typer.Option(help="Its class, such as TimeoutError.")],
    "text_pattern": Annotated[
        str | None,
        typer.Option("--error", metavar="PATTERN", help="A regular expression that matches the text."),
    ],
    "class_pattern": Annotated[
        str | None,
        typer.Option("--error-class", metavar="PATTERN", help="A regular expression that matches the class."),
    ],
    "group": GroupName,
    "headers": Headers,
    "expires": Expires,
    "follow": Annotated[
        bool, typer.Option("--follow/--stop", help="Count table grants as verbs; --stop revokes these verbs.")
    ],
    "keep_for": Annotated[float, typer.Option(help="Seconds for which it is kept if none waits.")],
    "kind": Annotated[str, typer.Argument(metavar="TASK", help="The kind of task.")],
    "lake": Annotated[str, typer.Argument(metavar="LAKE", help="The whole path of its folder.")],
    "limit": Limit,
    "message_id": MessageId,
    "message_ids": MessageIds,
    "most": Annotated[int, typer.Option(help="Count only queues of at most this many messages.")],
    "names": Annotated[list[str] | None, typer.Option("--name", help="Only this one; repeatable.")],
    "category name": Annotated[str, typer.Argument(metavar="NAME", help="The rule.")],
    "schedule name": Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")],
    "signal name": Annotated[str, typer.Argument(metavar="NAME", help="The signal.")],
    "token name": Annotated[str, typer.Argument(metavar="NAME", help="The token's name.")],
    "newest_first": NewestFirst,
    "overlap": Annotated[float, typer.Option(help="Seconds for which the old secret stays valid.")],
    "pattern": Annotated[
        str, typer.Argument(metavar="PATTERN", help="Words and dots; * is one word, # any number.")
    ],
    "place": Annotated[int, typer.Option(help="Rules with a lower place are applied first.")],
    "quantity": Quantity,
    "queue": QueueName,
    "[queue]": SomeQueue,
    "--queue": ForQueue,
    "queues": SomeQueues,
    "timed_out": Annotated[
        bool, typer.Option("--timed-out", help="End the wait as if its time was over, without a body.")
    ],
    "token queues": Annotated[list[str], typer.Option("--queue", "-q", help=QUEUES_HELP)],
    "token verbs": Annotated[list[str], typer.Option("--verb", "-v", help=VERBS_HELP)],
    "receiver": ReceiverName,
    "redriven": Redriven,
    "role": RoleName,
    "routing_key": Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    "seconds": Annotated[float, typer.Option(help="Period up to now; three days are kept.")],
    "task seconds": Annotated[float, typer.Option(help="Period up to now, at most a day.")],
    "step": Annotated[float, typer.Option(help="Seconds that a row covers.")],
    "task step": Annotated[float, typer.Option(help="Seconds that a row covers, whole minutes.")],
    "throttle": Annotated[float, typer.Option(help="Minimum seconds between two notifications.")],
    "time_zone": Annotated[str, typer.Option(help="The time zone, such as Europe/Berlin.")],
    "verb": Annotated[
        str, typer.Argument(metavar="send|bulk|receive|look|manage", help="Privilege on the queue.")
    ],
    "verb_on_all": Annotated[str, VERB_ON_ALL],
    "worker": WorkerName,
}
# What stands for arguments in the example of a command.
EXAMPLES: Final = {
    "access_key_id": "AKIAEXAMPLE",
    "lake": "/data/lake",
    "message_id": "17",
    "schedule name": "nightly",
    "token name": "shop",
    "pattern": "'orders.*'",
    "queue": "orders",
    "[queue]": "orders",
    "receiver": "lake",
    "role": "shop",
    "routing_key": "orders.created",
    "verb": "send",
    "verb_on_all": "receive",
    "worker": "web1:917:3f2a01",
}


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
