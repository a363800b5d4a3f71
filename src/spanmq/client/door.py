"""Methods as commands and routes show them: their parameters, their words, and the call of one. No I/O."""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import import_module
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from spanmq.client.namespace import Namespace

REQUIRED: Final = inspect.Parameter.empty
_SENTENCE: Final = re.compile(r"(?<=[.!?]) (?=[A-Z`\[{0-9])")
# What a method does without its queue stands behind `(None)`, to the end of the part of the sentence.
_WITHOUT: Final = {
    "one": re.compile(r",? or \(None\) [^,.;:]*"),
    "all": re.compile(r"(?:\w+ )?(?:a|one|the) `queue`(?:, which [^,]*)?,? or \(None\) "),
    "both": re.compile(r"\(None\) "),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a method: its type without None, its default, whether it is passed by name only."""

    name: str
    kind: Any
    default: Any
    is_named: bool

    @property
    def is_required(self) -> bool:
        """Return whether a call must have it."""
        return self.default is REQUIRED

    @property
    def simple_kind(self) -> Any:
        """Return what stands for its values in text: seconds are a number, names and ids a list."""
        kinds = get_args(self.kind) if _is_union(self.kind) else (self.kind,)
        listed: dict[Any, Any] = {Iterable[int]: list[int], Iterable[str]: list[str]}
        simple = (*listed, bool, int, float, str, datetime)
        return next((listed.get(kind, kind) for kind in simple if kind in kinds), Any)


def method_of(name: str, *, is_async: bool = False) -> Callable[..., Any]:
    """Return a method by the name of its class and its own: `Queues.pause`, also that of AsyncQueues."""
    kind, _, method = name.partition(".")
    classes = import_module("spanmq.client")
    function: Callable[..., Any] = getattr(getattr(classes, f"Async{kind}" if is_async else kind), method)
    return function


@cache
def parameters_of(method: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the parameters of a method, with the members of its `filters` one by one."""
    kinds = get_type_hints(method)
    parameters: list[Parameter] = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            [filters] = get_args(kinds[parameter.name])
            members = get_type_hints(filters).items()
            parameters += [Parameter(name, _without_none(kind), None, True) for name, kind in members]
        else:
            kind = _without_none(kinds[parameter.name])
            is_named = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            parameters.append(Parameter(parameter.name, kind, parameter.default, is_named))
    return tuple(parameters)


def result_of(method: Callable[..., Any]) -> Any:
    """Return the type of what a method returns."""
    return get_type_hints(method)["return"]


def words_of(method: Callable[..., Any], *, queue: Literal["one", "all", "both"] = "both") -> list[str]:
    """Return the sentences of a method's docstring up to what it raises: behind that they are about Python.

    `queue` says which part of "of a `queue`, or (None) of all" they are for: "one", "all" or "both".
    """
    text = " ".join((method.__doc__ or "").split())
    told = _SENTENCE.split(text.partition("Raises ")[0].strip())
    return [_WITHOUT[queue].sub("", sentence) for sentence in told]


def bound(client: object, name: str) -> Callable[..., Any]:
    """Return a method of a client, or of one of its namespaces, by the name of its class and its own."""
    kind, _, method = name.partition(".")
    owner: Any = type(client)
    path = _path_to(owner, kind)
    function: Callable[..., Any] = attrgetter(f"{path}{method}")(client)
    return function


@cache
def _path_to(owner: Any, kind: str) -> str | None:
    """Return where a class is in another one, or its namespaces: `admin.tokens.`, None if it isn't."""
    if owner.__name__.removeprefix("Async") == kind:
        return ""
    parts: dict[str, Any] = {
        name: part.kind for name, part in vars(owner).items() if isinstance(part, Namespace)
    }
    for name, part in parts.items():
        if (path := _path_to(part, kind)) is not None:
            return f"{name}.{path}"
    return None


def _without_none(kind: Any) -> Any:
    if not _is_union(kind):
        return kind
    return Union[tuple(member for member in get_args(kind) if member is not NoneType)]  # noqa: UP007, of any number


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)
