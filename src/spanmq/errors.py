"""Every error that spanmq raises, and what the server's SQLSTATEs become.

A class for each way in which a caller handles an error; `code` says which error it is. The server's own text
is kept, its hint follows on a line of its own, and the driver's exception is reachable as `__cause__`.
"""

import re
from typing import ClassVar, Final

from spanmq import error_hints

__all__ = [
    "AnswerTooLargeError",
    "BodyTooLargeError",
    "ConnectionFailedError",
    "ConnectionLostError",
    "DataLossError",
    "DecryptionError",
    "DedupIdInUseError",
    "DedupIdReusedError",
    "EmbeddedError",
    "EncryptionError",
    "ExtraNotInstalledError",
    "HandlerCancelledError",
    "HandlerStuckError",
    "InvalidArgumentError",
    "InvalidBodyError",
    "InvalidTransactionError",
    "MessagesLostError",
    "MissingPrivilegeError",
    "NotFoundError",
    "NotKeptError",
    "NotPossibleError",
    "NotSupportedByUpstreamError",
    "PipelineError",
    "PositionUnknownError",
    "ProcessCrashedError",
    "QueueBusyError",
    "QueueFullError",
    "QueueNotFoundError",
    "ReceiverInUseError",
    "ResultNotStoredError",
    "SchemaMissingError",
    "SchemaVersionError",
    "ServerError",
    "ServerExhaustedError",
    "ServerReadOnlyError",
    "ShardsChangedError",
    "SpanmqError",
    "StatementCancelledError",
    "TaskArgumentsError",
    "TaskFailedError",
    "TransactionConflictError",
    "UnknownTaskError",
    "WebhookFailedError",
    "WorkerStartError",
]


class SpanmqError(Exception):
    """The base class of all errors.

    `message` says what is wrong. `code` is the name of the error in JSON: the name of the class in lower case, or one
    of `codes`. `queue` and `function` are those of the call, `sqlstate`, `detail` and `hint` those of the server; each
    is None where it does not apply.
    """

    codes: ClassVar[dict[str, str]] = {}
    # The hint as the command line gives it, where it names a call.
    command_hint: str | None = None

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        detail: str | None = None,
        sqlstate: str | None = None,
        queue: str | None = None,
        function: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code or code_of(type(self))
        self.message = message
        self.hint = hint
        self.detail = detail
        self.sqlstate = sqlstate
        self.queue = queue
        self.function = function

    def __str__(self) -> str:
        """Return the message, then the detail and the hint, one per line."""
        lines = [self.message]
        if self.detail:
            lines.append(f"detail: {self.detail}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


# Invalid arguments.


class InvalidArgumentError(SpanmqError, ValueError):
    """A value that is not valid; nothing was changed."""

    codes: ClassVar[dict[str, str]] = {
        "invalid_queue_name": "a name that PGMQ's rules refuse, or that is empty or too long: `queue`",
        "invalid_setting": "a setting of a policy, or of Django's, that does not exist or is out of range",
        "invalid_topic": "a topic pattern or routing key outside the rules",
        "invalid_pattern": "not a regular expression, or one that takes the server too long or too much memory",
        "invalid_handler": "a worker's handler that can't be imported or called, or takes other arguments",
    }


class QueueBusyError(SpanmqError):
    """A transaction that sends into the queue did not end in time; nothing was changed."""


class QueueFullError(SpanmqError):
    """The queue holds as much as its policy allows (`max_backlog`); nothing was sent."""


class DedupIdReusedError(SpanmqError):
    """The dedup_id was used for a message with another fingerprint; nothing was sent."""


class NotKeptError(SpanmqError):
    """The log no longer has all messages since that time; nothing was changed."""


class InvalidBodyError(InvalidArgumentError):
    """A body or headers that cannot be stored as JSON (nothing was sent), decoded, or parsed as a class."""

    codes: ClassVar[dict[str, str]] = {
        "schema_mismatch": "the body does not fit the queue's JSON Schema; the message says where and why"
    }


class BodyTooLargeError(InvalidBodyError):
    """A body over the 255 MB that a `jsonb` can hold; nothing was sent."""


class AnswerTooLargeError(SpanmqError):
    """The messages of one call have more bytes than the client's `answer_bytes_max`; none was received.

    As many as `fitting` says, at least one, may be received at once.
    """

    fitting: int = 1


class EncryptionError(SpanmqError):
    """Keys that cannot be read or are not valid."""


class DecryptionError(EncryptionError):
    """A body that does not open: its key is not here, it is of another queue, or it was changed."""


class TaskFailedError(SpanmqError):
    """The message of a task that was waited for is a dead letter, or left no result although the task stores one."""


class ResultNotStoredError(SpanmqError):
    """The return value of a task could not be stored, as the message says; the task is done, and does not run again."""


class ProcessCrashedError(SpanmqError):
    """The process of a task with `process=True` ended before the task did; the message says with which signal."""


class TaskArgumentsError(InvalidArgumentError):
    """Arguments that do not fit a task's signature: nothing was sent, or the message is a dead letter."""


class UnknownTaskError(SpanmqError):
    """A message names a task that this worker does not have; another version of the program may."""


class NotFoundError(SpanmqError):
    """The named object does not exist."""

    codes: ClassVar[dict[str, str]] = {
        "receiver_not_found": "the queue lacks a checkpoint's receiver: it was dropped since, or is another one",
        "dead_letter_not_found": "the dead letter was redriven or purged, or never existed",
        "schedule_not_found": "no schedule has this name",
        "token_not_found": "no token has this name",
        "worker_not_found": "no worker of this name has reported within a minute",
    }


class QueueNotFoundError(NotFoundError):
    """No queue has this name; `queue` is the name."""


class NotPossibleError(SpanmqError):
    """Not possible here or in the present state, which must be changed first; nothing was changed."""

    codes: ClassVar[dict[str, str]] = {
        "subscription": "a subscription, or a queue that has some, can't do this",
        "signal_awaited": "a message of the queue waits for the signal already: a wait needs a name of its own",
        "write_closed": "a bulk write was abandoned before it was published",
        "upstream_pgmq": "the database holds upstream PGMQ, where spanmq was to be installed",
        "adoption_refused": "PGMQ can't be taken over; `detail` names every obstacle",
        "service_not_available": "the address of the HTTP service is in use, or can't be listened on",
    }


class DedupIdInUseError(NotPossibleError):
    """A message in the queue holds the dedup_id (`dedup_until`); nothing was sent, or redriven."""


class ExtraNotInstalledError(SpanmqError):
    """A package, or Java, is missing; `extra` is the extra of spanmq that includes it."""

    def __init__(
        self, message: str, *, extra: str = "", hint: str | None = None, **about: str | None
    ) -> None:
        super().__init__(message, hint=hint or f"pip install 'spanmq[{extra}]'", **about)
        self.extra = extra


# The state of the database.


class SchemaMissingError(SpanmqError):
    """The database holds neither spanmq nor PGMQ."""


class NotSupportedByUpstreamError(SpanmqError):
    """The database holds upstream PGMQ, which lacks this; `missing` names the SQL function."""

    def __init__(self, message: str, *, missing: str = "", **about: str | None) -> None:
        super().__init__(message, **about)
        self.missing = missing


class SchemaVersionError(SpanmqError):
    """The schema in the database, or the server, is of another version than this needs, or your own objects need a
    function that an upgrade would drop; nothing was changed.
    """

    codes: ClassVar[dict[str, str]] = {
        "schema_newer": "the database was installed by a newer version of spanmq",
        "schema_older": "a call of a newer version found the schema of an older one",
        "schema_changed": "a migration was edited after it was applied",
        "server_too_old": "the server is older than the oldest version that spanmq runs on",
    }


class DataLossError(SpanmqError):
    """Uninstalling would drop messages or something of your own; `detail` names them."""


class MissingPrivilegeError(SpanmqError):
    """The role lacks a right; the message names the object."""


class ServerReadOnlyError(SpanmqError):
    """A standby, or a read-only transaction: nothing can be sent or received here."""


class ServerExhaustedError(SpanmqError):
    """The server is out of disk, memory or locks."""


# Failures during a call.


class TransactionConflictError(SpanmqError):
    """A serialization failure or a deadlock, as between callers that settle parts of one lease: nothing was changed.

    Call again; in your own transaction, roll back and run all of it again.
    """


class InvalidTransactionError(SpanmqError):
    """The caller's transaction can't be used: end it first."""

    codes: ClassVar[dict[str, str]] = {
        "transaction_aborted": "it has failed already; roll it back, or to a savepoint",
        "isolation_level": "the call needs READ COMMITTED",
    }


class ReceiverInUseError(SpanmqError):
    """A receiver's label is bound to another checkpoint."""

    codes: ClassVar[dict[str, str]] = {
        "receiver_superseded": "the receiver was released, adopted, or opened by another driver"
    }


class MessagesLostError(SpanmqError):
    """A stream asked for messages that are gone: purged, or settled long ago."""


class PositionUnknownError(SpanmqError):
    """The database lacks a position of a lake or a checkpoint: restored to an earlier time, or another one."""


class ShardsChangedError(SpanmqError):
    """The map of a sharded queue has changed; read it again."""


class StatementCancelledError(SpanmqError):
    """Cancelled by a timeout or another session; nothing was changed."""


class ConnectionFailedError(SpanmqError):
    """No connection was possible, or none was free, or it was lost before anything took effect."""

    codes: ClassVar[dict[str, str]] = {
        "session_ended": "the connection was lost in a transaction, of which nothing took effect; `sqlstate` is the"
        " server's reason, if it gave one"
    }


class ConnectionLostError(SpanmqError):
    """The connection broke during a call: whether the call took effect is unknown.

    A send may have been sent, a received message may be under a lease that no receiver holds (it becomes visible
    when the lease ends), an ack may have settled. Sending again may send twice; receiving or settling again is
    safe.
    """


class ServerError(SpanmqError):
    """Any other error of the server; `sqlstate` and `__cause__` say which."""


# Errors that may be over soon, for example after a failover: a program that goes on tries again.
TEMPORARY: Final = (
    ConnectionFailedError,
    ConnectionLostError,
    ServerExhaustedError,
    ServerReadOnlyError,
    StatementCancelledError,
    TransactionConflictError,
)


# Workers, the pipeline and the embedded server.


class WebhookFailedError(SpanmqError):
    """A webhook can't be reached, or refused a notification; it is sent again."""


class WorkerStartError(SpanmqError):
    """A function of `on_start`, or one that opens a resource, failed: the worker ends before it receives."""


class HandlerStuckError(SpanmqError):
    """More handlers than the worker has slots exceeded their time and still run: the worker ends."""


class HandlerCancelledError(SpanmqError):
    """The message of the handler that makes this call was cancelled, or its lease is lost: the handler is to end."""


class PipelineError(SpanmqError):
    """A job of the pipeline can't run or has failed; the message says which queue, file or option."""


class EmbeddedError(SpanmqError):
    """The embedded server cannot be used; nothing was changed."""

    codes: ClassVar[dict[str, str]] = {
        "embedded_not_available": "PostgreSQL's wheel is not installed, has no such version, or does not run here",
        "embedded_folder": "the folder can't be written or entered, or belongs to another user",
        "embedded_folder_in_use": "a server that spanmq did not start runs on this folder's data",
        "embedded_version": "the folder holds another major version's data",
        "embedded_disk_full": "the server's files can't be written",
        "embedded_start": "it did not start, or was not ready in time; the message ends with its output",
    }


def code_of(kind: type[SpanmqError]) -> str:
    """Return the code of a class in JSON, its name in lower case: queue_not_found."""
    if kind is SpanmqError:
        return "error"
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__.removesuffix("Error")).lower()


# The class and the code.
_OF_SQLSTATE: Final[dict[str, tuple[type[SpanmqError], str | None]]] = {
    "MQ001": (InvalidArgumentError, "invalid_queue_name"),
    "MQ002": (InvalidArgumentError, None),
    "MQ003": (InvalidTransactionError, "isolation_level"),
    "MQ004": (NotPossibleError, None),
    "MQ005": (InvalidArgumentError, "invalid_topic"),
    "MQ006": (SchemaVersionError, None),
    "MQ007": (NotFoundError, "schedule_not_found"),
    "MQ008": (InvalidArgumentError, "invalid_setting"),
    "MQ020": (InvalidArgumentError, "invalid_pattern"),
    "MQ021": (NotFoundError, "dead_letter_not_found"),
    "MQ030": (ShardsChangedError, None),
    "MQ050": (NotPossibleError, "write_closed"),
    "MQ051": (ReceiverInUseError, "receiver_superseded"),
    "MQ052": (ReceiverInUseError, None),
    "MQ053": (MessagesLostError, None),
    "MQ054": (NotFoundError, "receiver_not_found"),
    "MQ055": (PositionUnknownError, None),
    "MQ060": (NotPossibleError, "subscription"),
    "MQ061": (QueueBusyError, None),
    "MQ062": (QueueFullError, None),
    "MQ063": (DedupIdReusedError, None),
    "MQ064": (NotKeptError, None),
    "MQ065": (InvalidBodyError, "schema_mismatch"),
    "MQ066": (DedupIdInUseError, None),
    "MQ067": (NotPossibleError, "signal_awaited"),
    "22003": (InvalidArgumentError, None),  # numeric_value_out_of_range
    "22007": (InvalidArgumentError, None),  # invalid_datetime_format
    "22008": (InvalidArgumentError, None),  # datetime_field_overflow
    "22015": (InvalidArgumentError, None),  # interval_field_overflow
    "2201W": (InvalidArgumentError, None),  # invalid_row_count_in_limit_clause
    "22021": (InvalidArgumentError, None),  # character_not_in_repertoire
    "22023": (InvalidArgumentError, None),  # invalid_parameter_value
    "22P02": (InvalidArgumentError, None),  # invalid_text_representation
    "22P05": (InvalidBodyError, None),  # untranslatable_character: \u0000 in a JSON string
    "25006": (ServerReadOnlyError, None),
    "25P02": (InvalidTransactionError, "transaction_aborted"),
    "3F000": (SchemaMissingError, None),  # invalid_schema_name
    "40001": (TransactionConflictError, None),
    "40P01": (TransactionConflictError, None),
    "42501": (MissingPrivilegeError, None),
    "55P03": (StatementCancelledError, None),  # lock_not_available: lock_timeout
    "57014": (StatementCancelledError, None),  # query_canceled: statement_timeout too
}

# A session that idled too long: the statement that was sent then was not begun.
BEFORE_STATEMENT: Final = ("25P03", "57P05")  # idle_in_transaction_session_timeout, idle_session_timeout

# Where one SQLSTATE stands for several things. Type and relation names are the same in every language that
# the server may speak; its sentences are not.
_OF_TEXT: Final[tuple[tuple[str, str, type[SpanmqError], str | None], ...]] = (
    ("22P02", r"\bjson\b", InvalidBodyError, None),
    ("54001", r"", InvalidBodyError, None),  # the stack: of what we pass, only JSON nests
    ("54000", r"\bjsonb\b", BodyTooLargeError, None),  # "total size of jsonb array elements exceeds …"
    ("XX000", r"\balloc request size\b", BodyTooLargeError, None),  # over 1 GB of memory for one value
    # A queue was dropped while the call waited for it: the next attempt says so, or goes on without it.
    ("XX000", r"^could not open relation with OID", TransactionConflictError, None),
    ("42P01", r'(?s)pgmq\.[qa]_(?P<queue>.*?)(?:["»«][^"»«]*)?$', QueueNotFoundError, None),
    ("42P01", r'^Queue "(?P<queue>.*)" does not exist', QueueNotFoundError, None),
    # A queue was dropped while the call was about to use its log.
    ("42P01", r"\bspanmq_core\.(log|lane)_[0-9]", QueueNotFoundError, None),
    # Upstream raises everything of its own as P0001.
    ("P0001", r"^queue name (is too long|contains invalid)", InvalidArgumentError, "invalid_queue_name"),
    ("P0001", r'^Queue "(?P<queue>.*)" does not exist', QueueNotFoundError, None),
    ("P0001", r'^Queue ".*" does not have notify_insert enabled', InvalidArgumentError, None),
    ("P0001", r"^(routing_key|pattern)\b", InvalidArgumentError, "invalid_topic"),
    (
        "P0001",
        r"^(msgs?|headers|delay|queue_name|throttle_interval_ms|premake)\b",
        InvalidArgumentError,
        None,
    ),
)


def from_server(
    sqlstate: str,
    message: str,
    *,
    hint: str | None = None,
    detail: str | None = None,
    queue: str | None = None,
    function: str | None = None,
) -> SpanmqError:
    """Return the typed error for an error of the server."""
    kind, code = _OF_SQLSTATE.get(sqlstate, (ServerError, None))
    if sqlstate.startswith("53"):
        kind = ServerExhaustedError
    elif is_end_of_session(sqlstate):
        return lost(function=function, queue=queue, sqlstate=sqlstate, reason=message)
    for state, pattern, its_kind, its_code in _OF_TEXT:
        if state == sqlstate and (match := re.search(pattern, message, re.IGNORECASE)):
            kind, code, queue = its_kind, its_code, queue or match.groupdict().get("queue")
            if (name := match.groupdict().get("queue")) is not None:
                if queue is not None and name == f"{queue}_msg_id_seq".lower():
                    name = queue
                message = f"queue {name!r} does not exist"  # in place of one of its relations
            elif kind is QueueNotFoundError and queue is not None:
                message = f"queue {queue!r} does not exist"
            break
    if sqlstate == "40P01" or kind is QueueNotFoundError:
        hint = None  # the server's refers to its log, or is SQL
    own = error_hints.hint_for(code or code_of(kind), sqlstate)
    error = kind(
        message,
        hint=error_hints.in_python(hint) if hint else own,
        detail=detail,
        sqlstate=sqlstate,
        queue=queue,
        function=function,
        code=code,
    )
    error.command_hint = hint and error_hints.as_commands(hint)
    return error


def is_end_of_session(sqlstate: str) -> bool:
    """Return whether the server says with this SQLSTATE that it ends the session, or has lost it."""
    # Connection exceptions; shutdown and crash of the server; transaction_timeout.
    return sqlstate.startswith(("08", "57P")) or sqlstate in (*BEFORE_STATEMENT, "25P04")


def refused(message: str) -> ConnectionFailedError:
    """Return the error for a connection that could not be made, from what the driver says."""
    # PgBouncer's words for the time limits, which a client passes at the start of a session.
    is_pooler = "unsupported startup parameter" in message
    return ConnectionFailedError(message, hint=error_hints.POOLER if is_pooler else None)


def from_driver(
    error: BaseException, *, queue: str | None = None, function: str | None = None
) -> SpanmqError | None:
    """Return the typed error for any driver's exception, or None when it carries no SQLSTATE.

    Unwraps the exceptions of SQLAlchemy (`orig`) and Django (`__cause__`), and reads psycopg's `diag` as well
    as asyncpg's attributes.
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
    """Return whether an upgrade changed the result of a prepared statement; nothing was done."""
    # By the place in the server, which is the same in every language; or by the class of asyncpg.
    place = _text(getattr(error, "diag", None), "source_function")
    return place == "RevalidateCachedQuery" or type(error).__name__ == "InvalidCachedStatementError"


def lost(
    *,
    function: str | None = None,
    queue: str | None = None,
    sqlstate: str | None = None,
    reason: str | None = None,
    is_undone: bool = False,
) -> ConnectionLostError | ConnectionFailedError:
    """Return the error for a connection that was lost during a call, or the commit; with the reason, if it is known.

    `is_undone` says that nothing took effect, as before a commit was sent.
    """
    what = f"{function}()" if function else "the commit"
    where = f" on queue {queue!r}" if queue else ""
    # The first line of a reason is enough: libpq adds what may have happened.
    why = ": ".join(filter(None, (sqlstate, (reason or "").partition("\n")[0])))
    begin = f"the connection was lost during {what}{where}{why and f' ({why})'}"
    hint = error_hints.OF_ENDED_SESSION.get(sqlstate or "")
    if is_undone or sqlstate in BEFORE_STATEMENT:
        if function is None:
            begin = f"the connection was lost in the transaction{why and f' ({why})'}"
        return ConnectionFailedError(
            f"{begin}: nothing took effect",
            hint=hint or error_hints.LOST_UNDONE,
            sqlstate=sqlstate,
            queue=queue,
            function=function,
            code="session_ended",
        )
    return ConnectionLostError(
        f"{begin}: whether it took effect is unknown",
        hint=error_hints.LOST,
        sqlstate=sqlstate,
        queue=queue,
        function=function,
    )


def _text(holder: object, name: str) -> str | None:
    value = getattr(holder, name, None)
    return value if isinstance(value, str) and value else None
