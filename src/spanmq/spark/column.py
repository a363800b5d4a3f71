"""The columns of what can be read: their Spark types, and the SQL that gives them."""

import json
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from spanmq.errors import InvalidArgumentError
from spanmq.spark.options import Options, hint_of


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
        wanted = [
            each
            for each in columns
            if each.is_default or (each.name == "headers" and options.include_headers)
        ]
        return tuple(wanted)
    named = {each.name: each for each in columns}
    for name in options.columns:
        if name not in named:
            hint = hint_of(name, named, f"There are {', '.join(named)}.")
            raise InvalidArgumentError(f"the table {options.table} has no column {name!r}", hint=hint)
    return tuple(named[name] for name in options.columns)


def columns_of(options: Options, schema: StructType) -> tuple[Column, ...]:
    """Return the columns of a schema, which a user may have given; raises InvalidArgumentError for others."""
    named = {each.name: each for each in chosen(options)}
    for field in schema:
        column = named.get(field.name)
        if column is None:
            raise InvalidArgumentError(
                f"the schema has the column {field.name!r}, which is not one of {', '.join(named)}",
                hint="The option columns chooses others, and the option bodySchema parses the body.",
            )
        if field.dataType != column.kind and not (field.name == "body" and options.body_schema):
            raise InvalidArgumentError(
                f"the schema has the column {field.name} as {field.dataType.simpleString()}, "
                f"it is {column.kind.simpleString()}"
            )
    return tuple(named[field.name] for field in schema)


def schema_of(options: Options) -> str:
    """Return the schema as Spark writes it: with a `bodySchema` the body is a struct."""
    # As text, since only a process with a session can parse it. Spark shows it where it can't.
    body = "string"
    if options.body_schema:
        body = f"struct</* option bodySchema: */ {_fields(options.body_schema)}>"
    return ", ".join(
        f"`{each.name}` {body if each.name == 'body' else each.kind.simpleString()}"
        for each in chosen(options)
    )


def _fields(body_schema: str) -> str:
    """Return the fields of a body, also of a schema as `schema.json()` writes it."""
    if not body_schema.lstrip().startswith("{"):
        return body_schema
    try:
        kind = StructType.fromJson(json.loads(body_schema))
    except (ValueError, KeyError, TypeError, PySparkException) as error:
        raise InvalidArgumentError(f"the option bodySchema is not the JSON of a schema: {error}") from error
    return _type_of(kind).removeprefix("struct<").removesuffix(">")


def _type_of(kind: DataType) -> str:
    """Return a type as Spark writes it, with every name quoted."""
    if isinstance(kind, StructType):
        fields = [f"{quoted(field.name)}: {_type_of(field.dataType)}" for field in kind]
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_type_of(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_type_of(kind.keyType)}, {_type_of(kind.valueType)}>"
    return kind.simpleString()


def quoted(name: str) -> str:
    """Return a name as Spark's SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"
