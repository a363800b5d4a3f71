"""JSON whose numbers keep their digits: neither a price nor an id of many digits becomes a float."""

import json
from decimal import Decimal
from typing import Any, Final


class Number(str):
    """A number as it is written."""

    __slots__ = ()


def int_of(digits: str) -> int:
    """Read an integer of any length: Python refuses more than 4,300 digits, PostgreSQL keeps 131,072.

    The time grows with the square of the digits.
    """
    return int(Decimal(digits))


def json_of(text: str) -> Any:
    """Parse JSON with Python's own numbers; raises ValueError if it is not valid, for NaN and its kin too."""
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _long_number_decoder.decode(text)


def loads(text: str) -> Any:
    """Parse JSON, with each number as a Number; raises ValueError if it is not valid, or nested too deep."""
    try:
        return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def dumps(value: Any) -> str:
    """Write a value as JSON without blanks, and its numbers as they were."""
    if isinstance(value, dict):
        items = (f"{json.dumps(name, ensure_ascii=False)}:{dumps(member)}" for name, member in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dumps, value)) + "]"
    return str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_decoder: Final = json.JSONDecoder(parse_constant=_refuse)
# Apart, because it calls Python for each number.
_long_number_decoder: Final = json.JSONDecoder(parse_constant=_refuse, parse_int=int_of)
