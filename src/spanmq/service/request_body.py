"""The body of a request, read within limits of time and size."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope

from spanmq.service.admission import Admission, too_large
from spanmq.service.refusal import Refusal


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
        """Return the next part, and after the last one the end of the connection, for which there is no time
        limit.
        """
        if self._deadline is not None and self.is_read:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
            if self._announced > self._admission.body_bytes_max:
                raise too_large(self._admission.body_bytes_max)
            if not self.is_read:
                self._admission.wait_for_client()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            raise Refusal(408, "request_too_slow", "the request's body did not arrive in time") from error
        self.is_read = message["type"] != "http.request" or not message.get("more_body", False)
        self._admission.grow(len(message.get("body", b"")))
        return message
