"""Types and JSON, by Pydantic: what is written is read as the same value, or refused where it is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from spanmq.errors import ExtraNotInstalledError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# A program parses few types; the limit is for one that makes a type for each message.
_KINDS: Final = 1_000


def parse(value: object, kind: Any) -> Any:
    """Return a value of the type `kind`.

    As JSON, from which alone Pydantic's strict types take a date as a string, and a dataclass of a union as an object.
    Raises TypeError for a `kind` that Pydantic can't validate, and Pydantic's ValidationError, a ValueError.
    """
    adapter = _adapter_of(kind)
    from pydantic_core import to_json

    if isinstance(value, bytes):  # a body of bytes is not JSON
        return adapter.validate_python(value)
    return adapter.validate_json(to_json(value))


def write(value: object, serializer: Any, validator: Any) -> str:
    """Return the JSON of a value, from which the `validator` makes an equal one.

    The `validator` and the `serializer` are those of a type, model or dataclass, to which the value is valid. Raises
    ValueError or TypeError for a value that JSON, by this type, does not keep: a secret, which Pydantic masks, NaN, a
    set where the type allows anything.
    """
    from pydantic_core import PydanticSerializationError

    try:
        text: bytes = serializer.to_json(value, by_alias=True, round_trip=True, warnings="error")
    except PydanticSerializationError:
        # Pydantic does not validate what is in an instance: its JSON shows which field does not fit.
        raw = serializer.to_json(value, by_alias=True, round_trip=True, warnings="none")
        validator.validate_json(raw, strict=True)
        raise TypeError("a field of a dataclass or model has another type than its annotation") from None
    if (change := _change(value, validator.validate_json(text))) is not None:
        place, reason = change
        raise ValueError(f"{place}: {reason}" if place else reason)
    return text.decode()


def _change(sent: Any, read: Any) -> tuple[str, str] | None:
    """Return where a value and what was read of it differ, and how; None if they don't.

    Not by `==` of the whole: a dataclass may leave fields out of it. An object without an equality of its own is as
    good as another one of its type.
    """
    kind: Any = type(sent)
    if _is_whole(kind):
        if _is_equal(sent, read):
            return None
    elif (parts := _parts(sent, read)) is not None:
        for name, part, read_part in parts:
            if (change := _change(part, read_part)) is not None:
                place, reason = change
                return f"{name}.{place}" if place else str(name), reason
        return None
    if hasattr(sent, "get_secret_value"):
        return "", f"JSON masks a {kind.__qualname__}; one that is to be sent has a serializer in its type"
    if kind is type(read):
        return "", f"JSON does not keep this {kind.__qualname__}, another one comes back"
    return "", f"JSON does not keep this {kind.__qualname__}, its type makes of it {type(read).__qualname__}"


def _parts(sent: Any, read: Any) -> Iterable[tuple[Any, Any, Any]] | None:
    """Return the parts of a value and of what was read of it, with their names; None if they have not the same.

    A list or dict may stand for a sequence or mapping of another kind, which a type leaves open; not for a named
    tuple, whose names would be missing.
    """
    kind: Any = type(sent)
    if (names := _names_of(kind)) is not None:
        if type(read) is not kind:
            return None
        parts = [(name, getattr(sent, name, None), getattr(read, name, None)) for name in names]
        if extra := getattr(sent, "__pydantic_extra__", None):
            parts.append(("", extra, read.__pydantic_extra__))
        return parts
    if isinstance(sent, Mapping):
        is_alike = type(read) in (kind, dict) and sent.keys() == read.keys()
        return [(name, part, read[name]) for name, part in sent.items()] if is_alike else None
    is_alike = type(read) is kind or (type(read) is list and not hasattr(sent, "_fields"))
    return zip(count(), sent, read, strict=False) if is_alike and len(sent) == len(read) else None


@lru_cache(_KINDS)
def _is_whole(kind: type) -> bool:
    return _names_of(kind) is None and not issubclass(kind, Mapping | list | tuple)


@lru_cache(_KINDS)
def _names_of(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a dataclass or model, None for other types."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    fields = getattr(kind, "__pydantic_fields__", None)
    return None if fields is None else tuple(fields)


def _is_equal(sent: Any, read: Any) -> bool:
    if type(sent) is type(read) and getattr(type(sent), "__eq__", None) is object.__eq__:
        return True
    try:
        return bool(sent == read) or bool(sent != sent and read != read)  # NaN
    except Exception:  # noqa: BLE001, an equality may be anything, as that of arrays
        return False


def reasons(error: Exception, whole: str) -> str:
    """Return what is wrong, in one line and without the values; `whole` names what is not of any field."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or whole}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    )


@lru_cache(_KINDS)
def _adapter_of(kind: Any) -> TypeAdapter[Any]:
    try:
        from pydantic import TypeAdapter
    except ImportError as error:
        raise ExtraNotInstalledError(
            "messages are parsed by Pydantic, which is not installed", extra="tasks"
        ) from error
    try:
        adapter = TypeAdapter(kind)
        adapter.rebuild(raise_errors=True)
    except Exception as error:  # an annotation may be anything
        raise TypeError(f"{kind!r} can't be parsed: {error}") from error
    return adapter
