"""A log that holds up nobody, for processes whose event loop writes it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from spanmq.cli.line_writer import LineWriter

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class LogLines(logging.Handler):
    """Writes to a descriptor, which may be a full pipe; what isn't read is dropped, see LineWriter."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(FORMAT))
        self._writer = LineWriter(descriptor, tell_dropped=lambda count: f"log_dropped count={count}")

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written; returns at once."""
        # Made here: what it tells of may have changed when the thread comes to it.
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001, a log line must not end what it tells of
            self.handleError(record)
            return
        self._writer.write(lambda: text)

    def close(self) -> None:
        """Wait until everything is written, as long as somebody reads it."""
        self._writer.close()
        super().close()


@contextmanager
def logging_lines(level: int) -> Iterator[None]:
    """Log to stderr, in a thread of its own."""
    lines = LogLines(sys.stderr.fileno())
    logging.basicConfig(level=level, handlers=[lines])
    try:
        yield
    finally:
        logging.getLogger().removeHandler(lines)
        lines.close()
