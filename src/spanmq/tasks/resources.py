"""Resources, which tasks get by a parameter's type: a worker opens them before its first message, closes them after."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, get_args, get_origin, get_type_hints

from spanmq.errors import InvalidArgumentError, WorkerStartError

Opener = Callable[[], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]

YIELDING = (AsyncIterator, Iterator, AbstractAsyncContextManager, AbstractContextManager)


class Resources:
    """The resources of a program: the functions that open them, by their types."""

    def __init__(self) -> None:
        self.openers: dict[Any, Opener] = {}

    def add(self, function: Callable[[], Any], kind: Any = None) -> None:
        """Register a function; raises InvalidArgumentError for one without a type, and for a second of a type."""
        if not callable(function):
            raise InvalidArgumentError(f"a resource is a function, got {function!r}", code="invalid_handler")
        kind = _type_of(function) if kind is None else kind
        if kind is None:
            raise InvalidArgumentError(
                f"the resource {function!r} has no type",
                hint="Annotate its return type, such as Iterator[Bank], or write @tasks.resource(kind=Bank).",
                code="invalid_handler",
            )
        if kind in self.openers:
            raise InvalidArgumentError(
                f"there are two resources of type {name_of(kind)}", code="invalid_handler"
            )
        self.openers[kind] = _opener(function)

    async def open(self, kinds: Iterable[Any], stack: AsyncExitStack) -> dict[Any, Any]:
        """Open resources of these types within a stack, which closes them; return their values by type.

        Raises WorkerStartError if one can't be opened.
        """
        values: dict[Any, Any] = {}
        for kind in kinds:
            try:
                manager = self.openers[kind]()
                if isinstance(manager, AbstractAsyncContextManager):
                    values[kind] = await stack.enter_async_context(manager)
                elif isinstance(manager, AbstractContextManager):
                    values[kind] = stack.enter_context(manager)
                else:
                    raise TypeError(f"{manager!r} is not a context manager")
            except Exception as error:
                raise WorkerStartError(
                    f"the resource {name_of(kind)} could not be opened: {type(error).__name__}: {error}"
                ) from error
        return values


def name_of(kind: Any) -> str:
    """Return the name of a type for an error."""
    return getattr(kind, "__qualname__", None) or str(kind)


def _opener(function: Callable[[], Any]) -> Opener:
    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)
    if inspect.isgeneratorfunction(function):
        return contextmanager(function)
    return function


def _type_of(function: Callable[[], Any]) -> Any:
    """Return the type of the value that a function opens, as its annotations say; None if they do not."""
    if inspect.isclass(function):
        return function
    try:
        returned = get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return None
    origin = get_origin(returned)
    if inspect.isclass(origin) and issubclass(origin, YIELDING) and get_args(returned):
        return get_args(returned)[0]
    is_manager = inspect.isclass(returned) and issubclass(returned, YIELDING[2:])
    return returned if is_manager else None
