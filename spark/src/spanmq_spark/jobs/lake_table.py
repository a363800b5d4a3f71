"""The tables of a lake: which columns they have, by which id a row is known, and in which folder it is."""

import re
from dataclasses import dataclass, replace
from typing import Final

import pyarrow

from spanmq.errors import InvalidArgumentError
from spanmq_spark.column import COLUMNS, Column
from spanmq_spark.options import hint_of


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table, which has the name of what it is a copy of."""

    name: str
    id: str
    at: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns as Arrow has them."""
        from pyspark.sql.types import StructField, StructType

        from spanmq_spark.release import arrow_schema

        fields = [StructField(column.name, column.kind) for column in self.columns]
        return arrow_schema(StructType(fields))

    @property
    def schema_with_day(self) -> pyarrow.Schema:
        """The columns as Delta and Iceberg have them: those, and the day."""
        return self.schema.append(pyarrow.field(PARTITIONS[1], pyarrow.string()))


TABLES: Final = {
    table.name: table
    for table in (
        LakeTable("archive", "message_id", "archived_at", COLUMNS["archive"]),
        # Columns of a lake never change, but a dead letter may be redriven: that column is left out.
        LakeTable(
            "dead_letters",
            "dead_letter_id",
            "dead_at",
            tuple(column for column in COLUMNS["dead_letters"] if column.name != "redriven_at"),
        ),
    )
}
# A table's folders: one of each queue, and in it of each day.
PARTITIONS: Final = ["queue", "day"]
# What Hive and Spark escape in the name of such a folder.
_ESCAPED: Final = re.compile(r"""[\x00-\x1f"#%'*/:=?\\{\[\]^\x7f]""")
# The folder of what a database has lost that went back in time; in it, those of the tables.
LOST: Final = "lost"


def lost_table(table: LakeTable) -> LakeTable:
    """Return the table of a DuckLake that has the rows which a repair of this table keeps."""
    return replace(table, name=f"{LOST}_{table.name}")


def folder_of(table: str, queue: str) -> str:
    """Return the folder of a queue's files in a lake."""
    return f"{table}/{PARTITIONS[0]}={escaped(queue)}"


def escaped(queue: str) -> str:
    """Return the name of a queue as a part of the name of a file."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", queue)


def table_named(name: str) -> LakeTable:
    """Return a table; raises InvalidArgumentError, with the nearest name."""
    if name not in TABLES:
        hint = hint_of(name, tuple(TABLES), f"There are {', '.join(TABLES)}.")
        raise InvalidArgumentError(f"a lake has no table {name!r}", hint=hint)
    return TABLES[name]
