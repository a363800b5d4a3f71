"""How a class comes back out of JSON: the other direction of `body.plain`.

What that makes plain is made again, by the annotations: dataclasses and Pydantic models, dates, times, UUIDs
and enumerations, wherever they stand; and tuples, of which JSON makes lists. What has another annotation
stays as it came, and nothing else is checked: who wants that sends Pydantic models.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, NoReturn, Union
from uuid import UUID

_TEXTS: Final[Mapping[type, Callable[[str], object]]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
}


def parse(value: object, kind: Any) -> Any:
    """Make a value of an annotation `kind`; raises TypeError or ValueError, which name the field.

    Annotations that can't be read are a NameError. A dataclass takes no notice of fields that it doesn't
    know.
    """
    if isinstance(kind, typing.NewType):
        return parse(value, kind.__supertype__)
    if not isinstance(kind, type):
        return _parse_generic(value, kind)
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(value)
    if isinstance(value, kind):  # a decoder that makes dates by itself
        return value
    if dataclasses.is_dataclass(kind):
        return _parse_dataclass(value, kind)
    if issubclass(kind, Enum):
        return kind(value)
    if kind in _TEXTS:
        return _TEXTS[kind](value) if isinstance(value, str) else _misfit(value, kind.__name__)
    if kind is tuple and isinstance(value, list):
        return tuple(value)
    return value


def _parse_dataclass(value: object, kind: type) -> object:
    if not isinstance(value, Mapping):
        _misfit(value, kind.__qualname__)
    fields: dict[str, object] = {}
    for name, annotation in _annotations(kind).items():
        if name in value:
            try:
                fields[name] = parse(value[name], annotation)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{kind.__qualname__}.{name}: {error}") from error
    return kind(**fields)


@cache
def _annotations(kind: Any) -> Mapping[str, Any]:
    try:
        every = typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise NameError(
            f"an annotation of {kind.__qualname__} can't be read: {error} "
            "(is it imported for the type checker only, or made within a function?)"
        ) from error
    return {field.name: every[field.name] for field in dataclasses.fields(kind) if field.init}


def _parse_generic(value: object, kind: Any) -> object:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return parse(value, arguments[0])
    if origin in (Union, types.UnionType):
        return _parse_union(value, arguments)
    if not isinstance(origin, type):
        return value
    if isinstance(value, list) and issubclass(origin, tuple) and arguments[-1:] != (...,):
        if len(value) != len(arguments):
            raise ValueError(f"expected {len(arguments)} elements, got {len(value)}")
        return tuple(parse(each, argument) for each, argument in zip(value, arguments, strict=True))
    if isinstance(value, list) and issubclass(origin, Sequence):
        elements = [parse(each, arguments[0]) for each in value]
        return tuple(elements) if issubclass(origin, tuple) else elements
    if isinstance(value, Mapping) and issubclass(origin, Mapping):
        return {key: parse(each, arguments[1]) for key, each in value.items()}
    return value


def _parse_union(value: object, arguments: tuple[Any, ...]) -> object:
    """Give the first that can be made of it, in the order in which they are written."""
    reasons = []
    for argument in arguments:
        place = typing.get_origin(argument) or argument
        try:
            made = parse(value, argument)
        except (TypeError, ValueError) as error:
            reasons.append(str(error))
            continue
        if not isinstance(place, type) or isinstance(made, place):
            return made
    if reasons:
        raise ValueError("; ".join(reasons))
    return value


def _misfit(value: object, wanted: str) -> NoReturn:
    raise TypeError(f"expected {wanted}, got {type(value).__name__}")
