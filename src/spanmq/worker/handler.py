"""The user's function: imported by its name, and inspected for its parameters and where it runs."""

import importlib
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from typing import Any

from spanmq.errors import InvalidArgumentError
from spanmq.model import Message
from spanmq.worker.failure import HandlerFailure
from spanmq.worker.job import Released
from spanmq.worker.running.limiter import Limit

HINT = "A handler is `handler(message)` or `handler(message, connection)`, with `def` or `async def`."


@dataclass(frozen=True, slots=True)
class Handler:
    """A function and how it is called."""

    function: Callable[..., Any]
    name: str
    is_async: bool
    takes_connection: bool
    takes_batches: bool
    # The following fields are for a handler that dispatches: it is called with the message and its Delivery.
    takes_delivery: bool = False
    # Its plain functions may use connections, too, in threads.
    uses_threads: bool = False
    judge: Callable[[BaseException, Message], HandlerFailure | Released] | None = None
    timeout_of: Callable[[Message], float | None] | None = None
    limit_of: Callable[[Message], Limit | None] | None = None
    # Returns the kind that a message asks for, if the handler serves several kinds.
    kind_of: Callable[[Message], str | None] | None = None
    # Returns a context in which a worker runs: what handlers need is open in it.
    opened: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    # Called when a worker has ended: what it made belongs to that worker's event loop.
    close: Callable[[], None] = lambda: None

    def task_of(self, message: Message) -> str | None:
        """Return the name of the task that a message is for; None if the handler does not serve tasks."""
        return None if self.kind_of is None else self.kind_of(message)


def find(path: str) -> Any:
    """Import what `module:name` or `module.name` names; raises InvalidArgumentError."""
    module_name, colon, name = path.partition(":")
    if not colon:
        module_name, _, name = path.rpartition(".")
    if not module_name or not name:
        raise InvalidArgumentError(
            f"a handler must be named module:function, got {path!r}",
            hint="For example shop.jobs:ship.",
            code="invalid_handler",
        )
    target = load(module_name)
    for part in name.split("."):
        try:
            target = getattr(target, part)
        except AttributeError as error:
            raise InvalidArgumentError(
                f"the module {module_name!r} has no {name!r}",
                hint=_meant(path, target, part),
                code="invalid_handler",
            ) from error
    return target


def _meant(path: str, target: object, part: str) -> str | None:
    """Return a hint for a name that an object does not have: a module's path without a name, or a misspelled name."""
    if ":" not in path and hasattr(target, "__path__") and find_spec(path) is not None:
        return f"{path} is a module: name what is in it, such as {path}:tasks."
    similar = get_close_matches(part, dir(target), n=1)
    return f"Did you mean {similar[0]!r}?" if similar else None


def load(module_name: str) -> Any:
    """Import a module; raises InvalidArgumentError."""
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # importing a module may raise anything
        missing = isinstance(error, ModuleNotFoundError) and error.name in (module_name, *_above(module_name))
        raise InvalidArgumentError(
            f"module {module_name!r} does not exist"
            if missing
            else f"the module {module_name!r} raised {type(error).__name__} when it was imported: {error}",
            hint="Modules are searched in the current folder and in Python's path." if missing else None,
            code="invalid_handler",
        ) from error


def look_at(function: Callable[..., Any] | Handler, *, takes_batches: bool) -> Handler:
    """Return the handler with its parameters and where it runs; raises InvalidArgumentError."""
    if isinstance(function, Handler):
        return function
    if hint := getattr(function, "handler_hint", None):
        raise InvalidArgumentError(f"{function!r} is not a handler", hint=hint, code="invalid_handler")
    if inspect.isclass(function) or not callable(function):
        raise InvalidArgumentError(
            f"the handler is not callable, it is {function!r}", hint=HINT, code="invalid_handler"
        )
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    plain = function
    while isinstance(plain, partial):
        plain = plain.func
        name = getattr(plain, "__qualname__", name)
    body = plain if inspect.isroutine(plain) else type(plain).__call__
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise InvalidArgumentError(
            f"the handler {name!r} is a generator function, which a worker cannot run",
            hint=HINT,
            code="invalid_handler",
        )
    return Handler(
        function, name, inspect.iscoroutinefunction(body), _takes_connection(function, name), takes_batches
    )


def _takes_connection(function: Callable[..., Any], name: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a function written in C
        return False
    places = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    needed = [parameter for parameter in places if parameter.default is parameter.empty]
    has_rest = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    by_name = [
        parameter
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]
    if by_name or len(needed) > 2 or (not places and not has_rest):
        raise InvalidArgumentError(
            f"the handler {name!r} has other parameters than a worker passes",
            hint=HINT,
            code="invalid_handler",
        )
    return len(needed) == 2 or (len(places) > 1 and places[1].name == "connection")


def _above(module_name: str) -> list[str]:
    parts = module_name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]
