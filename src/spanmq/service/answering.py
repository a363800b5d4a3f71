"""Every response: common headers, no body after HEAD, and a budget for clients that are slow to read it."""

from __future__ import annotations

from typing import Final

from starlette.types import Message, Scope, Send

from spanmq.service.admission import Admission
from spanmq.service.failure import answer, body_of
from spanmq.service.refusal import Refusal
from spanmq.service.request_body import RequestBody
from spanmq.service.request_origin import is_named_here

HEADERS: Final = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
# Makes browsers use HTTPS only, for a year. Not sent for localhost, which browsers treat as one host for all
# ports.
HSTS: Final = (b"strict-transport-security", b"max-age=31536000")


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
        """Send a part of the response, or a refusal in its place if too many unknown clients are being
        served.
        """
        if message["type"] == "http.response.start":
            try:
                self._admission.wait_for_client()
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
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            message["headers"] = given + [each for each in HEADERS if each[0] not in names]
            if self._scope["scheme"] == "https" and not is_named_here(_host_of(self._scope)):
                message["headers"].append(HSTS)
            if not self._body.is_read and b"connection" not in names:
                # The connection is closed, because the rest of the request's body was not read.
                message["headers"].append((b"connection", b"close"))
        elif not self._has_body:
            message = {**message, "body": b""}
        await self._send(message)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _host_of(scope: Scope) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), None)
