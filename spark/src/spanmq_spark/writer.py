"""The writers: rows first, by every task into the log under reserved ids; then one call publishes them all.

A stream does so for each epoch, and the server's ledger knows (query, epoch): a replay, however it is cut
into tasks, finds its epoch published and sends nothing.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from spanmq import errors
from spanmq.client.calls import argument, nothing, number, queue_call
from spanmq.codec import loads
from spanmq.model import GROUP_HEADER
from spanmq_spark import calls, rows
from spanmq_spark.catalog import table_options
from spanmq_spark.options import Options, hint_of
from spanmq_spark.reader import queue_named
from spanmq_spark.release import StreamSink
from spanmq_spark.sealed import sealed

if TYPE_CHECKING:
    from spanmq_spark.adbc import Connection

# The maximum of rows in one reservation: a task holds them in memory about three times.
CHUNK: Final = 50_000
CHUNK_BYTES: Final = 16_000_000
# The name of a stream's write begins with it.
STREAM: Final = "query:"
# Beside these the group.
COLUMNS: Final = ("body", "headers")


@dataclass
class Written(WriterCommitMessage):
    """A task's message to the driver: the blocks to publish, and their name. None: published before."""

    writer: str
    write_id: int | None
    block_ids: tuple[int, ...]
    count: int


class QueueWriter(DataSourceArrowWriter):
    """Sends a data frame: all of it becomes visible at one instant, or nothing does."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_columns(options, schema)
        self._options = for_queue(options)
        # With a writerId, a job that runs again after it was published sends nothing.
        self._writer = f"job:{options.writer_id}" if options.writer_id else f"write:{uuid.uuid4()}"

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Write the rows of one task."""
        return write_rows(self._options, self._writer, 0, iterator)

    def commit(self, messages: Sequence[Written | None]) -> None:  # type: ignore[override]
        """Publish what the tasks wrote."""
        publish(self._options, self._writer, 0, messages)

    def abort(self, messages: Sequence[Written | None]) -> None:  # type: ignore[override]  # noqa: ARG002
        """Abandon the write, unless it is published already."""
        close(self._options, self._writer, 0)


class QueueStreamWriter(StreamSink):  # type: ignore[misc]
    """Sends each epoch of a stream exactly once."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_columns(options, schema)
        self._options = for_queue(options)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Write the rows of one task of an epoch."""
        writer, epoch = identity()
        return write_rows(self._options, writer, epoch, iterator)

    def commit(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803
        """Publish the epoch, unless it was published before."""
        writer = next((message.writer for message in messages if message is not None), None)
        if writer is not None:
            publish(self._options, writer, batchId, messages)

    def abort(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803
        """Abandon the epoch, unless it is published already."""
        writer = next((message.writer for message in messages if message is not None), None)
        if writer is not None:
            close(self._options, writer, batchId)


def identity() -> tuple[str, int]:
    """Return the query and the epoch of this task, which Spark passes to it under undocumented names."""
    from pyspark import TaskContext

    task = TaskContext.get()
    query = task.getLocalProperty("sql.streaming.queryId") if task else None
    epoch = task.getLocalProperty("streaming.sql.batchId") if task else None
    if not query or epoch is None:
        raise errors.PipelineError(
            "this release of Spark does not tell its tasks which query and epoch they write"
        )
    return f"{STREAM}{query}", int(epoch)


def for_queue(options: Options) -> Options:
    """Return the options with the queue's own spelling; raises QueueNotFoundError with the nearest name."""
    with rows.connected(options.dsn) as server:
        return replace(options, queue=queue_named(server, options.queue))


def check_columns(options: Options, schema: StructType) -> None:
    """Refuse a data frame whose columns can't be messages; raises InvalidArgumentError."""
    names = {field.name: field.dataType for field in schema}
    group = options.group or "group"
    if options.group is not None and group not in names:
        raise errors.InvalidArgumentError(
            f"the option group names the column {group!r}, which the data frame does not have",
            hint=hint_of(group, set(names) - set(COLUMNS), f"It has {', '.join(names)}."),
        )
    # An insert into a table of the catalogue has all its columns; as_messages() refuses values in the others.
    unknown = [] if table_options(schema) else sorted(set(names) - {*COLUMNS, group})
    if "body" not in names or unknown:
        what = f"it has no column {unknown[0]!r}" if unknown else "the column body is missing"
        raise errors.InvalidArgumentError(
            f"a message has the columns {', '.join(COLUMNS)} and {group}: {what}",
            hint="Convert the others to a body: to_json(struct(…)) as body.",
        )
    for name in (column for column in (*COLUMNS, group) if column in names):
        kind = names[name]
        if not isinstance(kind, StringType):
            raise errors.InvalidArgumentError(
                f"the column {name} must be a string, it is {kind.simpleString()}",
                hint="Bodies and headers are JSON as text: to_json(…).",
            )


def write_rows(options: Options, writer: str, epoch: int, batches: Iterator[pyarrow.RecordBatch]) -> Written:
    """Write a task's rows under reserved ids, in chunks; they are not visible yet."""
    from spanmq_spark import adbc

    write_id: int | None = None
    block_ids: list[int] = []
    count = 0
    began, rate = time.monotonic(), options.rows_per_second
    named = argument.text("writer", writer), argument.bigint("epoch", epoch)
    read = calls.columns("write_id", "block_id", "log_table", "first_id", "last_id", "enqueued_at")
    with rows.connected(options.dsn) as server, adbc.connected(options.dsn) as connection:
        parts = chunks(batches, CHUNK if rate is None else min(CHUNK, rate))
        for chunk in parts:
            table = as_messages(chunk, options)
            n = argument.integer("n", table.num_rows)
            blocks = server.admin.run(queue_call(options.queue, "bulk_reserve", read, *named, n))
            if not blocks:
                # Published before: the driver compares the number of rows.
                count += table.num_rows + sum(part.num_rows for part in parts)
                return Written(writer, None, (), count)
            offset = 0
            for write_id, _, log_table, first, last, enqueued_at in blocks:  # noqa: B007
                rows_of_block = table.slice(offset, last - first + 1)
                copy(connection, options, log_table, rows_of_block, first, enqueued_at)
                offset += last - first + 1
            sealed = [block[1] for block in blocks]
            written = argument.bigints("block_ids", sealed)
            server.admin.run(queue_call(options.queue, "bulk_seal", nothing, written))
            block_ids += sealed
            count += table.num_rows
            if rate is not None:
                time.sleep(max(0.0, began + count / rate - time.monotonic()))
    return Written(writer, write_id, tuple(block_ids), count)


def chunks(batches: Iterator[pyarrow.RecordBatch], size: int) -> Iterator[pyarrow.Table]:
    """Gather batches into tables of at most `size` rows and CHUNK_BYTES; a larger row is alone."""
    held: list[pyarrow.RecordBatch] = []
    count = held_bytes = 0
    for piece in (piece for batch in batches for piece in _pieces(batch, size)):
        if held and (count + piece.num_rows > size or held_bytes + piece.nbytes > CHUNK_BYTES):
            yield pyarrow.Table.from_batches(held)
            held, count, held_bytes = [], 0, 0
        held.append(piece)
        count += piece.num_rows
        held_bytes += piece.nbytes
    if held:
        yield pyarrow.Table.from_batches(held)


def _pieces(batch: pyarrow.RecordBatch, size: int) -> Iterator[pyarrow.RecordBatch]:
    """Halve a batch until each piece is small enough; without a copy."""
    count = batch.num_rows
    if count > 1 and (count > size or batch.nbytes > CHUNK_BYTES):
        yield from _pieces(batch.slice(0, count // 2), size)
        yield from _pieces(batch.slice(count // 2), size)
    elif count:
        yield batch


def as_messages(table: pyarrow.Table, options: Options) -> pyarrow.Table:
    """Return body and headers as JSON, with the group among the headers."""
    names = table.schema.names
    headers = table.column("headers") if "headers" in names else None
    group = options.group or "group"
    for name in set(names) - {*COLUMNS, group}:
        if table.column(name).null_count < table.num_rows:
            raise errors.InvalidArgumentError(
                f"the column {name} can't be written: the queue sets it",
                hint="List the columns: insert into orders (body, `group`) …",
            )
    has_groups = group in names and table.column(group).null_count < table.num_rows
    if has_groups or (headers is not None and headers.null_count < table.num_rows):
        originals = headers.to_pylist() if headers is not None else [None] * table.num_rows
        keys = table.column(group).to_pylist() if has_groups else [None] * table.num_rows
        texts = [_headers(text, key, options.queue) for text, key in zip(originals, keys, strict=True)]
        headers = pyarrow.array(texts, pyarrow.string())
    if headers is None:
        headers = pyarrow.nulls(table.num_rows, pyarrow.string())
    return pyarrow.table(
        {"message": _as_json(sealed(table.column("body"), options)), "headers": _as_json(headers)}
    )


def copy(
    connection: Connection,
    options: Options,
    log_table: str,
    table: pyarrow.Table,
    first: int,
    enqueued_at: datetime,
) -> None:
    """Copy rows into the log under their ids, and commit."""
    from spanmq_spark.adbc import StatementError

    count = table.num_rows
    ids = pyarrow.array(range(first, first + count), pyarrow.int64())
    times = pyarrow.repeat(pyarrow.scalar(enqueued_at, pyarrow.timestamp("us", "UTC")), count)
    whole = pyarrow.table(
        {"msg_id": ids, "enqueued_at": times, "message": table.column(0), "headers": table.column(1)}
    )
    try:
        connection.append("spanmq_core", log_table, whole)
    except StatementError as error:
        kind = errors.InvalidBodyError if "json" in str(error).lower() else errors.ServerError
        what = f"writing {count} messages into queue {options.queue}, segment {log_table}: {error}"
        raise kind(what, queue=options.queue) from error


def publish(options: Options, writer: str, epoch: int, messages: Sequence[Written | None]) -> int:
    """Make everything visible that the tasks wrote, and return how many messages; 0 if it was done before.

    A stream records each epoch, also one without rows. Raises PositionUnknownError if the one before is not recorded,
    or it was published with another number of rows.
    """
    known = [message for message in messages if message is not None and message.write_id is not None]
    count = sum(message.count for message in messages if message is not None)
    is_stream = writer.startswith(STREAM)
    if not known and not is_stream:
        return 0
    arguments = (
        argument.text("writer", writer),
        argument.bigint("epoch", epoch),
        *argument.optional(argument.bigint, "write_id", known[0].write_id if known else None),
        argument.bigints("block_ids", (block for message in known for block in message.block_ids)),
        argument.boolean("records_all", is_stream),
        *argument.optional(argument.bigint, "expected", count if options.fail_on_data_loss else None),
    )
    with rows.connected(options.dsn) as server:
        n = server.admin.run(queue_call(options.queue, "bulk_publish", number, *arguments))
    return max(n, 0)


def close(options: Options, writer: str, epoch: int) -> None:
    """Abandon a write. If the server cannot be reached, maintenance does it later."""
    named = argument.text("writer", writer), argument.bigint("epoch", epoch)
    with suppress(errors.SpanmqError), rows.connected(options.dsn) as server:
        server.admin.run(queue_call(options.queue, "bulk_close", nothing, *named))


def _headers(text: str | None, group: str | None, queue: str) -> str | None:
    """Check headers, and add the group: as text, so that all else stays as it is written."""
    if text is not None:
        try:
            is_object = isinstance(loads(text), dict)
        except ValueError as error:
            raise errors.InvalidBodyError(
                f"the headers of a message for queue {queue} are not valid JSON: {error}: {text[:200]}",
                queue=queue,
            ) from error
        if not is_object:
            raise errors.InvalidBodyError(
                f"the headers of a message for queue {queue} are not a JSON object: {text[:200]}", queue=queue
            )
    if group is None:
        return text
    item = f"{json.dumps(GROUP_HEADER)}: {json.dumps(group, ensure_ascii=False)}"
    others = text.strip()[1:-1].strip() if text is not None else ""
    # For a duplicate key PostgreSQL takes the last value.
    return f"{{{others}, {item}}}" if others else f"{{{item}}}"


def _as_json(column: Any) -> Any:
    """Mark texts as JSON, which is how ADBC knows what to make of them."""
    whole = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
    if isinstance(whole, pyarrow.ChunkedArray):
        whole = pyarrow.concat_arrays(whole.chunks)
    return pyarrow.ExtensionArray.from_storage(pyarrow.json_(), whole.cast(pyarrow.string()))
