"""The description of the routes in OpenAPI 3.1, out of their types."""

import re
from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from inspect import cleandoc
from threading import Lock
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from spanmq.version import __version__
from spanmq_service.http.arguments import Argument
from spanmq_service.http.failure import DESCRIPTION_OF, RETRY_AFTER, Failed
from spanmq_service.routes.table import JSON, Operation

INFO: Final = {
    "title": "spanmq",
    "description": "Queues over HTTP. Errors have one shape everywhere; docs/guides/service.md lists their codes.",
    "version": __version__,
}
TOKEN: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token, see docs/guides/service.md. A service without tokens ignores it.",
}


# Each type of an answer is made once: of two threads that describe at the same time, each would make its own.
ALONE: Final = Lock()


def describe(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the description of operations."""
    listed = list(operations)
    paths: dict[str, dict[str, Any]] = {}
    with ALONE:
        schemas = _Schemas(listed)
        for operation in listed:
            paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schemas)
    components = {"schemas": schemas.components, "securitySchemes": {"token": TOKEN}}
    return {"openapi": "3.1.0", "info": INFO, "paths": paths, "components": components}


class _Schemas:
    """The schemas of all types, made together: those with a name are components."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        kinds: list[Any] = [Failed]
        for operation in operations:
            kinds += [_exact(operation.answer), *(argument.kind for argument in operation.arguments.values())]
        made, self.components = msgspec.json.schema_components(
            kinds, ref_template="#/components/schemas/{name}"
        )
        self._of = list(zip(kinds, made, strict=True))

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type."""
        return next(dict(schema) for known, schema in self._of if known is kind)


@cache
def _exact(kind: Any) -> Any:
    """Return a type of an answer as msgspec describes it best: times have a zone, and `object` is any JSON."""
    if kind is object:
        return Any
    if kind is datetime:
        return Annotated[datetime, msgspec.Meta(tz=True)]
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(_exact(part) for part in get_args(kind))]  # noqa: UP007, of any number of types
    if get_origin(kind) is list:
        return list[_exact(get_args(kind)[0])]  # type: ignore[misc]
    if not isinstance(kind, type) or not (is_dataclass(kind) or issubclass(kind, msgspec.Struct)):
        return kind
    kinds = get_type_hints(kind, include_extras=True)
    members: list[Any] = [
        (name, _exact(kinds[name]), *([] if default in (MISSING, msgspec.NODEFAULT) else [default]))
        for name, default in _defaults_of(kind)
    ]
    return msgspec.defstruct(
        kind.__name__, members, namespace={"__doc__": kind.__doc__}, module=kind.__module__, kw_only=True
    )


def _defaults_of(kind: Any) -> list[tuple[str, Any]]:
    members = fields(kind) if is_dataclass(kind) else msgspec.structs.fields(kind)
    return [(member.name, member.default) for member in members]


def _described(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    arguments = operation.arguments.values()
    described: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.name.replace("_", " ").title(),
        "description": cleandoc(operation.description),
        "operationId": re.sub(r"\W", "_", f"{operation.name}{operation.path}_{operation.method.lower()}"),
        "responses": _responses(operation, schemas),
    }
    if parameters := [_parameter(argument, schemas) for argument in arguments if argument.place != "body"]:
        described["parameters"] = parameters
    for body in (argument for argument in arguments if argument.place == "body"):
        content = {JSON: {"schema": schemas.of(body.kind)}}
        described["requestBody"] = {"content": content, **({"required": True} if body.is_required else {})}
    if operation.scope is not None:
        described["security"] = [{"token": []}]
    return described


def _parameter(argument: Argument, schemas: _Schemas) -> dict[str, Any]:
    schema = schemas.of(argument.kind)
    words = {"description": said} if (said := schema.get("description")) else {}
    if not argument.is_required and argument.default is not None:
        schema["default"] = argument.default
    return {
        "name": argument.name.lower() if argument.place == "header" else argument.name,
        "in": argument.place,
        "required": argument.is_required,
        "schema": schema,
        **words,
    }


def _responses(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    kind = "text/plain" if operation.answer is str else JSON
    success = {
        "description": "Successful Response",
        "content": {kind: {"schema": schemas.of(_exact(operation.answer))}},
    }
    failed = {"content": {JSON: {"schema": schemas.of(Failed)}}}
    responses: dict[str, Any] = {str(operation.status): success}
    for status in operation.errors:
        responses[str(status)] = {
            "description": DESCRIPTION_OF[status],
            **({"headers": RETRY_AFTER} if status in (429, 503) else {}),
            **failed,
        }
    if operation.scope is not None:
        lacks = f"The token lacks the verb `{operation.scope.verb}` there"
        responses["403"]["description"] = lacks
    return responses
