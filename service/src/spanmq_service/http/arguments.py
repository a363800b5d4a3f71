"""The arguments of a route's function, by its signature: what it takes of a request, and how that is read."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from functools import lru_cache
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from spanmq_service.http.failure import Refusal
from spanmq_service.http.request_json import RequestJson, is_struct, problem_of

NO_DEFAULT: Final = inspect.Parameter.empty


@dataclass(frozen=True)
class Header:
    """Marks an argument that is a header's value."""

    name: str


# Marks an argument that is the request's body, where its type is not a Struct.
BODY: Final = object()


@dataclass(frozen=True)
class Argument:
    """An argument: its name in the request, its type and default, and where it is: path, query, header or body."""

    name: str
    kind: Any
    default: Any
    place: str

    @property
    def is_required(self) -> bool:
        """Return whether a request must have it."""
        return self.default is NO_DEFAULT


def arguments_of(call: Callable[..., Any], path: str, injected: Mapping[str, Any]) -> dict[str, Argument]:
    """Return the arguments of a function that come out of requests, by their names in it.

    `injected` are those that come from elsewhere.
    """
    kinds = get_type_hints(call, include_extras=True)
    return {
        name: _argument(name, kinds[name], parameter.default, path)
        for name, parameter in inspect.signature(call).parameters.items()
        if name not in injected
    }


def _argument(name: str, kind: Any, default: Any, path: str) -> Argument:
    marks = kind.__metadata__ if get_origin(kind) is Annotated else ()
    header = next((mark for mark in marks if isinstance(mark, Header)), None)
    if header is not None:
        return Argument(header.name, kind, default, "header")
    if f"{{{name}}}" in path:
        return Argument(name, kind, default, "path")
    is_body = BODY in marks or any(is_struct(part) for part in (kind, *get_args(kind)))
    return Argument(name, kind, default, "body" if is_body else "query")


class Arguments:
    """Reads the arguments of a function."""

    def __init__(self, arguments: Mapping[str, Argument]) -> None:
        bodies = {name: argument for name, argument in arguments.items() if argument.place == "body"}
        assert len(bodies) <= 1, bodies
        self._values = {name: argument for name, argument in arguments.items() if name not in bodies}
        self._kind = msgspec.defstruct(
            "Values",
            [
                (name, argument.kind) if argument.is_required else (name, argument.kind, argument.default)
                for name, argument in self._values.items()
            ],
            kw_only=True,
        )
        self._query = [name for name, argument in self._values.items() if argument.place == "query"]
        self._headers = {
            name: argument.name for name, argument in self._values.items() if argument.place == "header"
        }
        self._body_name: str | None = next(iter(bodies), None)
        self._body: Argument | None = next(iter(bodies.values()), None)
        self._json = None if self._body is None else RequestJson(self._body.kind)

    def read(self, request: Request, body: bytes) -> dict[str, Any]:
        """Return the values by the names of the function; `body` is the whole body of the request.

        Raises Refusal with 422 for a value that is not valid, 413 for too many values, and HTTPException with
        400 for a body that can't be parsed.
        """
        values = self._read_values(request)
        if self._body_name is not None:
            values[self._body_name] = self._read_body(request, body)
        return values

    def _read_values(self, request: Request) -> dict[str, Any]:
        values = dict(request.path_params)
        if self._query:
            query = request.query_params
            values |= {name: query[name] for name in self._query if name in query}
        for name, header in self._headers.items():
            texts = set(request.headers.getlist(header))
            if len(texts) > 1:
                raise invalid_request(f"header.{header.lower()}: given with two values")
            if texts:
                values[name] = texts.pop()
        try:
            return msgspec.structs.asdict(msgspec.convert(values, self._kind, strict=False))
        except msgspec.ValidationError as error:
            raise invalid_request(self._with_place(problem_of(error, ""))) from error

    def _with_place(self, problem: str) -> str:
        """Return a problem with the place of the argument that it names first, or is missing."""
        name = problem.partition(":")[0].removeprefix(".")
        if not name:
            name = problem.rpartition("`")[0].rpartition("`")[2]
            problem = ": missing"
        else:
            problem = problem.removeprefix(f".{name}")
        argument = self._values[name]
        return f"{argument.place}.{argument.name.lower()}{problem}"

    def _read_body(self, request: Request, body: bytes) -> Any:
        assert self._json is not None
        assert self._body is not None
        if not body and not self._body.is_required:
            return self._body.default
        if body and not is_json(request.headers.get("content-type", "")):
            raise invalid_request(
                "body: its Content-Type is not application/json", hint="Send Content-Type: application/json."
            )
        if not body:
            raise invalid_request("body: missing")
        try:
            return self._json.read(body)
        except msgspec.ValidationError as error:
            raise invalid_request(problem_of(error, "body")) from error
        except msgspec.DecodeError as error:
            raise Refusal(400, "invalid_request", "the body is not valid JSON", where=str(error)) from error
        except (UnicodeDecodeError, RecursionError) as error:
            problem = "nested too deeply" if isinstance(error, RecursionError) else "not UTF-8"
            raise HTTPException(400, f"the body is {problem}") from error


def invalid_request(detail: str, *, hint: str | None = None) -> Refusal:
    """Return the refusal of a request whose arguments are not as described."""
    # Without the value, which may be a misplaced secret.
    message = "the request is not as the description at /docs says"
    return Refusal(422, "invalid_argument", message, where=detail, hint=hint)


@lru_cache(maxsize=64)
def is_json(content_type: str) -> bool:
    """Return whether a Content-Type is that of JSON."""
    header = Message()
    header["content-type"] = content_type
    subtype = header.get_content_subtype()
    return header.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))
