"""The columns of what can be read: their Spark types, and the SQL that gives them."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructType, TimestampType

from spanmq.errors import InvalidArgumentError
from spanmq_spark.options import Options, hint_of


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `expression` is over the table's row `t`. By default only if `is_default`."""

    name: str
    kind: DataType
    expression: str
    is_default: bool = True


# jsonb is cast to text: ADBC would make an extension type of it.
_HEAD: Final = (
    Column("queue", StringType(), "{queue}::text"),
    Column("message_id", LongType(), "t.msg_id"),
    Column("attempt", IntegerType(), "{attempt}"),
    Column("enqueued_at", TimestampType(), "t.enqueued_at"),
)
_TAIL: Final = (
    Column("group", StringType(), "t.headers->>'x-pgmq-group'"),
    Column("headers", StringType(), "t.headers::text", is_default=False),
    Column("body", StringType(), "t.message::text"),
)
STREAM: Final = (*_HEAD, *_TAIL)
COLUMNS: Final = {
    "queue": (
        *_HEAD,
        Column("last_read_at", TimestampType(), "t.last_read_at", is_default=False),
        Column("leased_until", TimestampType(), "t.vt", is_default=False),
        *_TAIL,
    ),
    "archive": (
        *_HEAD,
        Column("last_read_at", TimestampType(), "t.last_read_at"),
        Column("archived_at", TimestampType(), "t.archived_at"),
        Column("leased_until", TimestampType(), "t.vt", is_default=False),
        *_TAIL,
    ),
    "dead_letters": (
        Column("queue", StringType(), "{queue}::text"),
        Column("dead_letter_id", LongType(), "t.dead_letter_id"),
        Column("message_id", LongType(), "t.msg_id"),
        Column("attempt", IntegerType(), "t.attempts"),
        Column("enqueued_at", TimestampType(), "t.enqueued_at"),
        Column("first_failed_at", TimestampType(), "t.first_failed_at"),
        Column("dead_at", TimestampType(), "t.dead_at"),
        Column("redriven_at", TimestampType(), "t.redriven_at"),
        Column("category", StringType(), "t.category"),
        Column("error", StringType(), "t.error"),
        Column("error_class", StringType(), "t.error_class"),
        Column("traceback", StringType(), "t.traceback", is_default=False),
        Column("worker", StringType(), "t.worker", is_default=False),
        Column("history", StringType(), "t.history::text", is_default=False),
        *_TAIL,
    ),
    "failures": (
        Column("queue", StringType(), "{queue}::text"),
        Column("message_id", LongType(), "t.msg_id"),
        Column("attempt", IntegerType(), "t.attempt"),
        Column("failed_at", TimestampType(), "t.failed_at"),
        Column("outcome", StringType(), "t.outcome"),
        Column("category", StringType(), "t.category"),
        Column("error", StringType(), "t.error"),
        Column("error_class", StringType(), "t.error_class"),
        Column("retry_at", TimestampType(), "t.retry_at"),
        Column("traceback", StringType(), "t.traceback", is_default=False),
        Column("worker", StringType(), "t.worker", is_default=False),
    ),
}


def chosen(options: Options) -> tuple[Column, ...]:
    """Return the columns that the options select, in their order; raises an error for an unknown one."""
    columns = COLUMNS[options.table]
    if options.columns is None:
        selected = [
            column
            for column in columns
            if column.is_default or (column.name == "headers" and options.include_headers)
        ]
        return tuple(selected)
    named = {column.name: column for column in columns}
    for name in options.columns:
        if name not in named:
            hint = hint_of(name, named, f"There are {', '.join(named)}.")
            raise InvalidArgumentError(f"the table {options.table} has no column {name!r}", hint=hint)
    return tuple(named[name] for name in options.columns)


def columns_of(options: Options, schema: StructType) -> tuple[Column, ...]:
    """Return the columns of a schema, which a user may have given; raises InvalidArgumentError for others."""
    named = {column.name: column for column in chosen(options)}
    for field in schema:
        column = named.get(field.name)
        if column is None:
            raise InvalidArgumentError(
                f"the schema has the column {field.name!r}, which is not one of {', '.join(named)}",
                hint="The option columns chooses others.",
            )
        if field.dataType != column.kind:
            raise InvalidArgumentError(
                f"the schema has the column {field.name} as {field.dataType.simpleString()}, "
                f"it is {column.kind.simpleString()}"
            )
    return tuple(named[field.name] for field in schema)


def schema_of(options: Options) -> StructType:
    """Return the schema of the columns that the options select."""
    schema = StructType()
    for column in chosen(options):
        schema.add(column.name, column.kind)
    return schema
