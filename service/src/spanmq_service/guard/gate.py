"""Limits on concurrent requests and on their bodies, as an ASGI middleware.

A request counts in one of several budgets. First it arrives; while its client is identified it holds nothing
but a lookup. A request that waits for its client before that (for a body to come, for a large answer to be
taken) moves to a small budget of such requests, so that no number of them takes anything from those that have
shown a token. From then on it counts among the identified.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spanmq_service.guard.admission import (
    ANSWER_BYTES_FREE,
    Admission,
    Arrivals,
    ConcurrencyLimit,
    nothing,
    overloaded,
    release_slot,
    too_large,
)
from spanmq_service.guard.caller import Caller
from spanmq_service.http.failure import Refusal, answer, body_of
from spanmq_service.http.request_origin import is_named_here
from spanmq_service.settings import Settings

ADMISSION: Final = "spanmq.admission"
# A function that waits until the client has read what was sent to it.
DRAIN: Final = "spanmq.drain"
# A form without a session is a sign-in.
ANONYMOUS_BODY_BYTES_MAX: Final = 8 * 1024
# A signature covers the body, which must be read first. SQS takes 1 MiB; a form may triple that.
UNSIGNED_BODY_BYTES_MAX: Final = 4 * 1024 * 1024
HEADERS: Final = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
# Makes browsers use HTTPS only, for a year. Not sent for localhost, which browsers treat as one host for all
# ports.
HSTS: Final = (b"strict-transport-security", b"max-age=31536000")


class Gate:
    """Counts requests, and refuses those beyond a limit before they take any resources."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Called for each answered request: its method, route, status and seconds.
        self.on_answered: Callable[[str, str, int, float], None] | None = None
        self.waiting = 0
        self._identified = 0
        self._of_callers: Counter[str] = Counter()
        self._waiting_callers: Counter[str] = Counter()
        self._arrivals = Arrivals(settings.anonymous_max)
        self._limit = ConcurrencyLimit(max(1, settings.pool_size // 2))
        self._body_bytes: Counter[str] = Counter()

    @property
    def at_work(self) -> int:
        """Return the number of requests that are being answered and do not wait for messages."""
        return self._arrivals.arriving + self._arrivals.waiting + self._identified

    def over(self, app: ASGIApp) -> ASGIApp:
        """Return the application wrapped in this gate."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await self._pass(app, scope, receive, send)
            else:
                await app(scope, receive, send)

        return guarded

    def count(self, scope: Scope, caller: Caller) -> None:
        """Count a request as its caller's; raises 429 if the caller has too many, 503 if all have."""
        admission: Admission | None = scope.get(ADMISSION)
        if admission is None or admission.caller is not None:
            return
        if self._identified >= self._settings.requests_max:
            raise overloaded()
        if self._of_callers[caller.name] >= self._settings.requests_per_token_max:
            raise Refusal(429, "too_many_requests", "this token has too many requests at once", retry_after=1)
        admission.end_wait()
        admission.caller = caller.name
        admission.body_bytes_max = self._settings.body_bytes_max
        # The part of the body that has arrived counts as its caller's, as the rest will.
        self._body_bytes[caller.name] += admission.size
        admission.bytes_of_callers = self._body_bytes
        self._arrivals.arriving -= 1
        self._identified += 1
        self._of_callers[caller.name] += 1

    def expect_signed(self, scope: Scope, access_key_id: str) -> None:
        """Allow a larger body: the service needs it to check a signature whose key exists."""
        admission: Admission | None = scope.get(ADMISSION)
        if admission is not None and admission.caller is None:
            admission.expect_signed(
                access_key_id, min(UNSIGNED_BODY_BYTES_MAX, self._settings.body_bytes_max)
            )

    async def acquire(
        self, scope: Scope, caller: Caller, gone: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Wait until fewer than half as many requests of the caller are processed as the pool has connections.

        The slot is held until the answer has left: what one token causes leaves connections, and memory, to others.
        Raises 400 if the client hangs up before, when `gone` returns.
        """
        admission: Admission | None = scope.get(ADMISSION)
        if admission is not None and admission.slot is None and self._settings.with_tokens:
            admission.slot = await self._limit.acquire(caller.name, gone)

    @contextmanager
    def as_waiting(self, scope: Scope, caller: Caller) -> Iterator[None]:
        """Count a request as waiting for a message instead of as being answered; waiting has its own limit.

        Its slot is released.
        """
        release_slot(scope.get(ADMISSION))
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
        self._identified -= by
        self.waiting += by
        self._of_callers[caller.name] -= by
        self._waiting_callers[caller.name] += by

    async def _pass(self, app: ASGIApp, asked: Scope, receive: Receive, send: Send) -> None:
        began = monotonic()
        # A HEAD is a GET whose body is not sent.
        scope = {**asked, "method": "GET"} if asked["method"] == "HEAD" else asked
        admission = self._admission(scope)
        scope[ADMISSION] = admission
        body = RequestBody(scope, receive, self._settings.read_timeout, admission)
        answering = Answering(scope, send, admission, body, has_body=scope is asked)
        try:
            refused = self._refusal(scope)
            if refused is not None:
                await answering.refuse(refused)
            else:
                await self._admit(app, scope, body.receive, answering)
        finally:
            if self.on_answered is not None:
                # The route's pattern: the number of paths is unlimited, and would fill Prometheus's memory.
                route = getattr(scope.get("route"), "path", "other")
                method = asked["method"] if route != "other" else "other"
                self.on_answered(method, route, answering.status, monotonic() - began)

    def _admission(self, scope: Scope) -> Admission:
        with_tokens = self._settings.with_tokens
        is_exempt = not with_tokens or scope["path"].startswith("/health/")
        most = ANONYMOUS_BODY_BYTES_MAX if with_tokens else self._settings.body_bytes_max
        return Admission(self._arrivals, scope, is_exempt=is_exempt, body_bytes_max=most)

    async def _admit(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        admission: Admission = scope[ADMISSION]
        if self._settings.with_tokens:
            self._arrivals.arriving += 1
        else:
            self._identified += 1
        try:
            await app(scope, receive, send)
        finally:
            admission.end_wait()
            release_slot(admission)
            if (name := admission.caller) is not None:
                self._of_callers[name] -= 1
                if not self._of_callers[name]:
                    del self._of_callers[name]
                self._body_bytes[name] -= admission.size
                if not self._body_bytes[name]:
                    del self._body_bytes[name]
            if self._settings.with_tokens and name is None:
                self._arrivals.arriving -= 1
            else:
                self._identified -= 1

    def _refusal(self, scope: Scope) -> Refusal | None:
        count = self._arrivals.arriving if self._settings.with_tokens else self._identified
        # Checks of the service's health must be answered under overload, too.
        if count >= self._settings.requests_max and not scope["path"].startswith("/health/"):
            return overloaded()
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self._settings.body_bytes_max:
                return too_large(self._settings.body_bytes_max)
        return None


class Answering:
    """Sends the answer to one request."""

    def __init__(
        self, scope: Scope, send: Send, admission: Admission, body: RequestBody, *, has_body: bool
    ) -> None:
        self.status = 500
        self._scope = scope
        self._send = send
        self._admission = admission
        self._body = body
        self._has_body = has_body
        self._is_refused = False

    async def __call__(self, message: Message) -> None:
        """Send a part of the response, or a refusal if too many unknown clients are being served."""
        if message["type"] == "http.response.start":
            size = dict(message.get("headers", ())).get(b"content-length")
            try:
                self._admission.wait_for_reader(None if size is None else int(size))
            except Refusal as refusal:
                self._is_refused = True
                await self.refuse(refusal)
                return
        if not self._is_refused:
            await self._forward(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal, whatever the budget."""
        body = body_of(refusal.code, refusal.message)
        response = answer(refusal.status_code, body, retry_after=refusal.retry_after)
        await response(self._scope, _nothing, self._forward)

    async def _forward(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            message["headers"] = headers + [header for header in HEADERS if header[0] not in names]
            if self._scope["scheme"] == "https" and not is_named_here(_host_of(self._scope)):
                message["headers"].append(HSTS)
            if not self._body.is_read and b"connection" not in names:
                # The connection is closed, because the rest of the request's body was not read.
                message["headers"].append((b"connection", b"close"))
        elif not self._has_body:
            message = {**message, "body": b""}
        await self._send(message)
        if (
            len(message.get("body", b"")) > ANSWER_BYTES_FREE
            and (drain := self._scope.get(DRAIN)) is not None
        ):
            # A server's send() returns at once; until the client has read the answer it takes memory.
            await drain()


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _host_of(scope: Scope) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), None)


class RequestBody:
    """Returns the parts of a body; raises 408 if it arrives too slowly, 413 and 503 as its admission does."""

    def __init__(self, scope: Scope, receive: Receive, seconds: float, admission: Admission) -> None:
        headers = dict(scope["headers"])
        self._announced = int(headers.get(b"content-length", b"0"))
        # Whether the whole body has been read.
        self.is_read = self._announced == 0 and b"transfer-encoding" not in headers
        self._receive = receive
        self._seconds = seconds
        self._admission = admission
        self._deadline: float | None = None  # from the first read on: what has arrived by then is in time

    async def receive(self) -> Message:
        """Return the next part; after the last one, without a time limit, the end of the connection."""
        if self._deadline is not None and self.is_read:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
            if self._announced > self._admission.body_bytes_max:
                raise too_large(self._admission.body_bytes_max)
            if not self.is_read:
                self._admission.wait_for_body()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._deadline) as limit:
                self._admission.on_expelled = lambda: limit.reschedule(loop.time())
                message = await self._receive()
        except TimeoutError as error:
            if self._admission.is_expelled:
                raise overloaded() from error
            raise Refusal(408, "request_too_slow", "the request's body did not arrive in time") from error
        finally:
            self._admission.on_expelled = nothing
        self._admission.grow(len(message.get("body", b"")))
        self.is_read = message["type"] != "http.request" or not message.get("more_body", False)
        if self.is_read:
            # From now on it waits for the service, not for its client.
            self._admission.end_wait()
        return message
