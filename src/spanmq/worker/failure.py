"""The meaning of a handler's exception: whether and when to retry, and the category. No I/O here."""

import traceback as tracebacks
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from socket import gaierror
from typing import Final, Literal

from spanmq import errors
from spanmq.client.argument import duration
from spanmq.errors import InvalidArgumentError

Category = Literal["TRANSIENT", "DEPENDENCY", "PERMANENT", "BUSINESS", "UNKNOWN"]
CATEGORIES: Final = ("TRANSIENT", "DEPENDENCY", "PERMANENT", "BUSINESS", "UNKNOWN")

# Time limits of one's own transaction: idle_in_transaction_session_timeout, transaction_timeout. The server is well.
OWN_LIMITS: Final = ("25P03", "25P04")

# The length of an error that is stored in the database; the end of a traceback is the most useful part.
ERROR_LENGTH_MAX: Final = 2_000
TRACEBACK_LENGTH_MAX: Final = 8_000


class RetryIn(Exception):  # noqa: N818, it says what shall happen
    """Raised by a handler: retry the message in `seconds`; None: after the queue's backoff.

    `reason` is the error that is stored, `category` that of the failure; None: by the rules in the database. Raises
    InvalidArgumentError for a negative time or an unknown category.
    """

    def __init__(
        self, seconds: float | timedelta | None = None, reason: str = "", *, category: Category | None = None
    ) -> None:
        super().__init__(reason)
        self.seconds = None if seconds is None else duration("seconds", seconds).total_seconds()
        self.category = checked_category(category)


class RetryAfter(RetryIn):
    """Raised by a handler that was told to come later, as by a 429: as RetryIn, and all workers wait until then.

    Until the `seconds` are over nobody receives from the bucket of a rate limit that the message was drawn from: that
    of its group, or of its queue. `reason` and `category` are those of RetryIn. Without a rate limit only the message
    waits. Raises InvalidArgumentError for a negative time or an unknown category.
    """

    def __init__(
        self, seconds: float | timedelta, reason: str = "", *, category: Category | None = "TRANSIENT"
    ) -> None:
        super().__init__(seconds, reason, category=category)


class Reject(Exception):  # noqa: N818, it says what shall happen
    """Raised by a handler: do not retry; the message becomes a dead letter at once.

    `reason` is the error that is stored, `category` that of the dead letter. Raises InvalidArgumentError for an
    unknown category.
    """

    def __init__(self, reason: str = "", *, category: Category = "BUSINESS") -> None:
        super().__init__(reason)
        self.category = checked_category(category)


@dataclass(frozen=True, slots=True)
class HandlerFailure:
    """The failure of a handler, as it is reported to the database."""

    verb: Literal["nack", "reject"]
    error: str
    category: str | None = None
    retry_in: float | None = None
    error_class: str | None = None
    traceback: str | None = None
    closes_bucket: bool = False


def judge(error: BaseException, categories: Mapping[type[BaseException], str]) -> HandlerFailure:
    """Return the failure for an exception; the user's `categories` take precedence, the nearest class first."""
    verb: Literal["nack", "reject"] = "nack"
    category: str | None
    retry_in = None
    if isinstance(error, RetryIn):
        category, retry_in = error.category, error.seconds
    elif isinstance(error, Reject):
        verb, category = "reject", error.category
    else:
        category = category_of(error, categories)
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return HandlerFailure(
        verb,
        storable(_text_of(error) or name)[:ERROR_LENGTH_MAX],
        category,
        retry_in,
        storable(name),
        storable(_trace_of(error))[-TRACEBACK_LENGTH_MAX:],
        isinstance(error, RetryAfter),
    )


def category_of(error: BaseException, categories: Mapping[type[BaseException], str]) -> str | None:
    """Return the category of an exception; None if the rules in the database are to decide.

    ValueError and TypeError are left to them: an unexpected answer of another service causes them as often as
    the message does, and an unnecessary retry costs less than an unnecessary dead letter.
    """
    for kind in type(error).__mro__:
        if kind in categories:
            return categories[kind]
    # Errors of psycopg, asyncpg, SQLAlchemy and Django, by SQLSTATE; and those of spanmq's own client.
    typed = error if isinstance(error, errors.SpanmqError) else errors.from_driver(error)
    if isinstance(typed, errors.TransactionConflictError | errors.StatementCancelledError):
        return "TRANSIENT"
    if typed is not None and typed.sqlstate in OWN_LIMITS:
        return "TRANSIENT"
    if isinstance(
        typed, errors.ConnectionFailedError | errors.ConnectionLostError | errors.ServerExhaustedError
    ):
        return "DEPENDENCY"
    if typed is not None:
        return None
    if isinstance(error, TimeoutError):
        return "TRANSIENT"
    if isinstance(error, ConnectionError | gaierror) or _is_unreachable_database(error):
        return "DEPENDENCY"
    # Errors of requests, httpx and similar libraries: server errors of another service.
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(status, int) and 500 <= status <= 599:
        return "DEPENDENCY"
    return None


def checked_category(category: str | None) -> str | None:
    """Return the category; raises InvalidArgumentError if it does not exist."""
    if category is not None and category not in CATEGORIES:
        raise InvalidArgumentError(f"a category is one of {', '.join(CATEGORIES)}, got {category!r}")
    return category


def storable(text: str) -> str:
    """Return the text without characters that PostgreSQL cannot store."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _is_unreachable_database(error: BaseException) -> bool:
    kind = type(error)
    return kind.__name__ == "OperationalError" and kind.__module__.startswith("psycopg")


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001, an exception's __str__ may do anything
        return f"(its text is not available: {type(broken).__name__})"


def _trace_of(error: BaseException) -> str:
    # Without the worker's own frames, which precede the handler's.
    trace = error.__traceback__
    while trace is not None and f"spanmq{'/'}worker" in trace.tb_frame.f_code.co_filename.replace("\\", "/"):
        trace = trace.tb_next
    try:
        return "".join(tracebacks.format_exception(type(error), error, trace))
    except Exception as broken:  # noqa: BLE001, it prints the exception's text, too
        return f"(the traceback is not available: {type(broken).__name__})"
