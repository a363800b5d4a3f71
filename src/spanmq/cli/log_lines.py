"""The log, and a worker's events as JSON: lines written in a thread, so that a slow reader delays nothing."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanmq.cli.output import visible
from spanmq.errors import InvalidArgumentError

if TYPE_CHECKING:
    from spanmq.worker.event import Event

logger = logging.getLogger("spanmq.worker")

# The maximum of unread lines; a few megabytes.
LINES_MAX: Final = 10_000
# At the end, waiting lines are written as long as at least one is read in this time.
CLOSE_SECONDS: Final = 1.0

# A traceback follows the line of an event.
TRACEBACK: Final = "\nTraceback (most recent call last):\n"

Line = Callable[[], str]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]


@dataclass(eq=False)
class LineWriter:
    """Buffers unread lines, up to LINES_MAX; further ones are dropped.

    A line made by `tell_dropped` reports their number, as soon as there is room again. When the pipe is
    closed, `on_unread` is called, and nothing more is written.
    """

    descriptor: int
    tell_dropped: Callable[[int], str]
    on_full: Callable[[], None] = lambda: None
    on_unread: Callable[[OSError], None] = lambda _: None

    def __post_init__(self) -> None:
        """Begin to write."""
        self._waiting: SimpleQueue[Line | None] = SimpleQueue()
        self._dropped = 0
        self._written = 0
        self._is_closed = False
        # A daemon, which may be stuck in a write when the process ends. It writes past sys.stdout and
        # sys.stderr, whose locks the interpreter wants at its end.
        self._thread = threading.Thread(target=self._run, name="spanmq lines", daemon=True)
        self._thread.start()

    def write(self, line: Line) -> None:
        """Queue a function that returns a line, to be written in the thread; returns at once."""
        if self._is_closed:
            return
        if self._waiting.qsize() >= LINES_MAX:
            self._dropped += 1
            if self._dropped == 1:
                self.on_full()
            return
        self._tell_dropped()
        self._waiting.put(line)

    def close(self) -> None:
        """Wait until all lines are written, as long as they are being read."""
        self._tell_dropped()
        self._waiting.put(None)
        before = -1
        while self._thread.is_alive() and self._written > before:
            before = self._written
            self._thread.join(CLOSE_SECONDS)

    def _tell_dropped(self) -> None:
        if count := self._dropped:
            self._waiting.put(lambda: self.tell_dropped(count))
            self._dropped = 0

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            rest = memoryview(f"{line()}\n".encode(errors="backslashreplace"))
            try:
                while rest:
                    rest = rest[os.write(self.descriptor, rest) :]
                self._written += 1
            except OSError as error:
                self._is_closed = True
                self.on_unread(error)
                return


class OneLine(logging.Formatter):
    """Writes a record as one line: time, level, logger, the name of an event, and its fields.

    A record of another package becomes the field `message`, and a traceback the field `traceback`. On a terminal a
    traceback is lines below.
    """

    def __init__(self, *, on_terminal: bool = False) -> None:
        super().__init__()
        self._on_terminal = on_terminal

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        text = record.getMessage()
        if record.name.partition(".")[0] != "spanmq":
            text = f"message={text.strip()!r}"
        text, begin, rest = text.partition(TRACEBACK)
        traces = [(begin + rest).strip()] if begin else []
        if record.exc_info:
            traces.append(self.formatException(record.exc_info))
        text = "\\n".join(text.splitlines())
        line = f"{self.formatTime(record)} {record.levelname} {record.name} {text}"
        if self._on_terminal:
            return visible("\n".join([line, *(indent(trace, "    ") for trace in traces)]))
        return "".join([line, *(f" traceback={trace!r}" for trace in traces)])


class LogLines(logging.Handler):
    """Writes to a descriptor, which may be a full pipe; what isn't read is dropped, see LineWriter."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.setFormatter(OneLine(on_terminal=os.isatty(descriptor)))
        self._writer = LineWriter(descriptor, tell_dropped=self._dropped)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record to be written; returns at once."""
        # Formatted here: its values may have changed when the thread writes it.
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001, logging must not raise
            self.handleError(record)
            return
        self._writer.write(lambda: text)

    def _dropped(self, count: int) -> str:
        text = f"log_dropped count={count}"
        return self.format(logging.LogRecord("spanmq", logging.WARNING, "", 0, text, (), None))

    def close(self) -> None:
        """Wait until all lines are written, as long as they are being read."""
        self._writer.close()
        super().close()


class EventLines:
    """An observer that never blocks: lines that are not read are dropped, see LineWriter."""

    def __init__(self, descriptor: int) -> None:
        from spanmq.worker.event import name_of

        self._name_of = name_of
        self._writer = LineWriter(
            descriptor,
            tell_dropped=lambda count: json.dumps({"event": "events_dropped", "count": count}),
            on_full=lambda: logger.warning("events_dropped: they are not read as fast as they come"),
            on_unread=lambda error: logger.warning("events_unread error=%s; the worker goes on", error),
        )

    def __call__(self, event: Event) -> None:
        """Queue an event to be written; returns at once."""
        self._writer.write(lambda: json.dumps({"event": self._name_of(event), **asdict(event)}))

    def close(self) -> None:
        """Wait until all lines are written, as long as they are being read."""
        self._writer.close()


def level_named(name: str) -> int:
    """Return a level of the log; raises InvalidArgumentError."""
    level = logging.getLevelNamesMapping().get(name.upper())
    if level is None:
        raise InvalidArgumentError(f"log level {name!r} does not exist")
    return level


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
