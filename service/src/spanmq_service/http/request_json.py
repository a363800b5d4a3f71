"""The JSON of requests, decoded into types; bodies of messages go to PostgreSQL as they were written.

A request of any size is read by one rule, and a body costs what it takes to see where it ends: 30 ms for
fifteen megabytes of small members, which would take seconds, and hundreds of megabytes, to become Python's.
"""

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from spanmq.codec import ValidJson
from spanmq_service.http.failure import Refusal

# Of a field: its JSON becomes a ValidJson.
VERBATIM: Final = object()
# Members, elements and containers outside of bodies: read within 50 ms.
VALUES_MAX: Final = 100_000
PROBLEM_MAX: Final = 500
SCALARS: Final = (str, int, float, bool, NoneType)
# At the end of a message of msgspec: where in the JSON.
_PATH: Final = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_WORDS: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "null": "null",
    "object": "an object",
    "str": "a string",
}
_TYPES: Final = re.compile(f"`((?:{'|'.join(_WORDS)})(?: [|] (?:{'|'.join(_WORDS)}))*)`")

# A bound that is written as a float.
_WHOLE: Final = re.compile(r"([<>]=? \d+)\.0$")

_Decode = Callable[[bytes], Any]
_Value = Callable[[Any, "_Rest"], Any]


class RequestJson:
    """Reads the JSON of one type: a Struct, or anything that msgspec decodes."""

    def __init__(self, kind: Any) -> None:
        """Read for a `kind`, whose free-form parts are read as long as they have few values together."""
        shape, self._value_of = _shape_of(kind)
        self._decode = msgspec.json.Decoder(shape).decode

    def read(self, text: bytes) -> Any:
        """Return the value, with a ValidJson for each body.

        Raises msgspec.DecodeError, UnicodeDecodeError or RecursionError for what can't be read, and Refusal with
        413 for too many values.
        """
        value = self._decode(text)
        return value if self._value_of is None else self._value_of(value, _Rest())


def problem_of(error: msgspec.DecodeError, place: str) -> str:
    """Return where in a place of a request an error is, and what is wrong, in the words of JSON."""
    problem, path = _parts_of(error)
    problem = problem.replace("Object ", "").replace("required field", "the required member")
    problem = problem.replace("contains unknown field", "contains the unknown member")
    problem = _TYPES.sub(lambda types: " or ".join([_WORDS[word] for word in types[1].split(" | ")]), problem)
    problem = _WHOLE.sub(r"\1", problem)
    # An unknown member may have any name.
    return f"{place}{path}: {problem[0].lower()}{problem[1:]}"[:PROBLEM_MAX]


def _parts_of(error: msgspec.DecodeError) -> tuple[str, str]:
    """Return what is wrong, and the path of the value in the JSON."""
    match = _PATH.fullmatch(str(error))
    assert match is not None
    return match["problem"], match["path"] or ""


def moment(text: str) -> datetime:
    """Parse a time in ISO 8601; raises msgspec.ValidationError. msgspec itself wants seconds, which Java leaves out."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise msgspec.ValidationError("a time must be a string in ISO 8601, with a time zone")
    return parsed


class _Rest:
    """Reads the parts of one request that are not bodies, as long as they have few values together."""

    def __init__(self) -> None:
        self._left = VALUES_MAX

    def read(self, raw: msgspec.Raw, decode: _Decode) -> Any:
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
        return decode(text)


def _marks_of(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _number(digits: str) -> float:
    value = float(digits)
    try:
        if isfinite(value) and Decimal(repr(value)) == Decimal(digits):
            return value
    except ArithmeticError:  # an exponent that even Decimal has no room for
        pass
    raise ValueError(f"outside of a body a number is a double, which {digits[:40]} can't be")


def _shape_of(kind: Any) -> tuple[Any, _Value | None]:
    """Return the type that msgspec decodes at once, and what makes a value of it, None if it is one."""
    inner, constraints, is_optional = _unwrapped(kind)
    if VERBATIM in constraints:
        return msgspec.Raw, lambda raw, _: ValidJson(bytes(raw))
    members = _members_of(kind)
    if all(member in SCALARS or get_origin(member) is Literal for member in members):
        return kind, None
    if all(member in SCALARS or member is datetime for member in members):
        return _timeless(kind), lambda value, _: moment(value) if isinstance(value, str) else value
    nested: tuple[Any, _Value | None] | None = None
    if is_struct(inner):
        nested = _struct_of(inner)
    elif get_origin(inner) is list and is_struct(get_args(inner)[0]):
        nested = _array_of(get_args(inner)[0], constraints)
    if nested is not None:
        return _optional(*nested) if is_optional else nested
    decode = msgspec.json.Decoder(kind, float_hook=_number).decode
    return msgspec.Raw, lambda raw, rest: rest.read(raw, decode)


def _struct_of(kind: type[msgspec.Struct]) -> tuple[Any, _Value | None]:
    fields = msgspec.structs.fields(kind)
    shapes = {field.name: _shape_of(field.type) for field in fields}
    read = {name: value_of for name, (_, value_of) in shapes.items() if value_of is not None}
    if not read:
        return kind, None
    members: list[Any] = [
        (name, shape) if field.required else (name, shape, msgspec.UNSET)
        for field, (name, (shape, _)) in zip(fields, shapes.items(), strict=True)
    ]
    shape = msgspec.defstruct(kind.__name__, members, forbid_unknown_fields=True, kw_only=True, gc=False)

    def value_of(decoded: Any, rest: _Rest) -> msgspec.Struct:
        values = {name: value for name in shapes if (value := getattr(decoded, name)) is not msgspec.UNSET}
        for name, read_member in read.items():
            if name in values:
                values[name] = _within(f".{name}", read_member, values[name], rest)
        return kind(**values)

    return shape, value_of


def _array_of(kind: type[msgspec.Struct], constraints: tuple[Any, ...]) -> tuple[Any, _Value]:
    """Return what reads a list of at most so many: msgspec itself counts those of a list at its end."""
    [limits] = [constraint for constraint in constraints if isinstance(constraint, msgspec.Meta)]
    shape, read = _struct_of(kind)
    array = msgspec.defstruct(
        f"{kind.__name__}s",
        [(f"element{place}", shape, msgspec.UNSET) for place in range(limits.max_length or 0)],
        array_like=True,
        forbid_unknown_fields=True,
        gc=False,
    )

    def value_of(decoded: Any, rest: _Rest) -> list[Any]:
        elements = [element for element in msgspec.structs.astuple(decoded) if element is not msgspec.UNSET]
        if len(elements) < (limits.min_length or 0):
            raise msgspec.ValidationError(f"Expected `array` of length >= {limits.min_length}")
        if read is None:
            return elements
        return [_within(f"[{place}]", read, element, rest) for place, element in enumerate(elements)]

    return array, value_of


def _optional(shape: Any, read: _Value | None) -> tuple[Any, _Value | None]:
    if read is None:
        return shape | None, None
    return shape | None, lambda value, rest: None if value is None else read(value, rest)


def _within(place: str, read: _Value, value: Any, rest: _Rest) -> Any:
    """Return what `read` does, with errors that say in which place of its parent the value is."""
    try:
        return read(value, rest)
    except msgspec.DecodeError as error:
        problem, path = _parts_of(error)
        raise msgspec.ValidationError(f"{problem} - at `${place}{path}`") from error


def is_struct(kind: Any) -> bool:
    """Return whether a type is a Struct."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _unwrapped(kind: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Return a type without its constraints and null, the constraints, and whether it may be null."""
    constraints: tuple[Any, ...] = ()
    if get_origin(kind) is Annotated:
        kind, constraints = kind.__origin__, kind.__metadata__
    others = [member for member in get_args(kind) if member is not NoneType] if _is_union(kind) else []
    if len(others) != 1:
        return kind, constraints, False
    inner, more, _ = _unwrapped(others[0])
    return inner, constraints + more, True


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _members_of(kind: Any) -> list[Any]:
    """Return the types of a union, without their constraints."""
    if get_origin(kind) is Annotated:
        return _members_of(kind.__origin__)
    return [member for part in get_args(kind) for member in _members_of(part)] if _is_union(kind) else [kind]


def _timeless(kind: Any) -> Any:
    """Return a type with strings in place of times."""
    if _is_union(kind):
        return Union[tuple(_timeless(part) for part in get_args(kind))]  # noqa: UP007, of any number of types
    return str if _members_of(kind) == [datetime] else kind
