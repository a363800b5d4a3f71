"""A connection that sends a response in one write, and is closed if its client reads nothing."""

from __future__ import annotations

import asyncio
from typing import Any, Final

# A client must read this many bytes within the time limit: even slow mobile connections do.
BYTES_MIN: Final = 16 * 1024


class OneWrite:
    """A transport that sends together what is written in one turn of the event loop.

    uvicorn writes headers and body separately, and each write is a system call.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send at the end of this turn of the event loop."""
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)

    def close(self) -> None:
        """Send buffered data, and close."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._held:
            self._transport.write(b"".join(self._held))
            self._held.clear()


class SlowReader:
    """Closes the connection of a client that does not read its response, which uses memory and counts as a
    request.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start the time limit: data waits to be sent."""
        self._left = self._transport.get_write_buffer_size()
        self.end()
        self._timer = self._loop.call_later(self._seconds, self._look)

    def end(self) -> None:
        """Stop the time limit: little data is left, or the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._left - self._transport.get_write_buffer_size() < BYTES_MIN:
            # Not close(), which would wait until it has been sent.
            self._transport.abort()
        else:
            self.begin()
