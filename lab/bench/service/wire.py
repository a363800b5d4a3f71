"""A keep-alive HTTP client that costs next to nothing: the server is measured, not a client library."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit


class StatusError(RuntimeError):
    """An answer with another status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Wire:
    """One connection; a request at a time."""

    def __init__(self, address: str, secret: str | None = None) -> None:
        place = urlsplit(address)
        self.host, self.port = str(place.hostname), int(place.port or 80)
        self.secret = secret
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> Any:
        """Ask, and give what the JSON of the answer says; raises RuntimeError for any other status."""
        return json.loads(await self.request("POST", path, body))

    async def request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Send a request, and return the answer; raises StatusError for any other status.

        `headers` replace the usual ones and the token.
        """
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(self.host, self.port)
        head = f"{method} {path} HTTP/1.1\r\n"
        if headers is not None:
            head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        else:
            head += f"Host: {self.host}\r\nContent-Type: application/json\r\n"
        if self.secret is not None and headers is None:
            head += f"Authorization: Bearer {self.secret}\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status = int(answer[9:12])
        lower = answer.lower()
        at = lower.index(b"content-length:") + 15
        text = await self._reader.readexactly(int(lower[at : lower.index(b"\r", at)]))
        if status >= 300:
            raise StatusError(status, f"{path}: {status} {text[:300]!r}")
        return text

    def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None
