"""Lines written in a thread: a slow reader must not hold up who writes them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

# What waits to be read, at most; a few megabytes.
LINES_MAX: Final = 10_000
# At the end, the last lines are written as long as somebody reads one in so many seconds.
CLOSE_SECONDS: Final = 1.0

Line = Callable[[], str]


class LineWriter:
    """Keeps what nobody reads, but no more than LINES_MAX lines; what comes then is dropped.

    How many that were says the line that `tell_dropped` makes, as soon as there is room again. When nobody
    can read any more (the pipe is closed), `on_unread` is called, and nothing is written any more.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        tell_dropped: Callable[[int], str],
        on_full: Callable[[], None] = lambda: None,
        on_unread: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        self._descriptor = descriptor
        self._make_dropped = tell_dropped
        self._on_full = on_full
        self._on_unread = on_unread
        self._waiting: SimpleQueue[Line | None] = SimpleQueue()
        self._dropped = 0
        self._written = 0
        self._is_closed = False
        # A daemon, which may be stuck in a write when the process ends. It writes past sys.stdout and
        # sys.stderr, whose locks the interpreter wants at its end.
        self._thread = threading.Thread(target=self._run, name="spanmq lines", daemon=True)
        self._thread.start()

    def write(self, line: Line) -> None:
        """Have a line made and written, in the thread; returns at once."""
        if self._is_closed:
            return
        if self._waiting.qsize() >= LINES_MAX:
            self._dropped += 1
            if self._dropped == 1:
                self._on_full()
            return
        self._tell_dropped()
        self._waiting.put(line)

    def close(self) -> None:
        """Wait until everything is written, as long as somebody reads it."""
        self._tell_dropped()
        self._waiting.put(None)
        before = -1
        while self._thread.is_alive() and self._written > before:
            before = self._written
            self._thread.join(CLOSE_SECONDS)

    def _tell_dropped(self) -> None:
        if count := self._dropped:
            self._waiting.put(lambda: self._make_dropped(count))
            self._dropped = 0

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            rest = memoryview(f"{line()}\n".encode(errors="backslashreplace"))
            try:
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
                self._written += 1
            except OSError as error:
                self._is_closed = True
                self._on_unread(error)
                return
