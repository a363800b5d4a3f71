"""Tables of Spark's catalogue: their options are in the metadata of their first column.

Spark 4.3 passes the options of `create table` to a source that is written in Python while it asks for the columns, and
not when it reads or writes the table. The columns, with their metadata, are stored in the catalogue, and are passed
each time.
"""

import json
from collections.abc import Mapping
from typing import Final

from psycopg.conninfo import conninfo_to_dict
from pyspark.sql.types import StructType

from spanmq.errors import InvalidArgumentError
from spanmq_spark.options import TABLE_PREFIX, options_for

KEY: Final = "spanmq"
SECRETS: Final = ("password", "sslpassword")


def is_created(settings: Mapping[str, str]) -> bool:
    """Return whether the options are those of a table that is being created."""
    return any(key.lower().startswith(TABLE_PREFIX) for key in settings)


def with_options(schema: StructType, settings: Mapping[str, str]) -> StructType:
    """Return the columns of a new table, with its options.

    Raises InvalidArgumentError for a dsn with a password: copies of the table's data would have it in their schema.
    """
    own = {
        key[len(TABLE_PREFIX) :]: value
        for key, value in settings.items()
        if key.lower().startswith(TABLE_PREFIX)
    }
    for key, value in own.items():
        if key.lower() == "dsn" and not conninfo_to_dict(value).keys().isdisjoint(SECRETS):
            raise InvalidArgumentError(
                "the dsn of a table of Spark's catalogue can't have a password",
                hint="Copies of the table would have it in their schema. Use a passfile, or set SPANMQ_DSN.",
            )
    first, *others = schema.fields
    first.metadata = {**first.metadata, KEY: json.dumps(own)}
    return StructType([first, *others])


def table_options(schema: StructType) -> dict[str, str]:
    """Return the options of the table that has this schema; none for any other schema."""
    text = schema.fields[0].metadata.get(KEY) if schema.fields else None
    return {} if text is None else dict(json.loads(text))


def merged(settings: Mapping[str, str], schema: StructType, use: str) -> Mapping[str, str]:
    """Return the options for one use of a table: those of the statement, then the table's own that are for this use."""
    if any(key.lower() == "queue" for key in settings):
        return settings
    names = {key.lower() for key in settings}
    own = {key: value for key, value in table_options(schema).items() if key.lower() not in names}
    return {**options_for(own, use), **settings}
