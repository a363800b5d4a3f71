"""The stream reader: a queue consumed as a receiver. An offset is the number of a batch on the server, and its token.

The protocol, each step against a failure:

1. A checkpoint's first offset is empty, and the first call leases nothing: it gives the receiver's identity,
   so that this lies in the checkpoint before the first message is held.
2. Each call settles what lies up to `start`, which is in the checkpoint's commit log; then it gives a batch
   that an earlier driver claimed and did not log; only then it claims a new one.
3. Each start of a reader raises the receiver's incarnation. Calls of an older one are refused: two drivers
   can't both run.
4. A batch is read as the claim noted it, never from what the queue holds now: a replay reads the same rows.
5. Each batch has a random token. A database that went back in time, and assigns numbers of batches again, does not
   know those of the batches that it lost, and refuses the checkpoint.
6. A bounded run claims the next batch while tasks read one that is as large as it may be: the next call finds it
   as if a driver had died after the claim.
"""

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import psycopg
import pyarrow
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spanmq import errors
from spanmq.client.calls import Argument, KeptClient, Polling, Result, Rows, argument, nothing, queue_call
from spanmq.model.queue import folded
from spanmq_spark import calls, rows
from spanmq_spark.column import STREAM, chosen
from spanmq_spark.options import Options
from spanmq_spark.reader import RangePartition, queue_named

VERSION: Final = 1
# How long a call waits for messages: Spark asks again at once, some 80 times a second.
WAIT_SECONDS: Final = 0.5
# To count a million messages may take the server a tenth of a second.
REPORT_SECONDS: Final = 5.0
# The server's limit is that of an integer.
UNLIMITED: Final = 2_000_000_000
# The newest id of a queue, and the view of its log; None without the right to read it.
LOG: Final = calls.columns("last_id", "log_table")
CLAIM: Final = calls.columns("batch", "token", "n")

Offset = dict[str, Any]


class Stream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The common part of streams; an `is_bounded` one ends with the messages that existed at its start."""

    def __init__(self, options: Options, schema: StructType, server: KeptClient | None = None) -> None:
        self._options = options
        self._schema = schema
        self._server = server or KeptClient(options.dsn, application_name=rows.NAME)
        self._is_bounded = False
        self._polling = Polling()
        self._report: Offset | None = None
        self._report_at = 0.0
        self._due_at = time.monotonic() + options.max_delay
        self._settled_to: Offset | None = None

    def begin(self) -> Offset:
        """Return the offset at which a new checkpoint starts."""
        raise NotImplementedError

    def next(self, start: Offset, quantity: int) -> Offset:
        """Return the end of the next batch, or `start` without new messages, at once."""
        raise NotImplementedError

    def settle(self, start: Offset) -> Offset:
        """Settle what is up to `start`, and return it; or the end of a batch that is claimed already."""
        raise NotImplementedError

    def available(self, start: Offset) -> int:
        """Return how many messages a batch after `start` could have."""
        raise NotImplementedError

    def report(self) -> Offset | None:
        """Return what the stream has not read yet, for the progress of the query."""
        raise NotImplementedError

    def bound(self) -> None:
        """Set the end of this run to what exists now."""
        raise NotImplementedError

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Bound the run."""
        self._is_bounded = True
        with _needs_primary():
            with self._server() as server:
                # The first call of such a run: it says which name was meant.
                queue_named(server, self._options.queue)
            self.bound()

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset of a new checkpoint."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch."""
        return ReadMaxRows(self._options.max_messages)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch, or `start` if nothing comes for a while; bounded, at once."""
        quantity = UNLIMITED if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", UNLIMITED)
        with _needs_primary():
            return self._await_next(start, quantity) if start else self.begin()

    def _await_next(self, start: Offset, quantity: int) -> Offset:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            if self._is_due(start):
                end = self.next(start, quantity)
            else:
                # Once: it claims a message and returns it, of which the stream would hear.
                end = start if self._settled_to == start else self.settle(start)
                self._settled_to = start
            if end != start:
                self._polling.restart()
                self._due_at = time.monotonic() + self._options.max_delay
                self._server.wait_no_more()
            if end != start or self._is_bounded:
                return end
            if self._wait(deadline) and time.monotonic() >= deadline:
                return start

    def _is_due(self, start: Offset) -> bool:
        """Return whether the next batch may begin: with minOffsetsPerTrigger not before that many, or the delay."""
        least = self._options.min_messages
        if least == 1 or self._is_bounded or time.monotonic() >= self._due_at:
            return True
        return self.available(start) >= least

    def waits_for(self) -> list[str]:
        """Return the queues whose senders notify the stream."""
        return []

    def _wait(self, deadline: float) -> bool:
        """Wait for messages, until a deadline at most. Return False if some may have come before it listened."""
        names = self.waits_for()
        if not names:
            time.sleep(self._polling.pause)
            self._polling.paused()
            return True
        return self._server.wait(names, deadline - time.monotonic())

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return the report: Spark asks with each trigger, and gets what was counted in the last seconds."""
        now = time.monotonic()
        if now >= self._report_at and (report := self.report()) is not None:
            self._report, self._report_at = report, now + REPORT_SECONDS
        return self._report

    def read(self, partition: RangePartition) -> Iterator[pyarrow.RecordBatch]:  # type: ignore[override]
        """Read the ranges of a partition."""
        return partition.read(self._options, self._schema)

    def commit(self, end: Offset) -> None:
        """Do nothing: Spark calls this a batch late, and not for the last one. See `next`."""

    def stop(self) -> None:
        """Close the connection."""
        self._server.close()

    def _call(self, function: str, read: Callable[[Rows], Result], *arguments: Argument) -> Result:
        with self._server() as server:
            return server.admin.run(queue_call(self._options.queue, function, read, *arguments))


class StreamReader(Stream):
    """Reads a queue exactly once for a checkpoint."""

    def __init__(self, options: Options, schema: StructType, server: KeptClient | None = None) -> None:
        wrong = {column.name for column in chosen(options)} - {column.name for column in STREAM}
        if wrong:
            raise errors.InvalidArgumentError(f"a stream has no column {', '.join(sorted(wrong))}")
        super().__init__(options, schema, server)
        self._incarnation: int | None = None
        self._last_id: int | None = None
        # One of several queues does not claim ahead: each would need a connection.
        self._may_claim_ahead = server is None
        self._ahead: threading.Thread | None = None
        self._quantity: int | None = None

    def bound(self) -> None:
        """Remember what is the newest message now: later ones are not for this run."""
        [(self._last_id, _)] = self._call("receiver_log", LOG)

    def next(self, start: Offset, quantity: int) -> Offset:
        """Settle what is up to `start`, and return the end of the next batch, or `start`, without waiting."""
        self._quantity = quantity
        self._join()
        return self._claim(start, quantity, self._last_id)

    def settle(self, start: Offset) -> Offset:
        """Settle what is up to `start`, and claim nothing new."""
        # No message has this id.
        return self._claim(start, 1, 0)

    def available(self, start: Offset) -> int:  # noqa: ARG002 - what waits is the same from each
        """Return how many messages are visible."""
        with self._server() as server:
            return server.queues.metrics(self._options.queue).visible_length

    def _claim(self, start: Offset, quantity: int, last_id: int | None) -> Offset:
        arguments = self._claim_arguments(start, quantity, last_id)
        [(batch, token, n)] = self._call("receiver_claim", CLAIM, *arguments)
        return start if batch == start["lease"] else {**start, "lease": batch, "token": token, "rows": n}

    def _claim_arguments(self, start: Offset, quantity: int, last_id: int | None) -> list[Argument]:
        return [
            # First: it refuses an offset of another kind.
            argument.bigint("incarnation", self._open(start)),
            argument.uuid("receiver", start["receiver"]),
            argument.bigint("settled", start["lease"]),
            *argument.optional(argument.uuid, "settled_token", start["token"]),
            argument.integer("quantity", quantity).to("qty"),
            *argument.optional(argument.bigint, "last_id", last_id),
            *argument.optional(argument.bigint, "max_bytes", self._options.max_bytes),
        ]

    def _claim_ahead(self, end: Offset, quantity: int) -> None:
        """Claim the batch after `end` in a session and a thread of their own, and settle nothing.

        An error is raised by the call that follows, which tries the same.
        """
        ahead = argument.boolean("ahead", True)
        arguments = [*self._claim_arguments(end, quantity, self._last_id), ahead]
        call = queue_call(self._options.queue, "receiver_claim", nothing, *arguments)

        def claim() -> None:
            with suppress(errors.SpanmqError), rows.connected(self._options.dsn) as server:
                server.admin.run(call)

        self._ahead = threading.Thread(target=claim, daemon=True)
        self._ahead.start()

    def _join(self) -> None:
        if self._ahead is not None:
            self._ahead.join()
            self._ahead = None

    def stop(self) -> None:
        """Close the connections."""
        self._join()
        super().stop()

    def waits_for(self) -> list[str]:
        """Return the queue."""
        return [folded(self._options.queue)]

    def report(self) -> Offset:
        """Return what the queue has; takes nothing.

        `waiting` messages are not settled, those of the batch that runs among them; the oldest was sent
        `oldest_seconds` ago (0 without any).
        """
        with self._server() as server:
            metrics = server.queues.metrics(self._options.queue)
        return {
            "queue": self._options.queue,
            "waiting": metrics.length,
            "visible": metrics.visible_length,
            "oldest_seconds": metrics.oldest_age_seconds or 0,
        }

    def partitions(self, start: Offset, end: Offset) -> list[RangePartition]:
        """Cut the batches after `start` up to `end` into ranges."""
        if not end or not start:
            return []
        incarnation = self._open(end)
        if start["lease"] == end["lease"]:
            return []
        arguments = (
            argument.uuid("receiver", end["receiver"]),
            argument.bigint("incarnation", incarnation),
            argument.bigint("after", start["lease"]),
            argument.bigint("batch", end["lease"]),
            *argument.optional(argument.uuid, "batch_token", end["token"]),
            argument.boolean("fail_on_loss", self._options.fail_on_data_loss),
        )
        read = calls.columns("first_id", "last_id", "attempt", "bitmap")
        pieces = [rows.Piece(*row) for row in self._call("receiver_ranges", read, *arguments)]
        with self._server() as server:
            # Without the right to read the log: the view, which has what is not settled yet.
            [(_, log)] = self._call("receiver_log", LOG)
            table = log or rows.view(server, self._options.queue)
        if self._is_bounded and self._may_claim_ahead and self._quantity == _count(pieces):
            self._claim_ahead(end, self._quantity)
        # As the queue's name is written, which the option's need not be.
        return pack(pieces, replace(self._options, queue=end["queue"]), table)

    def begin(self, *, is_late: bool = False) -> Offset:  # noqa: ARG002 - all that waits is read in any case
        """Make the receiver, and hold nothing yet."""
        with self._server() as server:
            queue = queue_named(server, self._options.queue)
            # Such as of another receiver that holds messages and has not called for long.
            server.connection.add_notice_handler(_warn)
            [opened] = server.admin.run(calls.receiver_open(queue, label=self._options.receiver))
            receiver, self._incarnation, settled, system, token = opened
            server.connection.remove_notice_handler(_warn)
        of = {"receiver": receiver, "queue": queue, "system": system}
        return {"v": VERSION, **of, "lease": settled, "token": token}

    def _open(self, offset: Offset) -> int:
        """Become the receiver of this checkpoint, once in this reader's life; return its incarnation."""
        if self._incarnation is not None:
            return self._incarnation
        queue = ", ".join(offset.get("queues", [offset.get("queue")]))
        if folded(queue) != folded(self._options.queue):
            raise errors.PipelineError(
                f"the checkpoint is of queue {queue}, the option queue is {self._options.queue}",
                hint="Use the queue of the checkpoint, or a new checkpoint.",
                queue=self._options.queue,
            )
        check_kind(offset, "receiver")
        call = calls.receiver_open(self._options.queue, receiver=offset["receiver"])
        with self._server() as server:
            [(_, incarnation, _, system, _)] = server.admin.run(call)
        if system != offset["system"]:
            raise errors.PipelineError(
                f"the checkpoint of queue {offset['queue']} is of another server: {offset['system']}",
                hint="Use a new checkpoint; or, if the database was moved: spanmq pipeline moved.",
                queue=self._options.queue,
            )
        self._incarnation = incarnation
        return incarnation


@contextmanager
def _needs_primary() -> Iterator[None]:
    """Say in the error of a read-only server why a stream can't read it."""
    try:
        yield
    except errors.ServerReadOnlyError as error:
        raise errors.ServerReadOnlyError(
            "the server is read-only, and a stream stores its positions in the database",
            hint="Connect the stream to the primary. Batch reads can read a standby.",
        ) from error


def check_kind(offset: Offset, name: str) -> None:
    """Raise PipelineError for an offset of another version, or of another kind of stream: those have no such name."""
    if offset.get("v") != VERSION:
        raise errors.PipelineError(
            f"the checkpoint is of version {offset.get('v')}, this release knows {VERSION}",
            hint="Continue with the release that wrote it, or use a new checkpoint.",
        )
    if name not in offset:
        raise errors.PipelineError(
            f"the checkpoint is of another kind of stream: its offset has no {name}",
            hint="Use the options table and queue that it began with, or a new checkpoint.",
        )


def _warn(notice: psycopg.errors.Diagnostic) -> None:
    if notice.severity_nonlocalized == "WARNING":
        text = " ".join(part for part in (notice.message_primary, notice.message_hint) if part)
        warnings.warn(text, stacklevel=2)


def pack(pieces: Sequence[rows.Piece], options: Options, table: str) -> list[RangePartition]:
    """Put pieces into partitions of about as many rows each: small ones together, large ones cut."""
    total = _count(pieces)
    count = max(options.min_partitions, -(-total // rows.ROWS_PER_PARTITION))
    room = size = max(1, -(-total // count))
    packed: list[list[rows.Piece]] = [[]]
    for piece in pieces:
        first = piece.first
        while first <= piece.last:
            if room <= 0:
                packed.append([])
                room = size
            # One with a bitmap is small.
            last = piece.last if piece.bitmap else min(piece.last, first + room - 1)
            packed[-1].append(piece._replace(first=first, last=last))
            room -= packed[-1][-1].size()
            first = last + 1
    return [RangePartition([_range(pieces, options, table)]) for pieces in packed if pieces]


def _count(pieces: Sequence[rows.Piece]) -> int:
    return sum(piece.size() for piece in pieces)


def _range(pieces: list[rows.Piece], options: Options, table: str) -> rows.Range:
    first, last = min(piece.first for piece in pieces), max(piece.last for piece in pieces)
    expected = _count(pieces)
    if len(pieces) == 1 and not pieces[0].bitmap:
        return rows.Range(options.queue, table, first, last, attempt=pieces[0].attempt, expected=expected)
    return rows.Range(options.queue, table, first, last, expected=expected, pieces=tuple(pieces))
