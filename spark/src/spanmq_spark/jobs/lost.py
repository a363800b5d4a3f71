"""The findings of a lake's repair: rows that only the lake has, kept in a folder, and ids that are gone."""

import json
from dataclasses import dataclass
from typing import Final

from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.lake_table import LOST, folder_of
from spanmq_spark.jobs.ranges import Ranges, size_of

# The name of a file of the ids that are gone ends with it.
GONE: Final = ".gone.json"
# The ranges of ids that a report names.
RANGES_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """The number of rows of a table that only the lake has, and of those that only the database has.

    `exports` no longer count; the next one writes the rows of the database. `kept` is the folder of those that
    only the lake has, empty without any; in a DuckLake it is that of a table. `gone` rows are in neither: the lake had
    them before it went back, and retention has deleted them since; `gone_ids` are the first ranges of their ids, and a
    file `.gone.json` in the folder `lost` has all.
    """

    table: str
    only_in_lake: int
    only_in_database: int
    exports: int
    kept: str
    gone: int
    gone_ids: str


def folder_of_lost(table: str, queue: str, number: int) -> str:
    """Return the folder of the rows that a repair keeps, which is the export of this number."""
    return f"{LOST}/{folder_of(table, queue)}/restore={number:08}"


def report(
    lake: Lake,
    into: str | None,
    *,
    table: str,
    kept: str,
    only_in_lake: int,
    only_in_database: int,
    exports: int,
    gone: Ranges,
) -> RestoredTable:
    """Return what a repair has found; write the ids that are gone into a file whose name begins with `into`, if any.

    The rows are `kept` in this folder of the lake. Whoever reads the report may be killed before that.
    """
    if into is not None and gone:
        lake.put(f"{into}{GONE}", json.dumps(gone).encode())
    shown = ", ".join(f"{a}-{b}" for a, b in gone[:RANGES_MAX])
    return RestoredTable(
        table=table,
        only_in_lake=only_in_lake,
        only_in_database=only_in_database,
        exports=exports,
        kept=f"{lake.uri}/{kept}" if into is not None and only_in_lake else "",
        gone=size_of(gone),
        gone_ids=shown + (", …" if len(gone) > RANGES_MAX else ""),
    )
