"""Routes whose functions are called without FastAPI's dependency injection, because most requests use them.

FastAPI describes and matches them. Their parameters (the queue in the path, a header, one body, the caller,
the backend) are filled in here, validated by the same types and refused with the same errors. FastAPI's own
way supports trees of dependencies and all kinds of bodies, and took a fifth of the time of a request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.params import Depends, Header, Path
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from spanmq.service.access import Guarded, Scope
from spanmq.service.backend import backend_of
from spanmq.service.parts import Given

Problems = list[dict[str, Any]]
# Returns the value of a parameter, or adds to the problems if there is no valid one.
Source = Callable[[Request, Problems], Any]

_MISSING: Final = object()
_JSON: Final = "application/json"


Answer = Callable[[Request], Coroutine[Any, Any, Response]]


class Straight(Guarded):
    """A route whose function is called directly; unsupported parameters raise an error when it is created."""

    # Answers a request.
    answer: Answer

    def get_route_handler(self) -> Answer:
        """Return the function that answers a request."""
        call = self.endpoint
        hints = get_type_hints(call, include_extras=True)
        scope: Scope | None = None
        sources: list[tuple[str, Source]] = []
        body: tuple[str, TypeAdapter[Any], Any] | None = None
        caller_name = None
        for parameter in signature(call).parameters.values():
            wanted = hints[parameter.name]
            if _is_body(wanted):
                default = _MISSING if parameter.default is Parameter.empty else parameter.default
                body = parameter.name, TypeAdapter(wanted), default
            elif isinstance(found := _mark_of(wanted), Depends) and isinstance(found.dependency, Scope):
                scope, caller_name = found.dependency, parameter.name
            else:
                sources.append((parameter.name, _source(parameter, wanted)))
        if scope is None or caller_name is None:
            raise TypeError(f"{call.__name__} has no parameter for the caller")

        async def answer(request: Request) -> Response:
            given: dict[str, Any] = {caller_name: await scope(request)}
            problems: Problems = []
            for name, source in sources:
                given[name] = source(request, problems)
            if body is not None:
                name, adapter, default = body
                given[name] = _checked(adapter, await _json_of(request, default), ("body",), problems)
            if problems:
                raise RequestValidationError(problems)
            response: Response = await call(**given)
            return response

        self.answer = answer
        return answer


def _is_body(wanted: Any) -> bool:
    """Return whether an annotation is that of the body: a model of this project, which may be optional."""
    kinds = (wanted, *get_args(wanted))
    return any(isinstance(kind, type) and issubclass(kind, Given) for kind in kinds)


def _mark_of(wanted: Any) -> object:
    """Return the marker in an annotation that says where the value comes from."""
    marks = get_args(wanted)[1:] if get_origin(wanted) is Annotated else ()
    return next((each for each in marks if isinstance(each, Depends | Path | Header)), None)


def _source(parameter: Parameter, wanted: Any) -> Source:
    if wanted is Request:
        return lambda request, _: request
    match _mark_of(wanted):
        case Depends(dependency=dependency) if dependency is backend_of:
            return lambda request, _: request.app.state.backend
        case Path():
            adapter = TypeAdapter(wanted)
            return partial(_of_path, parameter.name, adapter)
        case Header():
            adapter = TypeAdapter(wanted)
            return partial(_of_headers, parameter.name.replace("_", "-"), adapter, parameter.default)
    raise TypeError(f"a route that is called directly cannot have the parameter {parameter.name}")


def _of_path(name: str, adapter: TypeAdapter[Any], request: Request, problems: Problems) -> Any:
    return _checked(adapter, request.path_params[name], ("path", name), problems)


def _of_headers(
    name: str, adapter: TypeAdapter[Any], default: Any, request: Request, problems: Problems
) -> Any:
    values = set(request.headers.getlist(name))
    if len(values) > 1:
        problems.append({"type": "repeated", "loc": ("header", name), "msg": "Field given with two values"})
        return default
    return _checked(adapter, values.pop(), ("header", name), problems) if values else default


def _checked(adapter: TypeAdapter[Any], value: Any, place: tuple[str, ...], problems: Problems) -> Any:
    if value is _MISSING:
        problems.append({"type": "missing", "loc": place, "msg": "Field required", "input": None})
        return None
    try:
        return adapter.validate_python(value, from_attributes=True)
    except ValidationError as error:
        found: Mapping[str, Any]
        for found in error.errors(include_url=False, include_input=False, include_context=False):
            problems.append({**found, "loc": (*place, *found["loc"])})
        return None


async def _body_of(request: Request) -> bytes:
    """Read the body. Starlette's generator is not used, because almost every body arrives in one piece."""
    message = await request.receive()
    whole: bytes = message.get("body", b"")
    while message["type"] == "http.request" and message.get("more_body", False):
        message = await request.receive()
        whole += message.get("body", b"")
    if message["type"] == "http.disconnect":
        raise HTTPException(400, "the body is incomplete")
    return whole


async def _json_of(request: Request, default: Any) -> Any:
    """Parse the body, or return the default if it is empty.

    A body without a JSON content type is returned as bytes, which no model accepts.
    """
    body = await _body_of(request)
    if not body:
        return default
    given = request.headers.get("content-type", "")
    kind = given if given == _JSON else given.partition(";")[0].strip().lower()
    if kind != _JSON and not (kind.startswith("application/") and kind.endswith("+json")):
        return body
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        problem = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error"}
        raise RequestValidationError([problem]) from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "There was an error parsing the body") from error
