"""What a handler's exception means: again or not, when, and which category. Decides only, no I/O here."""

from __future__ import annotations

import traceback as tracebacks
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from socket import gaierror
from typing import Final, Literal

from spanmq import errors
from spanmq.client.call import duration
from spanmq.errors import InvalidArgumentError

Category = Literal["TRANSIENT", "DEPENDENCY", "PERMANENT", "BUSINESS", "UNKNOWN"]
CATEGORIES: Final = ("TRANSIENT", "DEPENDENCY", "PERMANENT", "BUSINESS", "UNKNOWN")

# What the database keeps of a failure; the end of a traceback tells more than its beginning.
ERROR_LENGTH_MAX: Final = 2_000
TRACEBACK_LENGTH_MAX: Final = 8_000


class RetryIn(Exception):  # noqa: N818, it says what shall happen
    """Raised by a handler: deliver the message again in `seconds`; None: by the queue's backoff."""

    def __init__(
        self, seconds: float | timedelta | None = None, reason: str = "", *, category: Category | None = None
    ) -> None:
        super().__init__(reason)
        self.seconds = None if seconds is None else duration("seconds", seconds).total_seconds()
        self.category = checked_category(category)


class Reject(Exception):  # noqa: N818, it says what shall happen
    """Raised by a handler: never again; the message becomes a dead letter at once."""

    def __init__(self, reason: str = "", *, category: Category = "BUSINESS") -> None:
        super().__init__(reason)
        self.category = checked_category(category)


@dataclass(frozen=True, slots=True)
class Failure:
    """What is to be told to the database about a handler that failed."""

    verb: Literal["nack", "reject"]
    error: str
    category: str | None = None
    retry_in: float | None = None
    error_class: str | None = None
    traceback: str | None = None


def judge(error: BaseException, categories: Mapping[type[BaseException], str]) -> Failure:
    """Decide what an exception means; `categories` are the user's, before ours, the nearest class first."""
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
    return Failure(
        verb,
        storable(_text_of(error) or name)[:ERROR_LENGTH_MAX],
        category,
        retry_in,
        storable(name),
        storable(_trace_of(error))[-TRACEBACK_LENGTH_MAX:],
    )


def category_of(error: BaseException, categories: Mapping[type[BaseException], str]) -> str | None:
    """Give the category of an exception, or None: then the rules in the database decide.

    A ValueError or TypeError is left to them on purpose: it comes of another service's odd answer as often
    as of the message, and a retry too many costs seconds, a dead letter somebody's attention.
    """
    for kind in type(error).__mro__:
        if kind in categories:
            return categories[kind]
    # psycopg's, asyncpg's, SQLAlchemy's and Django's, by SQLSTATE; and our own client's.
    found = error if isinstance(error, errors.SpanmqError) else errors.from_driver(error)
    if isinstance(found, errors.TransactionConflictError | errors.StatementCancelledError):
        return "TRANSIENT"
    if isinstance(
        found, errors.ConnectionFailedError | errors.ConnectionLostError | errors.ServerExhaustedError
    ):
        return "DEPENDENCY"
    if found is not None:
        return None
    if isinstance(error, TimeoutError):
        return "TRANSIENT"
    if isinstance(error, ConnectionError | gaierror) or _is_unreachable_database(error):
        return "DEPENDENCY"
    # Of requests, httpx and others: what the server that was asked could not do.
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(status, int) and 500 <= status <= 599:
        return "DEPENDENCY"
    return None


def checked_category(category: str | None) -> str | None:
    """Refuse a word that is no category."""
    if category is not None and category not in CATEGORIES:
        raise InvalidArgumentError(f"a category is one of {', '.join(CATEGORIES)}, got {category!r}")
    return category


def storable(text: str) -> str:
    """Give a text that PostgreSQL can store, whatever was in it."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _is_unreachable_database(error: BaseException) -> bool:
    kind = type(error)
    return kind.__name__ == "OperationalError" and kind.__module__.startswith("psycopg")


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001, an exception's __str__ may do anything
        return f"(its text can't be had: {type(broken).__name__})"


def _trace_of(error: BaseException) -> str:
    # Without our own frames, which stand above the handler's.
    trace = error.__traceback__
    while trace is not None and f"spanmq{'/'}worker" in trace.tb_frame.f_code.co_filename.replace("\\", "/"):
        trace = trace.tb_next
    try:
        return "".join(tracebacks.format_exception(type(error), error, trace))
    except Exception as broken:  # noqa: BLE001, it prints the exception's text, too
        return f"(the traceback can't be had: {type(broken).__name__})"
