"""The scope that each route requires, and the check that the caller has it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request

from spanmq.client.calls import ACTOR
from spanmq_service.backend import Backend
from spanmq_service.guard.caller import EVERYBODY, IDENTITY, Caller, Verb
from spanmq_service.http.failure import Refusal, forbidden, unauthorized
from spanmq_service.http.request_origin import is_from_elsewhere, is_named_here


def check_is_ours(request: Request) -> None:
    """Refuse requests that a page of another site may have caused, in a service without tokens.

    Raises 421 for a host name other than this machine's own, since a foreign page's name may resolve to this
    machine, and 403 for a request that a page of another site has sent.
    """
    # Decoded once: Starlette searches all headers for each one that is read.
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}
    if not is_named_here(headers.get("host")):
        raise Refusal(421, "not_by_this_name", "without tokens the service answers to localhost only")
    if is_from_elsewhere(headers):
        raise Refusal(
            403, "from_another_site", "without tokens, requests of pages of other sites are refused"
        )


async def identify(request: Request) -> Caller:
    """Return the caller; raises 401 for an invalid token, 429 if the caller has too many requests at once."""
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
    caller = await backend.credentials.caller_of_token(secret, request.scope)
    if caller is None:
        raise unauthorized("the token is unknown, expired or revoked")
    backend.gate.count(request.scope, caller)
    request.scope[IDENTITY] = caller
    return caller


def _secret_of(request: Request) -> str:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def still_may(request: Request, verb: Verb, queue: str) -> Callable[[], Awaitable[bool]]:
    """Return a check that the token of a waiting request is still valid and still allows the verb."""
    backend: Backend = request.app.state.backend

    async def check() -> bool:
        if not backend.settings.with_tokens:
            return True
        try:
            caller = await backend.credentials.caller_of_token(_secret_of(request), request.scope)
        except Refusal:
            return False
        return caller is not None and caller.may(verb, queue)

    return check


@dataclass(frozen=True)
class Scope:
    """The scope that a route requires of its caller.

    `of` says where the queue's name is: in the `path`, in the `request` (its handler checks each queue), or
    nowhere (`everything`: all queues are concerned). The answer may also be `filtered` to the queues that the
    caller may see.
    """

    verb: Verb
    of: Literal["path", "everything", "request", "filtered"] = "path"

    async def __call__(self, request: Request) -> Caller:
        """Return the caller; raises 401 or 403 if the token does not allow the route."""
        caller = await identify(request)
        if self.of == "path":
            caller.check(self.verb, request.path_params["queue"])
        elif self.of == "everything":
            caller.check(self.verb, None)
        elif self.verb not in caller.verbs:
            raise forbidden(self.verb, None)
        ACTOR.set(f"service, token {caller.name}" if caller.name else "service")
        return caller


async def whole_body(request: Request) -> bytes:
    """Return the body of a request; raises HTTPException with 400 if the client hangs up before its end."""
    parts = []
    # Not by the request's own method: its three layers take 10 µs.
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "the client has hung up")
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def hung_up(request: Request) -> None:
    """Return when the client of a request whose body was read has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
