"""The body of a request as it comes: in time and of some size, or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.types import Message, Receive, Scope

from spanmq.service.refusal import Refusal

if TYPE_CHECKING:
    from spanmq.service.settings import Settings


class RequestBody:
    """Gives what comes; raises 408 for what comes too slowly and 413 for what is too much."""

    def __init__(self, scope: Scope, receive: Receive, settings: Settings) -> None:
        headers = dict(scope["headers"])
        # Whether nothing of it is left on the way.
        self.is_read = headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers
        self._receive = receive
        self._settings = settings
        self._deadline: float | None = None  # from the first look on: what is here already is in time
        self._size = 0

    async def receive(self) -> Message:
        """Give the next part, and then the end of the connection, for which there is no hurry."""
        if self._deadline is not None and self.is_read:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._settings.read_timeout
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            raise Refusal(408, "request_too_slow", "the request's body did not come in time") from error
        self.is_read = message["type"] != "http.request" or not message.get("more_body", False)
        self._size += len(message.get("body", b""))
        if self._size > self._settings.body_bytes_max:
            raise too_large(self._settings)
        return message


def too_large(settings: Settings) -> Refusal:
    """Say that a body is too large."""
    return Refusal(413, "request_too_large", f"a request may have {settings.body_bytes_max:,} bytes at most")
