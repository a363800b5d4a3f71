"""Who takes nothing of his answer is hung up on: it waits for him in memory, and holds a request at work."""

from __future__ import annotations

import asyncio
from typing import Any, Final

# In so many seconds at least so much must be taken: the slowest telephone does.
BYTES_MIN: Final = 16 * 1024


class SlowReader:
    """Looks after one connection while more is to be sent than its network takes at once."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Something waits to be sent."""
        self._left = self._transport.get_write_buffer_size()
        self.end()
        self._timer = self._loop.call_later(self._seconds, self._look)

    def end(self) -> None:
        """Little waits, or nobody is there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._left - self._transport.get_write_buffer_size() < BYTES_MIN:
            # Not close(), which would wait until it has been sent.
            self._transport.abort()
        else:
            self.begin()
