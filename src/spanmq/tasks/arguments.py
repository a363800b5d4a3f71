"""The arguments of a task: from a call to JSON and back, as the function's signature says."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

from spanmq.codec.body import RawJson, Unstored, ValidJson
from spanmq.errors import InvalidArgumentError, TaskArgumentsError
from spanmq.model.parse import reasons, write
from spanmq.tasks.call import Call
from spanmq.tasks.sending import BatchCall
from spanmq.tasks.signals import Wait

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# The default of a parameter that the worker passes: then a type checker asks no caller for it.
GIVEN: Final[Any] = object()

# The classes that a worker passes by the name of the parameter, and their names.
INJECTED: Final = {
    "message": "Message",
    "batch": "BatchResult",
    "results": "list[Result]",
    "signal": "Signal",
    "connection": "Connection",
    "session": "Session",
}


# The types of what a task returns to have it sent.
STEPS: Final = (Call, BatchCall, Wait)
# A value of each type of JSON.
PROBES: Final = {"string": "", "number": 0, "boolean": True, "null": None, "array": [], "object": {}}


class Arguments:
    """The parameters that a function takes from its callers, and those from the worker (`injected`)."""

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        self._function = function
        self._task = task
        parameters = inspect.signature(function).parameters
        self.injected = frozenset(
            name for name, parameter in parameters.items() if name in INJECTED and is_injected(parameter)
        )
        if {"connection", "session"} <= self.injected:
            raise InvalidArgumentError(
                f"task {task!r} takes a connection and a session: one of them acks", code="invalid_handler"
            )
        self._of_resources = [
            name
            for name, parameter in parameters.items()
            if parameter.default is GIVEN and name not in self.injected
        ]
        for parameter in parameters.values():
            if parameter.name in self._of_resources and parameter.annotation is parameter.empty:
                raise InvalidArgumentError(
                    f"no worker passes {parameter.name!r} to task {task!r}",
                    hint=f"By name it passes {', '.join(INJECTED)}, all else by the type of a resource.",
                    code="invalid_handler",
                )
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise InvalidArgumentError(
                    f"task {task!r} takes {parameter}: each argument must have a name",
                    hint="A task has no *args, no **kwargs and no positional-only parameters.",
                    code="invalid_handler",
                )
        provided = self.injected.union(self._of_resources)
        self._sent = [parameter for name, parameter in parameters.items() if name not in provided]
        self._positional = [
            parameter.name for parameter in self._sent if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        self._head = f'{{"task":{json.dumps(task)},"args":'

    @cached_property
    def _hints(self) -> dict[str, Any]:
        # At the first use, because annotations may name objects that are defined further down in the module.
        return get_type_hints(self._function, include_extras=True)

    @cached_property
    def resources(self) -> dict[str, Any]:
        """The types of the parameters that get a resource, by name."""
        if not self._of_resources:
            return {}
        return {
            name: getattr(self._hints[name], "__origin__", None)
            if hasattr(self._hints[name], "__metadata__")
            else self._hints[name]
            for name in self._of_resources
        }

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        from typing import NotRequired

        from pydantic import ConfigDict
        from typing_extensions import TypedDict

        try:
            fields: dict[str, Any] = {
                parameter.name: self._hints.get(parameter.name, Any)
                if parameter.default is parameter.empty
                else NotRequired[self._hints.get(parameter.name, Any)]
                for parameter in self._sent
            }
            # Functional, because the fields are known only here.
            shape = TypedDict(self._task, fields)  # type: ignore[misc]
            shape.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
        except Exception as error:  # an annotation may be anything
            raise InvalidArgumentError(
                f"the signature of task {self._task!r} can't be read: {error}", code="invalid_handler"
            ) from error
        return adapter_of(shape, f"the signature of task {self._task!r}")

    @cached_property
    def _result(self) -> TypeAdapter[Any]:
        return adapter_of(self._result_hint, f"the type of the result of task {self._task!r}")

    @cached_property
    def _result_hint(self) -> Any:
        """The type of what is stored of what the function returns: steps are sent."""
        hint = self._hints.get("return", Any)
        if get_origin(hint) in (Union, UnionType):
            hints = [member for member in get_args(hint) if not _is_of_steps(member)]
            return Union[tuple(hints)] if hints else None  # noqa: UP007, of types that are known only here
        return None if _is_of_steps(hint) else hint

    @cached_property
    def _read(self) -> Callable[[object], dict[str, Any]]:
        return reader_of(self._adapter, is_json=all(map(is_json, self._sent_hints)))

    @cached_property
    def _read_result(self) -> Callable[[object], Any]:
        return reader_of(self._result, is_json=is_json(self._result_hint))

    @cached_property
    def _write(self) -> Callable[[dict[str, Any]], str]:
        return writer_of(self._adapter, is_json=all(is_json(hint, kept=True) for hint in self._sent_hints))

    @cached_property
    def _write_result(self) -> Callable[[Any], str]:
        return writer_of(self._result, is_json=is_json(self._result_hint, kept=True))

    @property
    def _sent_hints(self) -> list[Any]:
        return [self._hints.get(parameter.name, Any) for parameter in self._sent]

    def read_result(self, value: Any) -> Any:
        """Return a stored result, which is JSON, as the type that the signature says.

        Raises InvalidArgumentError for a type that can't be read, and for a value that does not fit it.
        """
        # Bytes are stored as those of a body are.
        read = self._result.validate_python if isinstance(value, bytes) else self._read_result
        try:
            return read(value)
        except ValueError as error:
            raise InvalidArgumentError(
                f"the result of task {self._task!r} does not fit its type: {reasons(error, 'result')}",
                code="invalid_handler",
            ) from error

    def write_result(self, value: Any) -> object:
        """Return what is stored of a result: its JSON by the type in the signature, or why there is none."""
        if isinstance(value, bytes | RawJson | Unstored):
            return value
        try:
            return ValidJson(self._write_result(value))
        except (TypeError, ValueError, RecursionError) as error:
            return Unstored(f"it does not fit the type in the signature: {reasons(error, 'result')}")

    def check_result(self) -> None:
        """Raise InvalidArgumentError for a type of the result that can't be stored; NameError if it is not defined yet.

        It is checked without a value. A value that does not fit is found when there is one.
        """
        if is_json(self._result_hint, kept=True):
            return
        try:
            self._result.json_schema(mode="serialization")
            if not _is_masked(self._result.core_schema):
                return
            reason = "JSON masks a secret; one that is to be stored has a serializer in its type"
        except Exception as error:  # noqa: BLE001, an annotation may be anything
            reason = str(error).partition("\n")[0]
        raise InvalidArgumentError(
            f"task {self._task!r} can't store a result of the type {self._result_hint}: {reason}",
            hint="Return a value that JSON can represent, or register the task without store_result.",
            code="invalid_handler",
        )

    def check(self, *, with_result: bool = False) -> None:
        """Raise InvalidArgumentError for a signature that can't be read; with `with_result`, a result's type, too."""
        _ = self._read, self.resources
        if with_result:
            _ = self._write_result

    def write(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the JSON of a message's body; raises TaskArgumentsError unless a worker could read it."""
        return self.write_typed(args, kwargs)[0]

    def write_typed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
        """Return the JSON of a message's body, and the names and types of the arguments; raises as `write`."""
        write = self._write
        try:
            # Which are missing or unknown, Pydantic finds.
            values = dict(zip(self._positional, args, strict=False)) | kwargs
            if len(values) < len(args) + len(kwargs):
                raise TypeError("there are more arguments than parameters, or one is passed twice")
            return f"{self._head}{write(values)}}}", (*values, *map(type, values.values()))
        except (TypeError, ValueError, RecursionError) as error:
            raise TaskArgumentsError(f"task {self._task!r}: {reasons(error, 'arguments')}") from error

    def compare(self, names: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
        """Compare names of arguments with the signature.

        Returns which are missing and have no default, which are missing and have one, and which it does not take.
        """
        names = {*names}
        missing = [parameter for parameter in self._sent if parameter.name not in names]
        return (
            [parameter.name for parameter in missing if parameter.default is parameter.empty],
            [parameter.name for parameter in missing if parameter.default is not parameter.empty],
            sorted(names - {parameter.name for parameter in self._sent}),
        )

    def misfits(self, shape: Mapping[str, str]) -> list[str]:
        """Return the names of the arguments that no value of their JSON type fits.

        Pydantic tells a wrong type from a wrong value of a type that may fit.
        """
        try:
            self._read({name: PROBES.get(kind) for name, kind in shape.items()})
        except ValueError as error:
            wrong: dict[str, bool] = {}
            for detail in error.errors() if hasattr(error, "errors") else ():
                name = str(detail["loc"][0]) if detail["loc"] else ""
                wrong[name] = wrong.get(name, True) and detail["type"].endswith("_type")
            return [name for name in shape if wrong.get(name)]
        except Exception:  # noqa: BLE001, a validator may raise anything for a value that no sender has sent
            return []
        return []

    def read(self, values: object) -> dict[str, Any]:
        """Return the arguments of a body; raises TaskArgumentsError for what does not fit."""
        read = self._read
        try:
            return read(values)
        except ValueError as error:
            raise TaskArgumentsError(
                f"the arguments do not fit task {self._task!r}: {reasons(error, 'arguments')}"
            ) from error


def is_injected(parameter: inspect.Parameter) -> bool:
    """Return whether the worker passes a parameter of one of these names, and not the caller."""
    annotation = parameter.annotation
    is_bare = annotation is parameter.empty and parameter.name in ("connection", "session")
    if parameter.default is GIVEN or is_bare:
        return True
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return text.partition("[")[0].strip("'\"").endswith(INJECTED[parameter.name])


def is_json(hint: Any, *, kept: bool = False) -> bool:
    """Return whether what JSON makes of a value of this type is of this type; with `kept`, whether it is the value."""
    if hint in (str, int, float, bool, None, NoneType):
        return True
    if hint is Any:
        return not kept
    inner = get_args(hint)
    if get_origin(hint) is dict:
        return inner[0] is str and is_json(inner[1], kept=kept)
    return get_origin(hint) in (list, Union, UnionType) and all(is_json(part, kept=kept) for part in inner)


def adapter_of(hint: Any, what: str) -> TypeAdapter[Any]:
    """Return Pydantic's adapter of a type; raises InvalidArgumentError for one that it has none for."""
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(hint)
    except Exception as error:  # an annotation may be anything
        raise InvalidArgumentError(f"{what} can't be read: {error}", code="invalid_handler") from error


def reader_of(adapter: TypeAdapter[Any], *, is_json: bool) -> Callable[[object], Any]:
    """Return what makes a value of JSON that was parsed; with `is_json` its type takes this as it is."""
    validator = adapter.validator
    if is_json:
        return validator.validate_python
    from pydantic_core import to_json

    # As JSON: Pydantic's strict types take a date from a string there, and only there.
    return lambda value: validator.validate_json(to_json(value))


def writer_of(adapter: TypeAdapter[Any], *, is_json: bool) -> Callable[[Any], str]:
    """Return what makes JSON of a value, and raises ValueError or TypeError unless it would be read as the same.

    With `is_json` JSON keeps each value of the type.
    """
    validator, serializer = adapter.validator, adapter.serializer
    if not is_json:
        return lambda value: write(validator.validate_python(value), serializer, validator)

    def write_plain(value: Any) -> str:
        checked = validator.validate_python(value)
        # Whether it comes back is not checked, which would double the time: only NaN and infinity do not.
        text = serializer.to_json(checked).decode()
        if "null" in text:
            json.dumps(checked, allow_nan=False)
        return text

    return write_plain


def _is_masked(schema: Any) -> bool:
    """Return whether Pydantic's schema of a type has a secret without a serializer of the type's own."""
    if isinstance(schema, list | tuple):
        return any(map(_is_masked, schema))
    if not isinstance(schema, dict):
        return False
    serializer = schema.get("serialization", {}).get("function")
    if serializer is not None:
        # Whatever the values below it would write.
        return str(getattr(serializer, "__qualname__", "")).startswith("_serialize_secret")
    return any(_is_masked(part) for name, part in schema.items() if name != "metadata")


def _is_of_steps(hint: Any) -> bool:
    return hint in STEPS or (
        get_origin(hint) in (list, tuple) and all(part in (*STEPS, ...) for part in get_args(hint))
    )
