"""A worker's events as lines of JSON, written in a thread: a slow reader must not hold up handlers."""

from __future__ import annotations

import json
import logging
import os
import threading
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any, Final

from spanmq.worker.event import Event, name_of

logger = logging.getLogger("spanmq.worker")

# What waits to be read, at most; a few megabytes.
LINES_MAX: Final = 10_000
# When the worker has ended, its last events are written as long as somebody reads one in so many seconds.
CLOSE_SECONDS: Final = 1.0


class EventLines:
    """An observer. What nobody reads is kept, but no more than LINES_MAX; what comes then is dropped.

    How many that were says a line `events_dropped` as soon as there is room again. When nobody can read any
    more (the pipe is closed), nothing is written any more, and the worker goes on.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: SimpleQueue[Event | dict[str, Any] | None] = SimpleQueue()
        self._dropped = 0
        self._written = 0
        self._is_closed = False
        # A daemon, which may be stuck in a write when the process ends. It writes past sys.stdout, whose lock
        # the interpreter wants at its end.
        self._thread = threading.Thread(target=self._run, name="spanmq events", daemon=True)
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Have an event written; returns at once."""
        if self._is_closed:
            return
        if self._waiting.qsize() >= LINES_MAX:
            if not self._dropped:
                logger.warning("events_dropped: they are not read as fast as they come")
            self._dropped += 1
            return
        self._tell_dropped()
        self._waiting.put(event)

    def close(self) -> None:
        """Wait until everything is written, as long as somebody reads it."""
        self._tell_dropped()
        self._waiting.put(None)
        before = -1
        while self._thread.is_alive() and self._written > before:
            before = self._written
            self._thread.join(CLOSE_SECONDS)

    def _tell_dropped(self) -> None:
        if self._dropped:
            self._waiting.put({"event": "events_dropped", "count": self._dropped})
            self._dropped = 0

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            record = event if isinstance(event, dict) else {"event": name_of(event), **asdict(event)}
            line = memoryview(f"{json.dumps(record)}\n".encode())
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
                self._written += 1
            except OSError as error:
                self._is_closed = True
                logger.warning("events_unread error=%s; the worker goes on", error)
                return
