"""The JSON of requests: bodies of messages go to PostgreSQL as they were written, all else is read.

A request of any size is read by one rule, and a body costs what it takes to see where it ends: 30 ms for
fifteen megabytes of small members, which would take seconds, and hundreds of megabytes, to become Python's.
"""

from collections.abc import Callable, Iterable
from decimal import Decimal
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from spanmq.codec.body import ValidJson
from spanmq.service.http.failure import Refusal

# Of a field of a request's model: its JSON becomes a ValidJson.
VERBATIM: Final = object()
# Members, elements and containers outside of bodies: read within 50 ms.
VALUES_MAX: Final = 100_000


def _number(digits: str) -> float:
    value = float(digits)
    try:
        if isfinite(value) and Decimal(repr(value)) == Decimal(digits):
            return value
    except ArithmeticError:  # an exponent that even Decimal has no room for
        pass
    raise ValueError(f"outside of a body a number is a double, which {digits[:40]} can't be")


_decode: Final = msgspec.json.Decoder(float_hook=_number).decode


class RequestJson:
    """Reads the JSON that a parameter of a type is made of."""

    def __init__(self, kind: Any, constraints: Iterable[Any] = ()) -> None:
        """Read for a `kind`: models and lists of them by their fields, all else as it comes."""
        shape, self._value_of = _shape_of(kind, constraints)
        self._decode = msgspec.json.Decoder(shape).decode

    def read(self, text: bytes) -> Any:
        """Return the value, with a ValidJson for each body.

        Raises msgspec.DecodeError, UnicodeDecodeError or RecursionError for what can't be read, and Refusal with
        413 for too many values.
        """
        return self._value_of(self._decode(text), _Rest())


class _Rest:
    """Reads the parts of one request that are not bodies, as long as they have few values together."""

    def __init__(self) -> None:
        self._left = VALUES_MAX

    def read(self, raw: msgspec.Raw) -> Any:
        text = bytes(raw)
        count = _marks_of(text)
        if count > self._left:
            plain = text.replace(b"\\\\", b"").replace(b'\\"', b"")
            # A member has two strings at most, a string two quotes. Outside of strings is every other part.
            count = plain.count(b'"') // 4
            if count <= self._left:
                count = _marks_of(b"".join(plain.split(b'"')[::2]))
        self._left -= count
        if self._left < 0:
            raise Refusal(
                413,
                "request_too_large",
                f"a request may have {VALUES_MAX:,} values beside the bodies of its messages",
                hint="Send it in several requests.",
            )
        return _decode(text)


_Value = Callable[[Any, _Rest], Any]


def _marks_of(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _shape_of(kind: Any, constraints: Iterable[Any]) -> tuple[Any, _Value]:
    """Return the type that msgspec decodes, and a function that makes plain values of what it decoded."""
    if get_origin(kind) in (Union, UnionType):
        inner = [each for each in get_args(kind) if each is not NoneType]
        if len(inner) == 1 and len(get_args(kind)) == 2:
            shape, value_of = _shape_of(inner[0], constraints)
            if shape is not msgspec.Raw:
                return shape | None, lambda given, rest: None if given is None else value_of(given, rest)
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        return _struct_of(kind)
    elif get_origin(kind) is list and isinstance(element := get_args(kind)[0], type):
        longest = [most for each in constraints if (most := getattr(each, "max_length", None)) is not None]
        if issubclass(element, BaseModel) and longest:
            return _array_of(element, longest[0])
    if VERBATIM in constraints:
        return msgspec.Raw, lambda given, _: ValidJson(bytes(given))
    return msgspec.Raw, lambda given, rest: rest.read(given)


def _struct_of(model: type[BaseModel]) -> tuple[Any, _Value]:
    fields: dict[str, FieldInfo] = model.model_fields
    shapes = {name: _shape_of(field.annotation, field.metadata) for name, field in fields.items()}
    struct = msgspec.defstruct(
        model.__name__,
        [(name, shape, msgspec.UNSET) for name, (shape, _) in shapes.items()],
        forbid_unknown_fields=True,
        gc=False,
    )

    def value_of(given: Any, rest: _Rest) -> dict[str, Any]:
        return {
            name: read(value, rest)
            for name, (_, read) in shapes.items()
            if (value := getattr(given, name)) is not msgspec.UNSET
        }

    return struct, value_of


def _array_of(model: type[BaseModel], longest: int) -> tuple[Any, _Value]:
    """Return what reads a list of at most so many: msgspec itself counts those of a list at its end."""
    shape, read = _struct_of(model)
    names = [f"element{place}" for place in range(longest)]
    array = msgspec.defstruct(
        f"{model.__name__}s",
        [(name, shape, msgspec.UNSET) for name in names],
        array_like=True,
        forbid_unknown_fields=True,
        gc=False,
    )

    def value_of(given: Any, rest: _Rest) -> list[Any]:
        return [read(each, rest) for each in msgspec.structs.astuple(given) if each is not msgspec.UNSET]

    return array, value_of
