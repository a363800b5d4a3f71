"""The scope that each route wants, and the check that the caller has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fastapi.dependencies.utils import get_dependant
from fastapi.openapi.models import HTTPBearer
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from starlette.requests import Request
from starlette.responses import Response

from spanmq.request_origin import is_from_elsewhere, is_named_here
from spanmq.service.caller import EVERYBODY, IDENTITY, Caller, Verb
from spanmq.service.failure import described
from spanmq.service.refusal import Refusal, forbidden, unauthorized

if TYPE_CHECKING:
    from spanmq.service.backend import Backend


def check_is_ours(request: Request) -> None:
    """Refuse what a foreign page may have asked in the browser of somebody here, where nobody needs a token.

    Raises 421 for another name than this machine's own, for such a page's name may have been made to lead
    here; and 403 for what a page of another site has sent.
    """
    # All at once: Starlette goes through them again for each that is asked for.
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}
    if not is_named_here(headers.get("host")):
        raise Refusal(421, "not_by_this_name", "without tokens the service answers to localhost only")
    if is_from_elsewhere(headers):
        raise Refusal(403, "from_another_site", "without tokens nothing is done for pages of other sites")


async def identify(request: Request) -> Caller:
    """Give who asks; raises 401 if nobody knows, 429 if he asks too much at once."""
    backend: Backend = request.app.state.backend
    if not backend.settings.with_tokens:
        check_is_ours(request)
        return EVERYBODY
    known: Caller | None = request.scope.get(IDENTITY)
    if known is not None:
        return known
    secret = _secret_of(request)
    if not secret:
        raise unauthorized("a token is needed")
    caller = await backend.tokens.caller_of(secret, request.scope)
    if caller is None:
        raise unauthorized("the token is unknown, expired or revoked")
    backend.gate.count(request.scope, caller)
    request.scope[IDENTITY] = caller
    return caller


def _secret_of(request: Request) -> str:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def still_may(request: Request, verb: Verb, queue: str) -> Callable[[], Awaitable[bool]]:
    """Return a check whether the token of a request that waits is valid still, and allows that."""
    backend: Backend = request.app.state.backend

    async def check() -> bool:
        if not backend.settings.with_tokens:
            return True
        try:
            caller = await backend.tokens.caller_of(_secret_of(request), request.scope)
        except Refusal:
            return False
        return caller is not None and caller.may(verb, queue)

    return check


@dataclass(frozen=True)
class Scope(SecurityBase):
    """What a route wants of its caller; the route's dependency, and what tests read of it.

    `of` says where the queue is: in the `path`; nowhere (`everything` is concerned); in the `request`, whose
    handler checks each; or the answer is `filtered` by what the caller may see.
    """

    verb: Verb
    of: Literal["path", "everything", "request", "filtered"] = "path"

    # For the description: the same for all.
    model = HTTPBearer(
        description="A token, see docs/guides/service.md. A service without tokens ignores it."
    )
    scheme_name = "token"

    async def __call__(self, request: Request) -> Caller:
        """Give the caller if he may."""
        caller = await identify(request)
        if self.of == "path":
            caller.check(self.verb, request.path_params["queue"])
        elif self.of == "everything":
            caller.check(self.verb, None)
        elif self.verb not in caller.verbs:
            raise forbidden(self.verb, None)
        return caller


class Guarded(APIRoute):
    """A route that knows who asks, and whether he may, before it reads a body."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        responses: dict[int | str, dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        errors = _errors_of(path, endpoint)
        super().__init__(path, endpoint, responses={**errors, **(responses or {})}, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Give what answers a request."""
        answer = super().get_route_handler()
        scopes = [each.call for each in self.dependant.dependencies if isinstance(each.call, Scope)]

        async def guarded(request: Request) -> Response:
            for scope in scopes:
                await scope(request)
            return await answer(request)

        return guarded


def _errors_of(path: str, endpoint: Callable[..., Any]) -> dict[int | str, dict[str, Any]]:
    """Describe the errors that any operation may answer that takes the same; a route adds its own."""
    takes = get_dependant(path=path, call=endpoint)
    scope = next((each.call for each in takes.dependencies if isinstance(each.call, Scope)), None)
    statuses = {500}
    if scope is not None:
        statuses |= {401, 403, 421, 429, 501, 503}
    if takes.path_params or takes.query_params or takes.body_params:
        statuses |= {422}
    if takes.body_params:
        statuses |= {400, 408, 413}
    if "{queue}" in path:
        statuses |= {404}
    errors = described(*sorted(statuses))
    if scope is not None:
        errors[403]["description"] = f"The token lacks the verb `{scope.verb}` there"
    return errors
