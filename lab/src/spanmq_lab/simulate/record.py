"""The log of a run: lines of JSON, each appended by one write of a producer or a worker.

A written line survives its writer, and the lines of all processes are in the order in which things
happened: what a worker does because of an event follows the line of that event. So the audit needs no clock. The last
line is `run_stopped`, with the number of lines before it: without it the log is incomplete. The events, by
the process that writes them:

    run_started, workers_started, worker_killed, worker_restarted, dead, run_stopped   the run
    sending (before the call), sent (after the commit), producer_ended     producers
    worker_ready, started, failed, done (before it is settled), settled,
    foreign (a message that the run did not send, before it is rejected)   workers
    worker (once a second: what it used so far), failure (an error)        both
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from spanmq.errors import InvalidArgumentError

Record = dict[str, Any]

READ_BYTES: Final = 1 << 20


class Recorder:
    """Appends to the log; `at` is seconds since the run began, by the clock that all processes share."""

    def __init__(self, path: Path, *, began: float, **whose: object) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._began = began
        self._whose = whose

    def now(self) -> float:
        """Return the seconds since the run began."""
        return round(time.monotonic() - self._began, 6)

    def write(self, event: str, *, at: float | None = None, **values: object) -> None:
        """Append one record, with one write."""
        record = {"event": event, "at": self.now() if at is None else at, **self._whose, **values}
        os.write(self._descriptor, (json.dumps(record, separators=(",", ":")) + "\n").encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class Reader:
    """Reads a growing log; `count` is the number of lines, `torn` the number of invalid ones."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self.torn = 0
        self._path = path
        self._offset = 0
        self._rest = b""

    def lines(self) -> Iterator[bytes]:
        """Yield the complete lines since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while piece := file.read(READ_BYTES):
                self._offset += len(piece)
                *complete, self._rest = (self._rest + piece).split(b"\n")
                for line in complete:
                    self.count += 1
                    yield line

    def records(self) -> Iterator[Record]:
        """Yield the records since the last call."""
        for line in self.lines():
            if (record := self.parse(line)) is not None:
                yield record

    def parse(self, line: bytes) -> Record | None:
        """Parse a line; count it if it is not a record."""
        record = parse(line)
        self.torn += record is None
        return record

    def has_rest(self) -> bool:
        """Return whether the last line is incomplete."""
        return bool(self._rest)


def parse(line: bytes) -> Record | None:
    """Parse a line; return None if it is not a record."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "event" in record and "at" in record else None


def begin_log(path: Path) -> None:
    """Create an empty log; raises InvalidArgumentError if that fails."""
    try:
        path.open("wb").close()
    except OSError as error:
        raise InvalidArgumentError(
            f"the log file {path} cannot be written: {error.strerror}", hint="Name another: --logfile FILE."
        ) from error
