"""A worker's events as lines of JSON."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict

from spanmq.cli.line_writer import LineWriter
from spanmq.worker.event import Event, name_of

logger = logging.getLogger("spanmq.worker")


class EventLines:
    """An observer, which holds up nobody: what isn't read is dropped, see LineWriter."""

    def __init__(self, descriptor: int) -> None:
        self._writer = LineWriter(
            descriptor,
            tell_dropped=lambda count: json.dumps({"event": "events_dropped", "count": count}),
            on_full=lambda: logger.warning("events_dropped: they are not read as fast as they come"),
            on_unread=lambda error: logger.warning("events_unread error=%s; the worker goes on", error),
        )

    def __call__(self, event: Event) -> None:
        """Have an event written; returns at once."""
        self._writer.write(lambda: json.dumps({"event": name_of(event), **asdict(event)}))

    def close(self) -> None:
        """Wait until everything is written, as long as somebody reads it."""
        self._writer.close()
