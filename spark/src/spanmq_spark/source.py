"""The readers and writers of the data source, by its options."""

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spanmq.errors import InvalidArgumentError
from spanmq_spark.catalog import is_created, merged, table_options, with_options
from spanmq_spark.column import columns_of, schema_of
from spanmq_spark.options import Options, read_options
from spanmq_spark.release import check_filters, check_streams


def schema(settings: Mapping[str, str]) -> StructType:
    """Return the columns that the options select."""
    columns = schema_of(read_options(settings))
    return with_options(columns, settings) if is_created(settings) else columns


def reader(settings: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Return the reader of a batch."""
    from spanmq_spark.reader import BatchReader

    options = read_options(merged(settings, schema, "a batch read"), "a batch read")
    columns_of(options, schema)
    if not options.push_filters:
        return BatchReader(options, schema)
    check_filters()
    # Spark refuses a reader that takes filters unless its own setting is on.
    from spanmq_spark.filters import FilteringReader

    return FilteringReader(options, schema)


def stream_reader(settings: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a stream."""
    check_streams()
    from spanmq_spark.archive_stream import ArchiveStreamReader
    from spanmq_spark.queues_stream import QueuesStreamReader
    from spanmq_spark.reader import is_several
    from spanmq_spark.stream import StreamReader

    options = read_options(merged(settings, schema, "a stream"), "a stream")
    columns_of(options, schema)
    if options.table not in ("queue", "archive"):
        raise InvalidArgumentError(f"a stream reads the table queue or archive, not {options.table}")
    if is_several(options.queue):
        return QueuesStreamReader(options, schema)
    return (ArchiveStreamReader if options.table == "archive" else StreamReader)(options, schema)


def writer(settings: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """Return the writer of a batch, into a queue or a table."""
    from spanmq_spark.writer import QueueWriter

    if is_table(settings):
        from spanmq_spark.table_sink import TableWriter, read_table_options

        if overwrite:
            raise InvalidArgumentError("a table can't be overwritten", hint='Write with mode("append").')
        return TableWriter(read_table_options(settings, is_stream=False), schema)
    if overwrite:
        raise InvalidArgumentError("a queue can't be overwritten", hint='Write with mode("append").')
    return QueueWriter(_write_options(settings, schema, "a batch write"), schema)


def stream_writer(
    settings: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceStreamWriter:
    """Return the writer of a stream, into a queue or a table."""
    from spanmq_spark.writer import QueueStreamWriter

    if is_table(settings):
        from spanmq_spark.table_sink import TableStreamWriter, read_table_options

        if overwrite:
            raise InvalidArgumentError(
                "a table can't be overwritten",
                hint='Use outputMode("append"), or "update" with the mode upsert.',
            )
        return TableStreamWriter(read_table_options(settings, is_stream=True), schema)
    if overwrite:
        raise InvalidArgumentError("a queue can't be overwritten", hint='Use outputMode("append").')
    return QueueStreamWriter(_write_options(settings, schema, "a stream that writes"), schema)


def is_table(settings: Mapping[str, str]) -> bool:
    """Return whether a write is into a table of PostgreSQL, not into a queue."""
    names = {key.lower() for key in settings}
    return "table" in names and "queue" not in names


def _write_options(settings: Mapping[str, str], schema: StructType, use: str) -> Options:
    """Check the options of a write, perhaps into a table of the catalogue."""
    if not any(key.lower() == "queue" for key in settings):
        table = table_options(schema).get("table", "queue")
        if table != "queue":
            raise InvalidArgumentError(f"nothing can be inserted into a table that reads {table}")
    return read_options(merged(settings, schema, use), use)
