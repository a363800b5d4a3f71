"""A log that holds up nobody, for processes whose event loop writes it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from spanmq.cli.line_writer import LineWriter


class OneLine(logging.Formatter):
    """Writes a record as one line: time, level, logger, the name of an event, and its fields.

    A record of another package becomes the field `message`, and a traceback the field `traceback`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        text = record.getMessage()
        if record.name.partition(".")[0] != "spanmq":
            text = f"message={text.strip()!r}"
        if record.exc_info:
            text += f" traceback={self.formatException(record.exc_info)!r}"
        text = "\\n".join(text.splitlines())
        return f"{self.formatTime(record)} {record.levelname} {record.name} {text}"


class LogLines(logging.Handler):
    """Writes to a descriptor, which may be a full pipe; what isn't read is dropped, see LineWriter."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.setFormatter(OneLine())
        self._writer = LineWriter(descriptor, tell_dropped=self._dropped)

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written; returns at once."""
        # Made here: what it tells of may have changed when the thread comes to it.
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001, a log line must not end what it tells of
            self.handleError(record)
            return
        self._writer.write(lambda: text)

    def _dropped(self, count: int) -> str:
        text = f"log_dropped count={count}"
        return self.format(logging.LogRecord("spanmq", logging.WARNING, "", 0, text, (), None))

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
