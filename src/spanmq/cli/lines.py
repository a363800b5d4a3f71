"""Lines of stdin, gathered into batches: full ones when lines arrive fast, smaller ones otherwise."""

import os
import select
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Final

from spanmq.codec.batch import BYTES_PER_CALL

# A batch that is not full is sent when no line arrives for this time: `tail -f log | spanmq send` should not
# lag.
IDLE_SECONDS: Final = 0.2
READ_BYTES: Final = 1 << 16


class Lines:
    """The lines that a file descriptor gives; `bytes_read` says how far it is."""

    def __init__(self, descriptor: int, *, batch: int, batch_bytes: int = BYTES_PER_CALL) -> None:
        self.bytes_read = 0
        self._descriptor = descriptor
        self._batch = batch
        self._batch_bytes = batch_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._is_first = True

    def batches(self) -> Iterator[list[bytes]]:
        """Yield lists of at most `batch` lines, without line ends; the last line needs none.

        A UTF-8 byte order mark, which some editors and shells write, is removed.
        """
        unfinished: list[bytes] = []  # in pieces: a line of 255 MB comes in 4,000
        while True:
            if self._pending and not select.select([self._descriptor], [], [], IDLE_SECONDS)[0]:
                yield self._take()
            piece = os.read(self._descriptor, READ_BYTES)
            if not piece:
                break
            self.bytes_read += len(piece)
            first, *others = piece.split(b"\n")
            unfinished.append(first)
            if others:
                last = others.pop()
                for line in (b"".join(unfinished), *others):
                    yield from self._add(line)
                unfinished = [last]
        if last_line := b"".join(unfinished):
            yield from self._add(last_line)
        if self._pending:
            yield self._take()

    def _add(self, line: bytes) -> Iterator[list[bytes]]:
        if self._is_first:
            line, self._is_first = line.removeprefix(BOM_UTF8), False
        if self._pending and self._pending_bytes + len(line) > self._batch_bytes:
            yield self._take()
        self._pending.append(line)
        self._pending_bytes += len(line)
        if len(self._pending) == self._batch:
            yield self._take()

    def _take(self) -> list[bytes]:
        taken, self._pending, self._pending_bytes = self._pending, [], 0
        return taken
