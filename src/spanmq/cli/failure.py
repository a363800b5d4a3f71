"""What the shell is told when something goes wrong: one clear line, what to do about it, and an exit code."""

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

# What kind of error it is, for somebody who knows no class names.
LABELS: Final[dict[type[errors.SpanmqError], str]] = {
    errors.SpanmqError: "error",
    errors.InvalidArgumentError: "bad argument",
    errors.InvalidSettingError: "bad setting",
    errors.InvalidQueueNameError: "bad queue name",
    errors.InvalidHandlerError: "bad handler",
    errors.HandlerStuckError: "handlers are stuck",
    errors.InvalidTopicError: "bad topic",
    errors.InvalidPatternError: "bad pattern",
    errors.InvalidBodyError: "bad body",
    errors.BodyTooLargeError: "body too large",
    errors.EncryptionError: "encryption",
    errors.DecryptionError: "the body does not open",
    errors.QueueNotFoundError: "no such queue",
    errors.SubscriptionError: "not with a subscription",
    errors.QueueBusyError: "the queue is busy",
    errors.QueueFullError: "the queue is full",
    errors.DedupIdReusedError: "the dedup id stands for something else",
    errors.DeadLetterNotFoundError: "no such dead letter",
    errors.ScheduleNotFoundError: "no such schedule",
    errors.TokenNotFoundError: "no such token",
    errors.CronNotAvailableError: "no cron",
    errors.ShardsChangedError: "the shards have changed",
    errors.NotPermittedError: "not possible here",
    errors.SchemaMissingError: "not installed",
    errors.NotSupportedByUpstreamError: "not in PGMQ",
    errors.SchemaVersionError: "wrong version of the schema",
    errors.SchemaNewerError: "the schema is newer",
    errors.SchemaChangedError: "the schema was changed",
    errors.MissingPrivilegeError: "missing right",
    errors.ServerReadOnlyError: "read-only server",
    errors.ServerExhaustedError: "the server has run out of something",
    errors.ServerTooOldError: "server too old",
    errors.ServerError: "error of the server",
    errors.TransactionConflictError: "conflict, nothing was changed",
    errors.TransactionAbortedError: "the transaction had failed",
    errors.IsolationLevelError: "wrong isolation level",
    errors.StatementCancelledError: "cancelled, nothing was changed",
    errors.ConnectionFailedError: "no connection",
    errors.ConnectionLostError: "connection lost",
    errors.EmbeddedError: "no embedded server",
    errors.EmbeddedNotAvailableError: "no embedded server",
    errors.EmbeddedFolderError: "no embedded server",
    errors.EmbeddedFolderInUseError: "no embedded server",
    errors.EmbeddedVersionError: "no embedded server",
    errors.EmbeddedDiskFullError: "no embedded server, the disk is full",
    errors.EmbeddedStartError: "no embedded server",
    errors.WriteClosedError: "write closed, nothing was sent",
    errors.ReceiverSupersededError: "not the receiver any more",
    errors.ReceiverInUseError: "receiver in use",
    errors.MessagesLostError: "messages lost",
    errors.PipelineError: "pipeline",
    errors.PipelineNotAvailableError: "no Spark",
    errors.ServiceNotAvailableError: "no service",
    errors.UpstreamPgmqError: "PGMQ is installed",
    errors.DataLossError: "data would be lost",
    errors.AdoptionRefusedError: "not taken over",
}

# Where the error's own hint speaks of SQL or Python, or where there is none.
HINTS: Final[dict[type[errors.SpanmqError], str]] = {
    errors.DeadLetterNotFoundError: (
        "spanmq dead-letter list shows the existing ones, spanmq message status the state of a message."
    ),
    errors.ScheduleNotFoundError: "spanmq schedule list shows the existing ones.",
    errors.TokenNotFoundError: "spanmq token list shows the existing ones.",
    errors.QueueNotFoundError: "spanmq queue list shows the existing ones, spanmq queue create creates one.",
    errors.ConnectionFailedError: "Look at --dsn or SPANMQ_DSN, and whether the server runs.",
    errors.TransactionConflictError: "Run it again.",
    errors.NotSupportedByUpstreamError: "spanmq schema adopt takes PGMQ's queues over.",
    errors.DataLossError: "spanmq schema uninstall --force drops all that too.",
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
    """Return the lines for an error: what it is, details, what to do."""
    kind = next(kind for kind in type(error).__mro__ if kind in LABELS)
    lines = [f"spanmq: {LABELS[kind]}: {' '.join(error.message.split())}"]
    if error.detail:
        lines += [f"detail: {line}" for line in error.detail.splitlines()]
    if hint := hint_of(error):
        lines.append(f"hint: {' '.join(hint.split())}")
    return "\n".join(lines)


def describe_as_json(error: errors.SpanmqError) -> str:
    """Return an error as the HTTP service does: {"error": {"code": "queue_not_found", …}}."""
    more = {"detail": error.detail, "hint": hint_of(error), "queue": error.queue}
    return in_json(errors.code_of(type(error)), error.message, **more)


def in_json(code: str, message: str, **more: str | None) -> str:
    """Return the JSON for an error."""
    present = {name: value for name, value in more.items() if value}
    return json.dumps({"error": {"code": code, "message": message, **present}}, ensure_ascii=False)


def hint_of(error: errors.SpanmqError) -> str | None:
    """Return what to do, in the words of the command line where it has its own."""
    return HINTS.get(type(error)) or error.hint


def wants_json(words: Sequence[str]) -> bool:
    """Return whether --json is among the options of a command line."""
    return "--json" in words[: words.index("--") if "--" in words else None]


def say(text: str) -> None:
    """Write a line for the person, on stderr; if nobody can read it, e.g. on a closed terminal, don't."""
    with contextlib.suppress(OSError):
        typer.echo(text, err=True)
