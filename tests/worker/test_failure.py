"""What a handler's exception means."""

import json
import urllib.error
from datetime import timedelta
from types import SimpleNamespace

import psycopg
import pydantic
import pytest

from spanmq import errors
from spanmq.worker.failure import Reject, RetryIn, category_of, judge


class StatusError(Exception):
    def __init__(self, code: int) -> None:
        self.response = SimpleNamespace(status_code=code)


class UnreachableError(ConnectionError):
    pass


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def invalid() -> Exception:
    with pytest.raises(pydantic.ValidationError) as raised:
        pydantic.TypeAdapter(int).validate_python("x")
    return raised.value


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (TimeoutError(), "TRANSIENT"),
        (psycopg.errors.SerializationFailure(), "TRANSIENT"),
        (psycopg.errors.DeadlockDetected(), "TRANSIENT"),
        (psycopg.errors.LockNotAvailable(), "TRANSIENT"),
        (psycopg.errors.QueryCanceled(), "TRANSIENT"),
        (errors.TransactionConflictError("x"), "TRANSIENT"),
        (ConnectionRefusedError(), "DEPENDENCY"),
        (UnreachableError(), "DEPENDENCY"),
        (psycopg.OperationalError("connection refused"), "DEPENDENCY"),
        (psycopg.errors.AdminShutdown(), "DEPENDENCY"),
        (psycopg.errors.IdleInTransactionSessionTimeout(), "TRANSIENT"),
        (errors.lost(sqlstate="25P04", is_undone=True), "TRANSIENT"),
        (errors.lost(sqlstate="57P01", is_undone=True), "DEPENDENCY"),
        (psycopg.errors.TooManyConnections(), "DEPENDENCY"),
        (errors.ConnectionFailedError("x"), "DEPENDENCY"),
        (StatusError(503), "DEPENDENCY"),
        (StatusError(404), None),
        (psycopg.errors.UniqueViolation(), None),
        (ValueError("x"), None),
        (TypeError("x"), None),
        (json.JSONDecodeError("x", "y", 0), None),
        (invalid(), None),
        (urllib.error.URLError("x"), None),
        (KeyError("x"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_category_of_an_exception(error: BaseException, category: str | None) -> None:
    assert category_of(error, {}) == category


def test_categories_of_the_user_go_before_ours_and_the_nearest_class_counts() -> None:
    categories: dict[type[BaseException], str] = {OSError: "PERMANENT", UnreachableError: "BUSINESS"}
    assert category_of(UnreachableError(), categories) == "BUSINESS"
    assert category_of(TimeoutError(), categories) == "PERMANENT"


def test_retry_and_reject_say_it_themselves() -> None:
    retry = judge(RetryIn(timedelta(minutes=1), "later", category="DEPENDENCY"), {})
    assert (retry.verb, retry.retry_in, retry.category, retry.error) == ("nack", 60.0, "DEPENDENCY", "later")
    reject = judge(Reject("no such customer"), {})
    assert (reject.verb, reject.category, reject.error) == ("reject", "BUSINESS", "no such customer")
    with pytest.raises(errors.InvalidArgumentError, match="TRANSIENT"):
        RetryIn(category="LATER")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="seconds"):
        RetryIn(-1)


def test_error_class_and_traceback_are_the_handlers() -> None:
    def handler() -> None:
        raise UnreachableError("nobody there")

    with pytest.raises(UnreachableError) as raised:
        handler()
    failure = judge(raised.value, {})
    assert failure.error_class == f"{__name__}.UnreachableError"
    assert "nobody there" in str(failure.traceback)
    assert "in handler" in str(failure.traceback)
    assert judge(KeyError("x"), {}).error_class == "KeyError"


def test_text_of_any_exception_can_be_stored() -> None:
    assert judge(ValueError("a\0b\ud800"), {}).error == "a\\0b\\ud800"
    assert "RuntimeError" in judge(SilentError(), {}).error
    assert judge(ValueError(), {}).error == "ValueError"
    assert len(judge(ValueError("x" * 10_000), {}).error) == 2_000
