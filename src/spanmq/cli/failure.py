"""What the shell is told when something goes wrong: one clear line, what to do about it, and an exit code."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from spanmq import errors
from spanmq.cli.interrupt import ENDING, Ended, end, handled

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
# As shells have it: so much more than the number of the signal.
SIGNALLED: Final = 128
INTERRUPTED: Final = SIGNALLED + signal.SIGINT

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
    errors.TaskArgumentsError: "bad arguments of a task",
    errors.UnknownTaskError: "no such task",
    errors.ExtraNotInstalledError: "a package is missing",
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
    errors.DeadLetterNotFoundError: "spanmq status tells where a message is, spanmq dead-letters what waits.",
    errors.ScheduleNotFoundError: "spanmq list-schedules shows what there is.",
    errors.TokenNotFoundError: "spanmq tokens list shows what there is.",
    errors.QueueNotFoundError: "spanmq list-queues shows what there is, spanmq create-queue makes one.",
    errors.ConnectionFailedError: "Look at --dsn or SPANMQ_DSN, and whether the server runs.",
    errors.TransactionConflictError: "Run it again.",
    errors.NotSupportedByUpstreamError: "spanmq adopt takes PGMQ's queues over.",
    errors.DataLossError: "spanmq uninstall --force drops all that too.",
}


class Flags:
    """Hides the type of flags in help: Typer 0.29 shows <bool> beside --json."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters as Typer's own class does."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if getattr(each, "is_bool_flag", False):
                each.metavar = ""
        return params


class Command(Flags, TyperCommand):
    """A command."""


class TwoWords(Flags, TyperGroup):
    """Commands of two words."""


class Group(Flags, TyperGroup):
    """The commands, whose errors end here; errors of usage are Typer's own to report."""

    def invoke(self, ctx: Any) -> Any:
        """Run one command."""
        with reported():
            return super().invoke(ctx)


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Turn what a command raises, or a signal, into a message on stderr and an exit code."""
    try:
        with handled(end, *ENDING):
            yield
    except errors.SpanmqError as error:
        say(describe(error))
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt as error:
        say("spanmq: interrupted")
        number = error.number if isinstance(error, Ended) else signal.SIGINT
        raise typer.Exit(SIGNALLED + number) from error


def describe(error: errors.SpanmqError) -> str:
    """Give the lines for an error: what, details, what to do."""
    kind = next(kind for kind in type(error).__mro__ if kind in LABELS)
    lines = [f"spanmq: {LABELS[kind]}: {' '.join(error.message.split())}"]
    if error.detail:
        lines += [f"detail: {line}" for line in error.detail.splitlines()]
    if hint := HINTS.get(type(error)) or error.hint:
        lines.append(f"hint: {' '.join(hint.split())}")
    return "\n".join(lines)


def say(text: str) -> None:
    """Write a line for the person, on stderr; if nobody can read it, e.g. on a closed terminal, don't."""
    with contextlib.suppress(OSError):
        typer.echo(text, err=True)
