"""A stream over several queues, or over those that match a pattern: a reader of its own for each.

An offset has the offset of each queue. A batch gives each queue an equal share of its limit, and what one leaves
of it to the next; which queue is the first changes from batch to batch. A queue that comes later, because the
list got longer or a new queue matches the pattern, begins with the next batch.
"""

import time
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from spanmq import errors
from spanmq_spark import rows
from spanmq_spark.archive_stream import ArchiveStreamReader
from spanmq_spark.options import Options
from spanmq_spark.reader import RangePartition, is_named, queues_named
from spanmq_spark.stream import VERSION, Offset, Stream, StreamReader, check_kind

# How often a stream looks for queues that a pattern matches since.
LOOK_SECONDS: Final = 10.0
Part = StreamReader | ArchiveStreamReader


class QueuesStreamReader(Stream):
    """Reads several queues, or their archives, as their own streams would."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.min_messages > 1:
            raise errors.InvalidArgumentError(
                "the option minOffsetsPerTrigger is for a stream over one queue"
            )
        super().__init__(options, schema)
        self._parts: dict[str, Part] = {}
        self._names: list[str] = []
        self._look_at = 0.0
        self._turn = 0
        # The options are checked before a stream starts.
        self._of(options.queue)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note which queues there are now, and their newest messages: later ones are not for this run."""
        names = self._queues()
        self._is_bounded = True
        for name in names:
            self._part(name).prepareForTriggerAvailableNow()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Settle the messages up to `start`; return the end of the next batch, or `start` without new messages."""
        return super().latestOffset(_of_several(start), limit)

    def begin(self) -> Offset:
        """Begin all queues or none: otherwise receivers that no checkpoint knows would have the label."""
        with self._server() as server, server.transaction():
            names = queues_named(server, self._options.queue)
            return {"v": VERSION, "queues": {name: self._part(name).begin() for name in names}}

    def waits_for(self) -> list[str]:
        """Return the queues that are read now."""
        return [name for part in self._parts.values() for name in part.waits_for()]

    def report(self) -> Offset | None:
        """Return what the queues have: of all together, and in `queues` of each."""
        reports: dict[str, Offset | None] = {}
        for name, part in self._parts.items():
            # The next batch reports one that was dropped.
            with suppress(errors.QueueNotFoundError):
                reports[name] = part.report()
        figures = [
            {key: n for key, n in report.items() if key != "queue"} for report in reports.values() if report
        ]
        if not figures:
            return None
        totals = {
            key: (max if key.endswith("_seconds") else sum)(figure[key] for figure in figures)
            for key in figures[0]
        }
        return {"queue": self._options.queue, **totals, "queues": reports}

    def partitions(self, start: Offset, end: Offset) -> list[RangePartition]:
        """Cut what is between two offsets into ranges; a task reads those of several small queues."""
        before = _of_several(start).get("queues", {})
        partitions = [
            partition
            for name, offset in _of_several(end).get("queues", {}).items()
            for partition in self._partitions(name, before.get(name, {}), offset)
        ]
        sizes = [sum(ids.expected or 0 for ids in partition.ranges) for partition in partitions]
        size = max(sum(sizes) // self._options.min_partitions, 1)
        joined: list[RangePartition] = []
        room = 0
        for partition, n in zip(partitions, sizes, strict=True):
            if joined and n <= room:
                joined[-1].ranges += partition.ranges
            else:
                joined.append(partition)
                room = min(size, rows.ROWS_PER_PARTITION)
            room -= n
        return joined

    def next(self, start: Offset, quantity: int) -> Offset:
        """Ask each queue for its next batch. Those that `start` does not have begin, and hold nothing yet."""
        names = self._queues()
        before: dict[str, Offset] = start["queues"]
        end = dict(before)
        first = self._turn % max(len(before), 1)
        turns = [*before][first:] + [*before][:first]
        left = quantity
        for place, name in enumerate(turns):
            share = -(-max(left, 0) // (len(turns) - place))
            if share == 0:
                break
            self._check(name)
            try:
                end[name] = self._part(name).next(before[name], share)
                if end[name] != before[name]:
                    left -= end[name]["rows"]
            except errors.NotFoundError as error:
                self._lose(name, error)
                del end[name]
        for name in names:
            if name not in before:
                # One that was dropped since the names were read is in no offset.
                with suppress(errors.QueueNotFoundError):
                    end[name] = self._part(name).begin(is_late=True)
        if end == before:
            return start
        self._turn += 1
        return {**start, "queues": end}

    def _partitions(self, name: str, start: Offset, end: Offset) -> list[RangePartition]:
        try:
            return self._part(name).partitions(start, end)
        except errors.NotFoundError as error:
            self._lose(name, error)
            return []

    def _lose(self, name: str, error: errors.NotFoundError) -> None:
        """Raise MessagesLostError for a queue that was dropped, and perhaps created again, unless that is allowed."""
        if self._options.fail_on_data_loss:
            raise errors.MessagesLostError(
                f"queue {name}, which the checkpoint has, was dropped",
                hint="With failOnDataLoss=false the stream continues without it.",
                queue=name,
            ) from error

    def _check(self, name: str) -> None:
        if not is_named(name, self._options.queue):
            raise errors.PipelineError(
                f"the checkpoint has queue {name}, which the option queue does not name: {self._options.queue}",
                hint="Add it, or use a new checkpoint.",
                queue=name,
            )

    def _queues(self) -> list[str]:
        """Return the queues that the option means now; of a run that is to end, those at its start."""
        now = time.monotonic()
        if not self._is_bounded and now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            with self._server() as server:
                names = [queue.name for queue in server.queues.list()]
            self._names = [name for name in names if is_named(name, self._options.queue)]
        return self._names

    def _part(self, name: str) -> Part:
        """Return the reader of a queue."""
        if name not in self._parts:
            # Each has a share of the limit of bytes.
            self._queues()
            self._parts[name] = self._of(name)
        return self._parts[name]

    def _of(self, name: str) -> Part:
        options = self._options
        size = options.max_bytes and -(-options.max_bytes // max(len(self._names), 1))
        options = replace(options, queue=name, max_bytes=size)
        kind = ArchiveStreamReader if options.table == "archive" else StreamReader
        return kind(options, self._schema, self._server)


def _of_several(offset: Offset) -> Offset:
    """Return an offset as one of several queues: a checkpoint may have begun with one."""
    if not offset or "queues" in offset:
        return offset
    check_kind(offset, "queue")
    return {"v": VERSION, "queues": {offset["queue"]: offset}}
