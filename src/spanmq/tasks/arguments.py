"""The arguments of a task: from a call to JSON and back, as the function's signature says."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from spanmq.errors import ExtraNotInstalledError, InvalidArgumentError, TaskArgumentsError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# The default of a parameter that the worker passes: then a type checker asks no caller for it.
GIVEN: Final[Any] = object()

# What Pydantic writes for numbers that JSON lacks, as the configuration of a model says.
MAY_BE_NAN: Final = re.compile(rb"null|NaN|Infinity")

# The classes that a worker passes by the name of the parameter, and their names.
INJECTED: Final = {
    "message": "Message",
    "batch": "BatchResult",
    "connection": "Connection",
    "session": "Session",
}


class Arguments:
    """What a function takes from its callers, and what from the worker (`injected`)."""

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        self._function = function
        self._task = task
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters
        self.injected = frozenset(
            name for name, parameter in parameters.items() if name in INJECTED and is_injected(parameter)
        )
        if {"connection", "session"} <= self.injected:
            raise InvalidArgumentError(
                f"task {task!r} takes a connection and a session: one of them acks", code="invalid_handler"
            )
        for parameter in parameters.values():
            if parameter.default is GIVEN and parameter.name not in INJECTED:
                raise InvalidArgumentError(
                    f"no worker passes {parameter.name!r} to task {task!r}",
                    hint=f"It passes {', '.join(INJECTED)}.",
                    code="invalid_handler",
                )
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise InvalidArgumentError(
                    f"task {task!r} takes {parameter}: each argument must have a name",
                    hint="A task has no *args, no **kwargs and no positional-only parameters.",
                    code="invalid_handler",
                )
        self._sent = [each for name, each in parameters.items() if name not in self.injected]
        self._callers = self._signature.replace(parameters=self._sent)

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        # At the first use, because annotations may name objects that are defined further down in the module.
        try:
            from typing import NotRequired

            from pydantic import ConfigDict, TypeAdapter
            from typing_extensions import TypedDict
        except ImportError as error:
            raise ExtraNotInstalledError("tasks need the package pydantic", extra="tasks") from error
        try:
            hints = get_type_hints(self._function, include_extras=True)
            fields: dict[str, Any] = {
                each.name: hints.get(each.name, Any)
                if each.default is each.empty
                else NotRequired[hints.get(each.name, Any)]
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
    def _read(self) -> Callable[[object], dict[str, Any]]:
        validate = self._adapter.validator.validate_json
        from pydantic_core import to_json

        # As JSON: Pydantic's strict types take a date from a string there, and only there.
        return lambda values: validate(to_json(values))

    def check(self) -> None:
        """Raise InvalidArgumentError for a signature that can't be read, ExtraNotInstalledError."""
        _ = self._read

    def write(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the JSON text of arguments; raises TaskArgumentsError unless a worker could read it."""
        adapter = self._adapter
        from pydantic_core import PydanticSerializationError

        try:
            bound = self._callers.bind(*args, **kwargs)
            checked = adapter.validate_python(bound.arguments)
            text = adapter.dump_json(checked, by_alias=True, round_trip=True, warnings="error")
            if MAY_BE_NAN.search(text):
                # Pydantic writes null for NaN and infinity; this raises for them.
                json.dumps(adapter.dump_python(checked), allow_nan=False, default=str, skipkeys=True)
            # Not every value comes back as it went.
            adapter.validate_json(text)
        except (TypeError, PydanticSerializationError, ValueError, RecursionError) as error:
            raise TaskArgumentsError(f"task {self._task!r}: {reasons(error)}") from error
        return text.decode()

    def read(self, values: object) -> dict[str, Any]:
        """Return the arguments of a body; raises TaskArgumentsError for what does not fit."""
        read = self._read
        try:
            return read(values)
        except ValueError as error:
            raise TaskArgumentsError(
                f"the arguments do not fit task {self._task!r}: {reasons(error)}"
            ) from error


def is_injected(parameter: inspect.Parameter) -> bool:
    """Return whether the worker passes a parameter of one of these names, and not the caller."""
    annotation = parameter.annotation
    is_bare = annotation is parameter.empty and parameter.name in ("connection", "session")
    if parameter.default is GIVEN or is_bare:
        return True
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return text.partition("[")[0].strip("'\"").endswith(INJECTED[parameter.name])


def reasons(error: Exception) -> str:
    """Return what is wrong, in one line and without the values."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False, include_context=False)
    )
