"""The arguments of a call: their values as text, and the SQL for their types."""

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from spanmq.errors import InvalidArgumentError

Seconds = float | timedelta
Delay = float | timedelta | datetime


@dataclass(frozen=True, slots=True)
class Argument:
    """A named argument: its value as text, and the SQL for its type (`{}` is the value)."""

    name: str
    value: str | None
    expression: str

    def to(self, name: str) -> "Argument":
        """Return it under the name that the SQL function has for it, where the caller's is another."""
        return Argument(name, self.value, self.expression)


def text(name: str, value: str | None) -> Argument:
    """Pass a text."""
    if value is not None:
        _check_text(name, value)
    return Argument(name, value, "cast({} as text)")


def queue_name(name: str, value: str) -> Argument:
    """Pass the name of a queue; what makes a name valid is the server's to say."""
    _check_text("a queue's name", value, code="invalid_queue_name")
    return Argument(name, value, "cast({} as text)")


def integer(name: str, value: int) -> Argument:
    """Pass an int."""
    return Argument(name, str(_index(name, value)), "cast({} as integer)")


def bigint(name: str, value: int) -> Argument:
    """Pass a bigint."""
    return Argument(name, str(_index(name, value)), "cast({} as bigint)")


def bigints(name: str, values: int | Iterable[int]) -> Argument:
    """Pass an array of bigints; one number is an array of one."""
    if isinstance(values, str | bytes | bytearray | memoryview):  # whose elements may be numbers
        raise InvalidArgumentError(f"{name} must be integers, got {type(values).__qualname__}")
    try:
        numbers = iter([values] if isinstance(values, int) else values)
    except TypeError as error:
        raise InvalidArgumentError(f"{name} must be integers, got {type(values).__qualname__}") from error
    literal = ",".join([str(_index(name, number)) for number in numbers])
    return Argument(name, f"{{{literal}}}", "cast({} as bigint[])")


def boolean(name: str, value: bool) -> Argument:
    """Pass a truth value."""
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name} must be True or False, got {value!r}")
    return Argument(name, str(value).lower(), "cast({} as boolean)")


def flag_or_any(name: str, value: bool | None) -> Argument:
    """Pass a truth value, or None, which stands for either."""
    return Argument(name, None, "cast({} as boolean)") if value is None else boolean(name, value)


def real(name: str, value: float) -> Argument:
    """Pass a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgumentError(f"{name} must be a number, got {value!r}")
    return Argument(name, repr(float(value)), "cast({} as double precision)")


def texts(name: str, values: Iterable[str | None]) -> Argument:
    """Pass an array of texts; None is SQL's null."""
    elements = [text(name, value).value for value in values]
    return Argument(name, jsons(name, elements).value, "cast({} as text[])")


def uuid(name: str, value: str) -> Argument:
    """Pass a UUID, as a text."""
    return Argument(name, text(name, value).value, "cast({} as uuid)")


def uuids(name: str, values: Iterable[str]) -> Argument:
    """Pass an array of UUIDs, as texts."""
    return Argument(name, texts(name, values).value, "cast({} as uuid[])")


def json(name: str, encoded: str | None) -> Argument:
    """Pass JSON that is encoded already."""
    return Argument(name, encoded, "cast({} as jsonb)")


def jsons(name: str, encoded: Iterable[str | None]) -> Argument:
    """Pass an array of encoded JSON; None is SQL's null."""
    elements = [
        "NULL" if element is None else '"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for element in encoded
    ]
    return Argument(name, "{" + ",".join(elements) + "}", "cast({} as jsonb[])")


def duration(name: str, value: Seconds) -> timedelta:
    """Read seconds, none or more."""
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise InvalidArgumentError(f"{name} must be seconds or a timedelta, got {type(value).__qualname__}")
    try:
        length = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (OverflowError, ValueError) as error:  # too long; not a number
        raise InvalidArgumentError(f"{name} is out of range, got {value}") from error
    if length < timedelta():
        raise InvalidArgumentError(f"{name} cannot be negative, got {value}")
    return length


def seconds(name: str, value: Seconds) -> Argument:
    """Pass seconds with their fraction."""
    return Argument(name, repr(duration(name, value).total_seconds()), "cast({} as double precision)")


def whole_seconds(name: str, value: Seconds) -> Argument:
    """Pass seconds to one of PGMQ's calls, which know whole ones only: rounded up."""
    return integer(name, math.ceil(duration(name, value).total_seconds()))


def milliseconds(name: str, value: Seconds) -> Argument:
    """Pass seconds as whole milliseconds."""
    return integer(name, round(duration(name, value).total_seconds() * 1000))


def moment(name: str, value: Delay) -> Argument:
    """Pass a point in time: a datetime, or a duration from the *server's* now."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidArgumentError(f"{name} must be a datetime with a time zone, got {value!r}")
        try:
            at = value.astimezone(UTC)
        except OverflowError as error:  # within hours of the first or the last year that Python knows
            raise InvalidArgumentError(f"{name} is out of range, got {value}") from error
        return Argument(name, at.isoformat(), "cast({} as timestamptz)")
    whole, microseconds = divmod(duration(name, value), timedelta(seconds=1))
    # As a clock face: PostgreSQL 14 reads no count beyond 32 bits, and a day may have 23 hours.
    face = f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}.{microseconds.microseconds:06}"
    return Argument(name, face, "pg_catalog.clock_timestamp() + cast({} as interval)")


def instant(name: str, value: datetime) -> Argument:
    """Pass a point in time, which is not a duration."""
    if not isinstance(value, datetime):
        raise InvalidArgumentError(f"{name} must be a datetime with a time zone, got {value!r}")
    return moment(name, value)


def moments(name: str, values: Iterable[datetime]) -> Argument:
    """Pass an array of datetimes."""
    elements = [moment(name, value).value for value in values]
    return Argument(name, jsons(name, elements).value, "cast({} as timestamptz[])")


def seconds_from_now(name: str, value: Delay) -> Argument:
    """Pass a delay, or a moment as one, by the server's clock."""
    if not isinstance(value, datetime):
        return seconds(name, value)
    return Argument(
        name,
        moment(name, value).value,
        "cast(greatest(0, extract(epoch from cast({} as timestamptz) - pg_catalog.clock_timestamp()))"
        " as double precision)",
    )


def _check_text(what: str, value: object, code: str | None = None) -> None:
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{what} must be a string, got {type(value).__qualname__}", code=code)
    queue = None if code is None else value
    if "\0" in value:
        raise InvalidArgumentError(
            f"{what} contains the character NUL, which PostgreSQL can't store", queue=queue, code=code
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{what} contains an unpaired surrogate, which is not a character", queue=queue, code=code
        ) from error


def _index(name: str, value: int) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError as error:
        raise InvalidArgumentError(f"{name} must be an integer, got {value!r}") from error


def optional(
    make: Callable[[str, Any], Argument], name: str, value: object, *, to: str | None = None
) -> tuple[Argument, ...]:
    """Pass an argument, or leave it to the function's default if it is None; `to`: its name in SQL if another."""
    return () if value is None else (make(name, value).to(to or name),)
