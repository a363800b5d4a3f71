"""Delta tables: the executors have written the files, and one commit makes them rows, with its number.

The number is that of the manifest, kept by Delta as an application's transaction: whether a commit took place
before a kill can be asked afterwards, so none is made twice.
"""

import json
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow

from spanmq.errors import ExtraNotInstalledError, PipelineError
from spanmq.spark.jobs.lake import Lake
from spanmq.spark.jobs.lake_table import PARTITIONS, TABLES
from spanmq.spark.jobs.manifest import is_taken
from spanmq.spark.jobs.parquet import Written

# A condition of many is slow to plan.
RANGES_PER_COMMIT: Final = 100


def committed(_dsn: str, lake: Lake, name: str, application: str) -> int:
    """Return the number of an application's last commit to a table, 0 without any."""
    table = _table(lake, name)
    return 0 if table is None else int(table.transaction_version(application) or 0)


def files(_dsn: str | None, lake: Lake, name: str, queue: str | None) -> list[str]:
    """Return the names in the lake of the files of a table as it is now, of a queue or of all."""
    table = _table(lake, name)
    if table is None:
        return []
    actions = pyarrow.table(table.get_add_actions(flatten=True))
    pairs = zip(*(actions[column].to_pylist() for column in ("path", "partition.queue")), strict=True)
    return [f"{name}/{unquote(path)}" for path, of in pairs if queue in (None, of)]


def compact(lake: Lake, name: str, queue: str, size: int) -> tuple[int, int]:
    """Make files of up to `size` bytes of a queue's small ones; return how many were replaced, and by how many.

    Files that were replaced a week ago are deleted: until then readers of older versions have them.
    """
    table = _table(lake, name)
    if table is None:
        return 0, 0
    done = table.optimize.compact(partition_filters=[(PARTITIONS[0], "=", queue)], target_size=size)
    table.vacuum(dry_run=False)
    return int(done["numFilesRemoved"]), int(done["numFilesAdded"])


def commit(
    _dsn: str, lake: Lake, name: str, application: str, version: int, files: Sequence[Written]
) -> None:
    """Add files to a table, made if need be. Raises FileExistsError where a commit has that number."""
    from deltalake import CommitProperties, Schema
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction, Transaction, create_table_with_add_actions

    actions = [_added(AddAction, name, each) for each in files]
    schema = Schema.from_arrow(TABLES[name].schema_with_day)
    properties = CommitProperties(app_transactions=[Transaction(application, version)])
    table = _table(lake, name)
    if table is not None and is_taken(int(table.transaction_version(application) or 0), version):
        raise FileExistsError(f"{application} {version}")
    try:
        if table is None:
            create_table_with_add_actions(
                f"{lake.uri}/{name}",
                schema,
                actions,
                mode="error",
                partition_by=PARTITIONS,
                commit_properties=properties,
            )
        else:
            table.create_write_transaction(
                actions, "append", schema, PARTITIONS, commit_properties=properties
            )
    except DeltaError as error:
        raise PipelineError(f"the Delta table {lake.uri}/{name} took no commit: {error}") from error


def remove(
    _dsn: str,
    lake: Lake,
    name: str,
    application: str,
    version: int,
    queue: str,
    ids: Sequence[tuple[int, int]],
) -> None:
    """Delete the rows of a queue with ids in these ranges."""
    from deltalake import CommitProperties
    from deltalake.transaction import Transaction

    table = _table(lake, name)
    if table is None:
        return
    column = TABLES[name].id
    quoted = "'" + queue.replace("'", "''") + "'"
    for first in range(0, len(ids), RANGES_PER_COMMIT):
        ranges = ids[first : first + RANGES_PER_COMMIT]
        among = " or ".join(f"{column} between {a} and {b}" for a, b in ranges)
        is_last = first + RANGES_PER_COMMIT >= len(ids)
        numbered = [Transaction(application, version)] if is_last else []
        table.delete(
            f"{PARTITIONS[0]} = {quoted} and ({among})",
            commit_properties=CommitProperties(app_transactions=numbered),
        )


def _added(action: Any, name: str, file: Written) -> Any:
    path = file.name.removeprefix(f"{name}/")
    pairs = (part.split("=", 1) for part in path.split("/")[:-1])
    values = {column: unquote(value) for column, value in pairs}
    stats = json.dumps({"numRecords": file.rows})
    return action(path, file.size, values, int(time.time() * 1000), True, stats)


def _table(lake: Lake, name: str) -> Any:
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise ExtraNotInstalledError("deltalake is not installed", extra="spark") from error
    uri = f"{lake.uri}/{name}"
    return DeltaTable(uri) if DeltaTable.is_deltatable(uri) else None
