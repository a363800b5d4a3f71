"""Parsing of types from JSON by Pydantic: the inverse of `body.plain`."""

from __future__ import annotations

from functools import lru_cache
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

    return adapter.validate_json(to_json(value))


def reasons(error: Exception, whole: str) -> str:
    """Return what is wrong, in one line and without the values; `whole` names what is not of any field."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        f"{'.'.join(map(str, each['loc'])) or whole}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False, include_context=False)
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
