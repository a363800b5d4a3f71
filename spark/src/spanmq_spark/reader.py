"""The batch reader: archives and what waits in queues, by ranges of ids, with filters done in SQL."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

import pyarrow
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, MissingPrivilegeError, QueueNotFoundError
from spanmq.model.queue import folded
from spanmq_spark import calls, rows
from spanmq_spark.column import columns_of
from spanmq_spark.options import Bounds, Options, hint_of
from spanmq_spark.release import arrow_schema


class RangePartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: list[rows.Range]) -> None:
        super().__init__(None)
        self.ranges = ranges

    def read(self, options: Options, schema: StructType) -> Iterator[pyarrow.RecordBatch]:
        """Read the columns of a schema."""
        columns = columns_of(options, schema)
        return rows.read(options, columns, self.ranges, arrow_schema(schema))


class BatchReader(DataSourceReader):
    """Reads a table of one or more queues."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.bounds.starts_latest:
            raise InvalidArgumentError("a batch can't begin with the latest: there is nothing after it")
        self._options = options
        self._schema = schema
        self._where = _between(options.bounds)

    def partitions(self) -> list[InputPartition]:
        """Cut the ids that the tables have now into ranges."""
        partitions: list[InputPartition] = []
        with rows.connected(self._options.dsn) as server:
            queues = queues_named(server, self._options.queue)
            for queue in queues:
                extent = extent_of(server, queue, self._options.table)
                where = " and ".join(self._where).replace("{queue}", rows.quoted(queue))
                at_least = max(1, self._options.min_partitions // len(queues))
                cut = calls.read_ranges(queue, self._options.table, rows.ROWS_PER_PARTITION, at_least)
                for low, high in server.admin.run(cut):
                    a, b = _within(self._options.bounds, low, high)
                    if a <= b:
                        partitions.append(RangePartition([replace(extent, first=a, last=b, where=where)]))
        # Without any Spark would make one of its own, with nothing in it.
        return partitions or [RangePartition([])]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the ranges of a partition."""
        assert isinstance(partition, RangePartition)
        return partition.read(self._options, self._schema)


def _between(bounds: Bounds) -> list[str]:
    """Write the times of bounds as conditions on a row of an archive."""
    times = ((">=", bounds.starts_at), ("<", bounds.ends_at))
    return [f"t.archived_at {sign} {literal(time)}" for sign, time in times if time is not None]


def _within(bounds: Bounds, first: int, last: int) -> tuple[int, int]:
    """Cut a range of ids by the ids of bounds."""
    low = first if bounds.first_id is None else max(first, bounds.first_id)
    high = last if bounds.end_id is None else min(last, bounds.end_id - 1)
    return low, high


def literal(value: Any) -> str | None:
    """Write a value as SQL; None for what is not ours to push."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return f"'{value.astimezone(UTC).isoformat()}'::timestamptz"
    if isinstance(value, str) and "\0" not in value and "{" not in value:
        return rows.quoted(value)
    return None


def is_several(option: str) -> bool:
    """Return whether the option `queue` is a list or a pattern."""
    return any(sign in option for sign in "*?[,")


def is_named(queue: str, option: str) -> bool:
    """Return whether the option `queue`, a name, a list or a pattern, matches this queue."""
    return any(fnmatchcase(folded(queue), folded(part.strip())) for part in option.split(","))


def queues_named(server: Client, option: str) -> list[str]:
    """Return the queues of a name, a list or a pattern.

    Raises QueueNotFoundError, with the nearest name; MissingPrivilegeError for a queue on which the role has no right.
    """
    names = [queue.name for queue in server.queues.list()]
    queues: list[str] = []
    for part in (part.strip() for part in option.split(",")):
        matching = [name for name in names if is_named(name, part)]
        if not matching:
            if not is_several(part) and rows.has_queue(server, part):
                raise MissingPrivilegeError(
                    f"permission denied for queue {part}",
                    hint=f"The role {server.connection.info.user} has no right on it: spanmq.grant_queue() grants one.",
                    queue=part,
                )
            hint = hint_of(
                part, names, "The option queue names or matches one on which the role has a right."
            )
            raise QueueNotFoundError(f"there is no queue {part!r}", hint=hint, queue=part)
        queues += [name for name in matching if name not in queues]
    return queues


def queue_named(server: Client, option: str) -> str:
    """Return the queue of that name, in its own spelling; raises QueueNotFoundError, with the nearest name."""
    queues = queues_named(server, option)
    if len(queues) != 1 or folded(queues[0]) != folded(option):
        raise InvalidArgumentError(f"here the option queue must name one queue, got {option!r}")
    return queues[0]


def extent_of(server: Client, queue: str, table: str) -> rows.Range:
    """Return a table of a queue in SQL, as a range without ids."""
    if table == "dead_letters":
        return rows.Range(queue, "spanmq.dead_letters_between", 1, 0, key="t.dead_letter_id", is_call=True)
    if table == "failures":
        return rows.Range(queue, "spanmq.failures_between", 1, 0, is_call=True)
    return rows.Range(queue, rows.view(server, queue, "a" if table == "archive" else "q"), 1, 0)
