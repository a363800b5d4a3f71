"""Tables of routes: each is a function whose types say what it takes of a request, and which scope that needs."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final, get_args, get_type_hints

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from spanmq_service.backend import Backend
from spanmq_service.guard.access import Scope, hung_up, whole_body
from spanmq_service.http.arguments import Argument, Arguments, arguments_of

Call = Callable[..., Awaitable[Response]]
JSON: Final = "application/json"


class Operation:
    """A route: identifies the caller and checks the scope before it reads a body, then calls the function."""

    def __init__(
        self,
        method: str,
        path: str,
        call: Call,
        *,
        tag: str,
        answer: Any,
        status: int,
        errors: tuple[int, ...],
    ) -> None:
        self.method = method
        self.path = path
        self.name: str = getattr(call, "__name__")  # noqa: B009, a Callable may have none
        self.tag = tag
        # The type of the JSON, or `str`: text.
        self.answer = answer
        self.status = status
        self._call = call
        injected = _injected_of(call)
        self.scope = next((mark for mark in injected.values() if isinstance(mark, Scope)), None)
        self._backends = [name for name, kind in injected.items() if kind is Backend]
        self._requests = [name for name, kind in injected.items() if kind is Request]
        self._callers = [name for name, kind in injected.items() if kind is self.scope]
        self.arguments: dict[str, Argument] = arguments_of(call, path, injected)
        self._arguments = Arguments(self.arguments)
        self.errors = sorted({*self._usual_errors(), *errors})
        self.description: str = call.__doc__ or ""

    def route(self) -> Route:
        """Return the route for an application."""
        return Route(self.path, self, methods=[self.method], name=self.name)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        backend: Backend = request.app.state.backend
        caller, body = None, b""
        if self.scope is not None:
            caller = await self.scope(request)
            # A body that arrives slowly takes no slot.
            body = await whole_body(request)
            await backend.gate.acquire(request.scope, caller, partial(hung_up, request))
        values = self._arguments.read(request, body)
        for name in self._backends:
            values[name] = backend
        for name in self._callers:
            values[name] = caller
        for name in self._requests:
            values[name] = request
        return await self._call(**values)

    def _usual_errors(self) -> Iterator[int]:
        places = {argument.place for argument in self.arguments.values()}
        yield 500
        if self.scope is not None:
            yield from (401, 403, 421, 429, 501, 503)
        if places & {"path", "query", "body"}:
            yield 422
        if "body" in places:
            yield from (400, 408, 413)
        if "{queue}" in self.path:
            yield 404


def _injected_of(call: Call) -> dict[str, Any]:
    """Return the arguments that do not come out of a request: the backend, the request, the scope of its caller."""
    injected: dict[str, Any] = {}
    for name, kind in get_type_hints(call, include_extras=True).items():
        if kind in (Backend, Request):
            injected[name] = kind
        for mark in get_args(kind)[1:]:
            if isinstance(mark, Scope):
                injected[name] = mark
    return injected


class Table:
    """The routes of a noun, in order."""

    def __init__(self, tag: str, prefix: str = "/v1") -> None:
        self.operations: list[Operation] = []
        self._tag = tag
        self._prefix = prefix

    def add(
        self,
        method: str,
        path: str,
        *,
        answer: Any,
        status: int = 200,
        errors: tuple[int, ...] = (),
        tag: str = "",
    ) -> Callable[[Call], Call]:
        """Add a route that calls the decorated function.

        `answer` is the type of its JSON, or `str` for text; `errors` are the statuses that it has beside those
        that follow from its types. `tag` stands for the table's.
        """

        def added(call: Call) -> Call:
            self.operations.append(
                Operation(
                    method,
                    self._prefix + path,
                    call,
                    tag=tag or self._tag,
                    answer=answer,
                    status=status,
                    errors=errors,
                )
            )
            return call

        return added

    def get(self, path: str, **options: Any) -> Callable[[Call], Call]:
        """Add a route with GET; `options` are those of `add`."""
        return self.add("GET", path, **options)

    def put(self, path: str, **options: Any) -> Callable[[Call], Call]:
        """Add a route with PUT; `options` are those of `add`."""
        return self.add("PUT", path, **options)

    def post(self, path: str, **options: Any) -> Callable[[Call], Call]:
        """Add a route with POST; `options` are those of `add`."""
        return self.add("POST", path, **options)

    def patch(self, path: str, **options: Any) -> Callable[[Call], Call]:
        """Add a route with PATCH; `options` are those of `add`."""
        return self.add("PATCH", path, **options)

    def delete(self, path: str, **options: Any) -> Callable[[Call], Call]:
        """Add a route with DELETE; `options` are those of `add`."""
        return self.add("DELETE", path, **options)
