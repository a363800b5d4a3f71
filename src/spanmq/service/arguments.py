"""The arguments of a route's function, read from a request and validated."""

from collections.abc import Awaitable, Callable, Mapping
from email.message import Message
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from spanmq.service.http.request_json import RequestJson

Dependency = Callable[..., Awaitable[object]]
# A value that the request does not have.
MISSING: Final = object()


class Arguments:
    """The arguments of a function, from its signature as FastAPI has read it.

    They may be parameters of the path, the query and the headers, one body in JSON, the request, and the
    results of dependencies, which are asynchronous functions with such arguments.
    """

    def __init__(self, signature: Dependant) -> None:
        # Others would be missing from the call.
        assert len(signature.body_params) <= 1, signature.path
        assert not signature.cookie_params, signature.path
        self._dependencies = [
            (str(each.name), cast(Dependency, each.call), Arguments(each)) for each in signature.dependencies
        ]
        self._request_name = signature.request_param_name
        self._path = signature.path_params
        self._query = signature.query_params
        self._headers = signature.header_params
        self._body = signature.body_params[0] if signature.body_params else None
        field = None if self._body is None else self._body.field_info
        self._json = None if field is None else RequestJson(field.annotation, field.metadata)

    async def read(self, request: Request, body: bytes, known: Mapping[object, object]) -> dict[str, Any]:
        """Return the values by name.

        `body` is the whole body of the request, and `known` has the results of dependencies that were called
        before. Raises RequestValidationError if a value is not valid, and HTTPException with 400 if the body
        can't be parsed or 413 if it has too many values.
        """
        content = MISSING if self._json is None or not body else _content(self._json, request, body)
        errors: list[Any] = []
        values = await self._read(request, content, known, errors)
        if errors:
            raise RequestValidationError(errors)
        return values

    async def _read(
        self, request: Request, content: object, known: Mapping[object, object], errors: list[Any]
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, call, arguments in self._dependencies:
            if call in known:
                values[name] = known[call]
                continue
            count = len(errors)
            needed = await arguments._read(request, MISSING, known, errors)
            if len(errors) == count:
                values[name] = await call(**needed)
        for field in self._path:
            value = request.path_params.get(field.alias, MISSING)
            _validate(field, value, ("path", field.alias), values, errors)
        if self._query:
            # Its values may be lists, or a model's.
            read, wrong = request_params_to_args(self._query, request.query_params)
            values.update(read)
            errors += wrong
        for field in self._headers:
            value = request.headers.get(field.alias, MISSING)
            _validate(field, value, ("header", field.alias), values, errors)
        if self._body is not None:
            _validate(self._body, content, ("body",), values, errors)
        if self._request_name is not None:
            values[self._request_name] = request
        return values


def _validate(
    field: Any, value: object, place: tuple[str, ...], values: dict[str, Any], errors: list[Any]
) -> None:
    """Add the valid value of an argument, or what is wrong with it."""
    if value is MISSING:
        if field.field_info.is_required():
            errors.append({"type": "missing", "loc": place, "msg": "Field required", "input": None})
        else:
            values[field.name] = field.get_default()
        return
    values[field.name], wrong = field.validate(value, values, loc=place)
    errors += wrong or ()


def _content(json: RequestJson, request: Request, body: bytes) -> object:
    """Return the value of a body in JSON; the body itself if the request says that it is something else."""
    if not _is_json(request.headers.get("content-type", "")):
        return body
    try:
        return json.read(body)
    except msgspec.DecodeError as error:
        kind = "invalid" if isinstance(error, msgspec.ValidationError) else "json_invalid"
        raise RequestValidationError([{"type": kind, "loc": ("body",), "msg": str(error)}]) from error
    except (UnicodeDecodeError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else "not UTF-8"
        raise HTTPException(400, f"the body is {problem}") from error


@lru_cache(maxsize=64)
def _is_json(content_type: str) -> bool:
    header = Message()
    header["content-type"] = content_type
    subtype = header.get_content_subtype()
    return header.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))
