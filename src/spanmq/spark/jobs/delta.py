"""Delta tables: the executors have written the files, and one commit makes them rows, with its number.

The number is that of the manifest, kept by Delta as an application's transaction: whether a commit took place
before a kill can be asked afterwards, so none is made twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow
import pyarrow.parquet

from spanmq.errors import ExtraNotInstalledError, PipelineError

PARTITIONS = ["queue", "day"]


def committed(folder: Path, application: str) -> int:
    """Return the number of an application's last commit to a table, 0 without any."""
    table = _table(folder)
    return 0 if table is None else int(table.transaction_version(application) or 0)


def files(folder: Path) -> list[str]:
    """Return the paths of the files of a table as it is now."""
    table = _table(folder)
    return [] if table is None else [unquote(uri.removeprefix("file://")) for uri in table.file_uris()]


def compact(folder: Path, queue: str, size: int) -> tuple[int, int]:
    """Make files of up to `size` bytes of a queue's small ones; return how many were replaced, and by how many.

    Files that were replaced a week ago are deleted: until then readers of older versions have them.
    """
    table = _table(folder)
    if table is None:
        return 0, 0
    done = table.optimize.compact(partition_filters=[("queue", "=", queue)], target_size=size)
    table.vacuum(dry_run=False)
    return int(done["numFilesRemoved"]), int(done["numFilesAdded"])


def commit(folder: Path, application: str, number: int, files: Sequence[str], schema: pyarrow.Schema) -> None:
    """Add files (by their paths within the table, in folders `queue=…/day=…`) to a table, made if need be."""
    from deltalake import CommitProperties, Schema
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction, Transaction, create_table_with_add_actions

    actions = [_added(AddAction, folder, name) for name in files]
    properties = CommitProperties(app_transactions=[Transaction(application, number)])
    table = _table(folder)
    try:
        if table is None:
            create_table_with_add_actions(
                str(folder),
                Schema.from_arrow(schema),
                actions,
                mode="error",
                partition_by=PARTITIONS,
                commit_properties=properties,
            )
        else:
            table.create_write_transaction(
                actions, "append", Schema.from_arrow(schema), PARTITIONS, commit_properties=properties
            )
    except DeltaError as error:
        raise PipelineError(f"the Delta table {folder} took no commit: {error}") from error


def _added(action: Any, folder: Path, name: str) -> Any:
    path = folder / name
    pairs = (part.split("=", 1) for part in Path(name).parts[:-1])
    values = {column: unquote(value) for column, value in pairs}
    status = path.stat()
    rows = pyarrow.parquet.read_metadata(path).num_rows
    stats = json.dumps({"numRecords": rows})
    return action(name, status.st_size, values, int(status.st_mtime * 1000), True, stats)


def _table(folder: Path) -> Any:
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise ExtraNotInstalledError("deltalake is not installed", extra="spark") from error
    return DeltaTable(str(folder)) if DeltaTable.is_deltatable(str(folder)) else None
