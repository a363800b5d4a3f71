"""The arguments of a task: from a call to JSON and back, as the function's signature says."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import cached_property
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from spanmq.errors import InvalidArgumentError, TaskArgumentsError
from spanmq.model.parse import reasons

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# The default of a parameter that the worker passes: then a type checker asks no caller for it.
GIVEN: Final[Any] = object()

# The classes that a worker passes by the name of the parameter, and their names.
INJECTED: Final = {
    "message": "Message",
    "batch": "BatchResult",
    "results": "list[Result]",
    "connection": "Connection",
    "session": "Session",
}


class Arguments:
    """What a function takes from its callers, and what from the worker (`injected`)."""

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
        given = self.injected.union(self._of_resources)
        self._sent = [each for name, each in parameters.items() if name not in given]
        self._positional = [each.name for each in self._sent if each.kind is each.POSITIONAL_OR_KEYWORD]
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

        from pydantic import ConfigDict, TypeAdapter
        from typing_extensions import TypedDict

        try:
            fields: dict[str, Any] = {
                each.name: self._hints.get(each.name, Any)
                if each.default is each.empty
                else NotRequired[self._hints.get(each.name, Any)]
                for each in self._sent
            }
            # Functional, because the fields are known only here.
            shape = TypedDict(self._task, fields)  # type: ignore[misc]
            shape.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
            return TypeAdapter(shape)
        except Exception as error:  # an annotation may be anything
            raise InvalidArgumentError(
                f"the signature of task {self._task!r} can't be read: {error}", code="invalid_handler"
            ) from error

    @cached_property
    def _result(self) -> TypeAdapter[Any]:
        from pydantic import TypeAdapter

        try:
            return TypeAdapter(self._hints.get("return", Any))
        except Exception as error:  # an annotation may be anything
            raise InvalidArgumentError(
                f"the type of the result of task {self._task!r} can't be read: {error}",
                code="invalid_handler",
            ) from error

    @cached_property
    def _is_json(self) -> bool:
        """Whether what JSON makes of every argument is the argument."""
        return all(is_json(self._hints.get(each.name, Any)) for each in self._sent)

    @cached_property
    def _read(self) -> Callable[[object], dict[str, Any]]:
        validator = self._adapter.validator
        if self._is_json:
            return validator.validate_python
        from pydantic_core import to_json

        # As JSON: Pydantic's strict types take a date from a string there, and only there.
        return lambda values: validator.validate_json(to_json(values))

    @cached_property
    def _write(self) -> Callable[[dict[str, Any]], str]:
        from pydantic_core import PydanticSerializationError

        validator, serializer, is_json = self._adapter.validator, self._adapter.serializer, self._is_json
        # Values that JSON keeps as they are fit their types; to check that would double the time.
        warnings: Literal["none", "error"] = "none" if is_json else "error"

        def write(values: dict[str, Any]) -> str:
            checked = validator.validate_python(values)
            try:
                text = serializer.to_json(checked, by_alias=True, round_trip=True, warnings=warnings).decode()
            except PydanticSerializationError:
                # Pydantic does not validate what is in an instance: its JSON shows which field does not fit.
                raw = serializer.to_json(checked, by_alias=True, round_trip=True, warnings="none")
                validator.validate_json(raw, strict=True)
                raise TypeError(
                    "a field of a dataclass or model has another type than its annotation"
                ) from None
            if "null" in text or "NaN" in text or "Infinity" in text:
                # Pydantic writes null for NaN and infinity, or these names; this raises for them.
                json.dumps(serializer.to_python(checked), allow_nan=False, default=str, skipkeys=True)
            if not is_json:
                # Not every value comes back as it went.
                validator.validate_json(text)
            return text

        return write

    def read_result(self, value: Any) -> Any:
        """Return a stored result, which is JSON, as the type that the signature says.

        Raises InvalidArgumentError for a type that can't be read, and for a value that does not fit it.
        """
        try:
            return self._result.validate_python(value)
        except ValueError as error:
            raise InvalidArgumentError(
                f"the result of task {self._task!r} does not fit its type: {reasons(error, 'arguments')}",
                code="invalid_handler",
            ) from error

    def check(self) -> None:
        """Raise InvalidArgumentError for a signature that can't be read."""
        _ = self._read, self.resources

    def write(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the JSON of a message's body; raises TaskArgumentsError unless a worker could read it."""
        write = self._write
        try:
            # Which are missing or unknown, Pydantic finds.
            values = dict(zip(self._positional, args, strict=False)) | kwargs
            if len(values) < len(args) + len(kwargs):
                raise TypeError("there are more arguments than parameters, or one is given twice")
            return f"{self._head}{write(values)}}}"
        except (TypeError, ValueError, RecursionError) as error:
            raise TaskArgumentsError(f"task {self._task!r}: {reasons(error, 'arguments')}") from error

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


def is_json(hint: Any) -> bool:
    """Return whether a value of this type is the same after it was JSON."""
    if hint in (Any, str, int, float, bool, None, NoneType):
        return True
    inner = get_args(hint)
    if get_origin(hint) is dict:
        return inner[0] is str and is_json(inner[1])
    return get_origin(hint) in (list, Union, UnionType) and all(map(is_json, inner))
