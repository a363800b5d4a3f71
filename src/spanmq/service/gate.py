"""How much at once: requests at work, and their bodies. An ASGI middleware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spanmq.service.failure import answer, body_of
from spanmq.service.refusal import Refusal
from spanmq.service.request_body import RequestBody, too_large

if TYPE_CHECKING:
    from spanmq.service.access import Caller
    from spanmq.service.measures import Measures
    from spanmq.service.settings import Settings

CALLER: Final = "spanmq.caller"
HEADERS: Final = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class Gate:
    """Counts requests; those beyond a limit are refused before they take anything."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.measures: Measures | None = None  # told of each request
        self.at_work = 0
        self.waiting = 0
        self._of_callers: Counter[str] = Counter()
        self._waiting_callers: Counter[str] = Counter()

    def over(self, app: ASGIApp) -> ASGIApp:
        """Give the application behind this gate."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await self._pass(app, scope, receive, send)
            else:
                await app(scope, receive, send)

        return guarded

    def count(self, scope: Scope, caller: Caller) -> None:
        """Know whose request it is; raises 429 if the caller has too many at once."""
        if CALLER in scope:
            return
        if self._of_callers[caller.name] >= self._settings.requests_per_token_max:
            raise Refusal(429, "too_many_requests", "this token has too many requests at once", retry_after=1)
        scope[CALLER] = caller.name
        self._of_callers[caller.name] += 1

    @contextmanager
    def aside(self, caller: Caller) -> Iterator[None]:
        """Let a request wait for a message: it is not at work, but there is a limit to that, too."""
        if self.waiting >= self._settings.waiting_max:
            raise Refusal(503, "too_many_waiting", "too many requests wait for messages", retry_after=5)
        if self._waiting_callers[caller.name] >= self._settings.waiting_per_token_max:
            raise Refusal(429, "too_many_waiting", "too many requests of this token wait", retry_after=5)
        self._shift(caller, 1)
        try:
            yield
        finally:
            self._shift(caller, -1)

    def _shift(self, caller: Caller, by: int) -> None:
        self.at_work -= by
        self.waiting += by
        self._of_callers[caller.name] -= by
        self._waiting_callers[caller.name] += by

    async def _pass(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = monotonic(), 500
        body = RequestBody(scope, receive, self._settings)

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = list(message.get("headers", ()))
                names = {name.lower() for name, _ in given}
                message["headers"] = given + [each for each in HEADERS if each[0] not in names]
                if not body.is_read and b"connection" not in names:
                    # Who was refused before his body was read is not listened to any longer.
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            await self._admit(app, scope, body.receive, sending)
        finally:
            if self.measures is not None:
                # A route's pattern: paths have no end, and would fill the memory of who scrapes.
                route = getattr(scope.get("route"), "path", "other")
                method = scope["method"] if route != "other" else "other"
                self.measures.answered(method, route, status, monotonic() - began)

    async def _admit(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope)
        if refused is not None:
            body = body_of(refused.code, refused.message)
            response = answer(refused.status_code, body, retry_after=refused.retry_after)
            await response(scope, receive, send)
            return
        self.at_work += 1
        try:
            await app(scope, receive, send)
        finally:
            self.at_work -= 1
            if (name := scope.get(CALLER)) is not None:
                self._of_callers[name] -= 1
                if not self._of_callers[name]:
                    del self._of_callers[name]

    def _refusal(self, scope: Scope) -> Refusal | None:
        # Who asks for the service's health must be answered when it is overloaded, too.
        if self.at_work >= self._settings.requests_max and not scope["path"].startswith("/health/"):
            return Refusal(503, "overloaded", "the service is overloaded", retry_after=1)
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self._settings.body_bytes_max:
                return too_large(self._settings)
        return None
