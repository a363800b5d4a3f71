"""The arguments of a route's function, read from a request and validated."""

from collections.abc import Mapping
from email.message import Message
from functools import lru_cache
from json import JSONDecodeError
from typing import Any, Final

from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from spanmq.service.backend import Backend
from spanmq.service.large_json import parse

# A request without a body.
MISSING: Final = object()


class Arguments:
    """The arguments of a function, as FastAPI has read its signature; only what the routes here use.

    That are parameters of the path, the query and the headers, at most one body, in JSON, the request itself,
    and dependencies: asynchronous functions with such parameters.
    """

    def __init__(self, signature: Dependant) -> None:
        self._dependencies = [(each.name, each.call, Arguments(each)) for each in signature.dependencies]
        self._request_name = signature.request_param_name
        self._path = signature.path_params
        self._query = signature.query_params
        self._headers = signature.header_params
        self._body = signature.body_params[0] if signature.body_params else None

    async def read(self, request: Request, body: bytes, known: Mapping[object, object]) -> dict[str, Any]:
        """Return the values by name; `known` has those of dependencies that were called before.

        Raises RequestValidationError if one is not valid, 400 if the body can't be read, and 413 if it has too
        many values.
        """
        # Before anything else, because a body that is not JSON has no other errors.
        content = MISSING if self._body is None or not body else await _content(request, body)
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
        if self._path:
            _add(values, errors, request_params_to_args(self._path, request.path_params))
        if self._query:
            _add(values, errors, request_params_to_args(self._query, request.query_params))
        if self._headers:
            _add(values, errors, request_params_to_args(self._headers, request.headers))
        if self._body is not None:
            _add(values, errors, self._validated(content))
        if self._request_name is not None:
            values[self._request_name] = request
        return values

    def _validated(self, content: object) -> tuple[dict[str, Any], list[Any]]:
        field = self._body
        if content is not MISSING:
            value, errors = field.validate(content, {}, loc=("body",))
        elif field.field_info.is_required():
            value, errors = None, [
                {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}
            ]
        else:
            value, errors = field.get_default(), None
        return {field.name: value}, errors or []


def _add(values: dict[str, Any], errors: list[Any], read: tuple[dict[str, Any], list[Any]]) -> None:
    values.update(read[0])
    errors += read[1]


async def _content(request: Request, body: bytes) -> object:
    """Return the value of a body in JSON; the body itself if the request says that it is something else."""
    if not _is_json(request.headers.get("content-type", "")):
        return body
    backend: Backend = request.app.state.backend
    try:
        # PostgreSQL does not see what is sealed, so it is checked here.
        return await parse(body, backend.parsing, keeps_bodies=backend.encryption is None)
    except JSONDecodeError as error:
        problem = {"type": "json_invalid", "loc": ("body", error.pos), "msg": error.msg}
        raise RequestValidationError([problem]) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, too long a number, or nested too deeply
        raise HTTPException(400, "There was an error parsing the body") from error


@lru_cache(maxsize=64)
def _is_json(content_type: str) -> bool:
    header = Message()
    header["content-type"] = content_type
    subtype = header.get_content_subtype()
    return header.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))
