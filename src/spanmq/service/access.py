"""Who asks, and what he may do: bearer tokens, and the scope that each route wants."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from fastapi.dependencies.utils import get_dependant
from fastapi.openapi.models import HTTPBearer
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope as AsgiScope

from spanmq.foreign_site import is_from_elsewhere
from spanmq.loopback import is_named_here
from spanmq.message import AccessKey, Token
from spanmq.service.failure import described
from spanmq.service.refusal import Refusal, forbidden, unauthorized
from spanmq.service.remembered import Remembered
from spanmq.token_secret import PREFIX, hash_of

if TYPE_CHECKING:
    from spanmq.client_async import AsyncClient
    from spanmq.service.backend import Backend
    from spanmq.service.guesses import Guesses

Verb = Literal["send", "receive", "look", "manage"]
VERBS: Final[tuple[Verb, ...]] = ("send", "receive", "look", "manage")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks; a queue is looked at without regard to case, as the database does."""

    name: str
    queues: tuple[str, ...]
    verbs: frozenset[str]
    expires_at: datetime | None = None

    def may(self, verb: Verb, queue: str | None) -> bool:
        """Tell whether he may do that; None is what concerns all queues, for which one needs `*`."""
        if verb not in self.verbs:
            return False
        if "*" in self.queues:
            return True
        return queue is not None and any(_fits(pattern, queue) for pattern in self.queues)

    def check(self, verb: Verb, queue: str | None) -> None:
        """Raise 403 if he may not, in the same words whether the queue exists or not."""
        if not self.may(verb, queue):
            raise forbidden(verb, queue)


IDENTITY: Final = "spanmq.identity"
EVERYBODY: Final = Caller("", ("*",), frozenset(VERBS))


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    # Only * is special: brackets and question marks stand for themselves.
    return re.compile(".*".join(map(re.escape, text.lower().split("*"))), re.DOTALL)


def _fits(pattern: str, queue: str) -> bool:
    return _pattern(pattern).fullmatch(queue.lower()) is not None


class Tokens:
    """Looks tokens up, and remembers the answer for so many seconds, or until one is revoked."""

    def __init__(self, client: AsyncClient, cached_for: float, guesses: Guesses) -> None:
        self._client = client
        self._guesses = guesses
        self._known: Remembered[Caller | None] = Remembered(cached_for, expiry_of)

    def forget(self) -> None:
        """Look up again from now on."""
        self._known.forget()

    async def caller_of(self, secret: str, scope: AsgiScope) -> Caller | None:
        """Return the caller with that secret, None if it is not valid now; 429 after many wrong ones."""
        if not secret.startswith(PREFIX):
            return None
        # The cache, like the database, has no secrets.
        key = hash_of(secret)

        async def ask() -> Caller | None:
            token = await self._client.check_token(secret)
            return None if token is None else caller_of(token)

        return await self._known.get(key, lambda: self._guesses.look_up(scope, key, ask))


class Keys:
    """Looks access keys of the SQS protocol up, and remembers them as long as tokens."""

    def __init__(self, client: AsyncClient, cached_for: float, guesses: Guesses) -> None:
        self._client = client
        self._guesses = guesses
        self._known: Remembered[AccessKey | None] = Remembered(cached_for, expiry_of)

    def forget(self) -> None:
        """Look up again from now on."""
        self._known.forget()

    async def find(self, access_key_id: str, scope: AsgiScope) -> AccessKey | None:
        """Return the key of that id, None if it is not valid now; 429 after many wrong ones."""

        async def ask() -> AccessKey | None:
            return await self._client.find_access_key(access_key_id)

        return await self._known.get(
            access_key_id, lambda: self._guesses.look_up(scope, f"key {access_key_id}", ask)
        )

    async def get(self, access_key_id: str) -> AccessKey | None:
        """Return the key of an id that the service has stored itself, None if it is not valid now."""
        return await self._known.get(access_key_id, lambda: self._client.find_access_key(access_key_id))


def expiry_of(known: Caller | AccessKey | None) -> datetime | None:
    """Return when a token or a key expires."""
    return None if known is None else known.expires_at


def caller_of(token: Token) -> Caller:
    """Give who a token stands for."""
    return Caller(token.name, tuple(token.queues), frozenset(token.verbs), token.expires_at)


def caller_of_key(key: AccessKey) -> Caller:
    """Return the caller that an access key stands for."""
    return Caller(key.access_key_id, tuple(key.queues), frozenset(key.verbs))


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
    model = HTTPBearer(description="A token, see docs/service.md. A service without tokens ignores it.")
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
