"""Parsing of classes from JSON: the inverse of `body.plain`.

Values are converted by the annotations: dataclasses and Pydantic models, dates, times, UUIDs and
enumerations, at any depth; and tuples and integers as keys, which JSON represents as lists and strings.
Values with other annotations are returned unchanged, and nothing else is checked except literals, which
distinguish the classes of a union: use Pydantic models for more validation.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, Literal, NoReturn, Union
from uuid import UUID

_TEXTS: Final[Mapping[type, Callable[[str], object]]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
}
_DATE_LENGTH: Final = len("2013-01-01")


def parse(value: object, kind: Any) -> Any:
    """Return a value of an annotation `kind`; raises TypeError or ValueError, which name the field.

    Annotations that can't be read are a NameError. Fields that a dataclass does not have are ignored.
    """
    kind = _unwrapped(kind)
    if not isinstance(kind, type):
        return _parse_generic(value, kind)
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(value)
    if dataclasses.is_dataclass(kind):
        return value if isinstance(value, kind) else _parse_dataclass(value, kind, {})
    if issubclass(kind, Enum):
        return _parse_enumeration(value, kind)
    if kind in _TEXTS:
        if isinstance(value, kind):  # a decoder that makes dates by itself
            return value
        return _TEXTS[kind](value) if isinstance(value, str) else _misfit(value, kind.__name__)
    if issubclass(kind, tuple) and isinstance(value, list):
        return _parse_named_tuple(value, kind) if hasattr(kind, "_fields") else tuple(value)
    return value


def dataclass_of(kind: Any) -> type | None:
    """Return the dataclass of an annotation, with or without its arguments; None for other annotations."""
    origin = typing.get_origin(kind) or kind
    return origin if isinstance(origin, type) and dataclasses.is_dataclass(origin) else None


def _unwrapped(kind: Any) -> Any:
    """Return the type behind an alias, a NewType, Annotated or Final."""
    while True:
        if typing.get_origin(kind) in (Annotated, Final):
            kind = typing.get_args(kind)[0]
        elif isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType":  # Python 3.12 has it, and typing_extensions
            kind = kind.__value__
        else:
            return kind


def _parse_dataclass(value: object, kind: type, given: Mapping[Any, Any]) -> object:
    """Return a dataclass; `given` are the types of a generic one's variables."""
    if not isinstance(value, Mapping):
        _misfit(value, kind.__qualname__)
    fields: dict[str, object] = {}
    for name, annotation in _annotations(kind).items():
        if name in value:
            try:
                fields[name] = parse(value[name], _filled(annotation, given))
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
    if not dataclasses.is_dataclass(kind):  # a named tuple
        return every
    return {field.name: every[field.name] for field in dataclasses.fields(kind) if field.init}


def _filled(annotation: Any, given: Mapping[Any, Any]) -> Any:
    if not given:
        return annotation
    if isinstance(annotation, typing.TypeVar):
        return given.get(annotation, Any)
    parameters = getattr(annotation, "__parameters__", ())
    if not parameters or isinstance(annotation, type):
        return annotation
    return annotation[tuple(given.get(parameter, Any) for parameter in parameters)]


def _parse_enumeration(value: object, kind: type[Enum]) -> object:
    try:
        return kind(value)
    except ValueError:
        # Its values may be what JSON has not.
        for member in kind:
            with suppress(TypeError, ValueError):
                if parse(value, type(member.value)) == member.value:
                    return member
        raise


def _parse_named_tuple(value: list[object], kind: Any) -> object:
    annotations = _annotations(kind)
    return kind(*_parse_tuple(value, kind, tuple(annotations.get(name, Any) for name in kind._fields)))


def _parse_generic(value: object, kind: Any) -> object:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return _parse_union(value, arguments)
    if origin is Literal:
        return _parse_literal(value, arguments)
    if not isinstance(origin, type):
        return value
    if (generic := dataclass_of(kind)) is not None:
        parameters: tuple[Any, ...] = getattr(generic, "__parameters__", ())
        return _parse_dataclass(value, generic, dict(zip(parameters, arguments, strict=False)))
    if isinstance(value, list) and issubclass(origin, tuple):
        return _parse_tuple(value, kind, arguments)
    if not arguments:
        return value
    if isinstance(value, list) and (issubclass(origin, Sequence) or origin in (Iterable, Collection)):
        return [parse(each, arguments[0]) for each in value]
    if isinstance(value, Mapping) and issubclass(origin, Mapping):
        return {_parse_key(key, arguments[0]): parse(each, arguments[-1]) for key, each in value.items()}
    return value


def _parse_tuple(value: list[object], kind: Any, arguments: tuple[Any, ...]) -> tuple[object, ...]:
    if kind is typing.Tuple:  # noqa: UP006, the bare name, which has no elements either
        return tuple(value)
    if arguments[-1:] == (...,):
        return tuple(parse(each, arguments[0]) for each in value)
    if len(value) != len(arguments):
        raise ValueError(f"expected {len(arguments)} elements, got {len(value)}")
    return tuple(parse(each, argument) for each, argument in zip(value, arguments, strict=True))


def _parse_key(key: object, kind: Any) -> object:
    """Return a key, which is a string in JSON."""
    kind = _unwrapped(kind)
    if isinstance(key, str) and isinstance(kind, type) and issubclass(kind, int) and kind is not bool:
        key = int(key)
    return parse(key, kind)


def _parse_literal(value: object, arguments: tuple[Any, ...]) -> object:
    for argument in arguments:
        plain = argument.value if isinstance(argument, Enum) else argument
        if plain == value and type(plain) is type(value):
            return argument
    raise ValueError(f"expected {' or '.join(repr(argument) for argument in arguments)}, got {value!r}")


def _parse_union(value: object, arguments: tuple[Any, ...]) -> object:
    """Return the value as the first type of a union that accepts it, in the order in which they are written.

    A dataclass that has every field takes precedence over one that would lose some.
    """
    reasons = []
    kinds = [_unwrapped(argument) for argument in arguments]
    classes = iter(sorted(filter(dataclass_of, kinds), key=lambda kind: _loses(value, kind)))
    for kind in [next(classes) if dataclass_of(kind) else kind for kind in kinds]:
        if kind is datetime and date in kinds and isinstance(value, str) and len(value) <= _DATE_LENGTH:
            continue  # it would read a date, too
        try:
            made = parse(value, kind)
        except (TypeError, ValueError) as error:
            reasons.append(str(error))
            continue
        if _is_of(made, kind):
            return made
    if reasons:
        raise ValueError("; ".join(reasons))
    return value


def _loses(value: object, kind: Any) -> bool:
    """Return whether parsing as a dataclass would lose some fields."""
    return isinstance(value, Mapping) and not value.keys() <= _annotations(dataclass_of(kind)).keys()


def _is_of(value: object, kind: Any) -> bool:
    place = typing.get_origin(kind) or kind
    if place is Any or not isinstance(place, type):
        return True
    try:
        return isinstance(value, place)
    except TypeError:  # a TypedDict or a Protocol
        return True


def _misfit(value: object, wanted: str) -> NoReturn:
    raise TypeError(f"expected {wanted}, got {type(value).__name__}")
