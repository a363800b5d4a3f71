"""Iceberg tables: the executors have written the files, and one commit of PyIceberg makes them rows.

With it goes the number of the manifest, as a property of the table: whether a commit took place before a kill
can be asked afterwards. The catalogue is the one that PyIceberg's configuration has as `spanmq`, else tables
in the database of the queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from psycopg.conninfo import conninfo_to_dict

from spanmq.errors import ExtraNotInstalledError, PipelineError
from spanmq.spark.jobs.lake import Lake
from spanmq.spark.jobs.lake_table import PARTITIONS, TABLES
from spanmq.spark.jobs.manifest import is_taken
from spanmq.spark.jobs.parquet import Written

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

CATALOG: Final = "spanmq"


def committed(dsn: str, lake: Lake, table: str, application: str) -> int:
    """Return what an application noted of its last commit into a table, 0 without any."""
    name = (lake.folder, table)
    with _catalog(dsn) as catalog:
        if not catalog.table_exists(name):
            return 0
        return int(catalog.load_table(name).properties.get(application, 0))


def files(dsn: str, lake: Lake, table: str, queue: str) -> list[str]:
    """Return the names in the lake of the files that a table has now of a queue."""
    name = (lake.folder, table)
    with _catalog(dsn) as catalog:
        if not catalog.table_exists(name):
            raise PipelineError(
                f"the catalogue has no table {'.'.join(name)}",
                hint="It is in the database of the queues, or what PyIceberg's configuration has as spanmq.",
            )
        from pyiceberg import expressions

        equal_to: Any = expressions.EqualTo
        found = _at(catalog, name, lake)
        tasks = list(found.scan(row_filter=equal_to(PARTITIONS[0], queue)).plan_files())
    if any(task.delete_files for task in tasks):
        raise PipelineError(
            f"rows of the table {'.'.join(name)} were deleted by files of their own",
            hint="Run Iceberg's procedure rewrite_data_files, with delete-file-threshold 1, before.",
        )
    return [f"{table}/{task.file.file_path.removeprefix(found.location() + '/')}" for task in tasks]


def commit(
    dsn: str, lake: Lake, table: str, application: str, version: int, files: Sequence[Written]
) -> None:
    """Add files to a table, which is created if need be.

    Raises FileExistsError where a commit has that number.
    """
    name = (lake.folder, table)
    location = _location(lake, table)
    with _catalog(dsn) as catalog:
        if catalog.table_exists(name):
            found = _at(catalog, name, lake)
            if is_taken(int(found.properties.get(application, 0)), version):
                raise FileExistsError(f"{application} {version}")
            transaction: Any = found.transaction()
        else:
            catalog.create_namespace_if_not_exists(name[:1])
            schema = TABLES[table].schema_with_day
            transaction = catalog.create_table_transaction(name, schema, location=location)
            with transaction.update_spec() as spec:
                for column in PARTITIONS:
                    spec.add_identity(column)
        if files:
            transaction.add_files([f"{location}/{each.name.removeprefix(f'{table}/')}" for each in files])
        transaction.set_properties({application: str(version)})
        transaction.commit_transaction()


def remove(
    dsn: str,
    lake: Lake,
    table: str,
    application: str,
    version: int,
    queue: str,
    ids: Sequence[tuple[int, int]],
) -> None:
    """Delete the rows of a queue with ids in these ranges."""
    from pyiceberg import expressions

    name, column = (lake.folder, table), TABLES[table].id
    equal: Any = expressions.EqualTo
    low: Any = expressions.GreaterThanOrEqual
    high: Any = expressions.LessThanOrEqual
    with _catalog(dsn) as catalog:
        if not catalog.table_exists(name):
            return
        transaction: Any = _at(catalog, name, lake).transaction()
        for a, b in ids:
            between = expressions.And(low(column, a), high(column, b))
            transaction.delete(expressions.And(equal(PARTITIONS[0], queue), between))
        transaction.set_properties({application: str(version)})
        transaction.commit_transaction()


def _location(lake: Lake, table: str) -> str:
    return f"{lake.uri if '://' in lake.uri else Path(lake.uri).as_uri()}/{table}"


def _at(catalog: Catalog, name: tuple[str, str], lake: Lake) -> Table:
    """Return a table; raises PipelineError for one that is elsewhere."""
    found, location = catalog.load_table(name), _location(lake, name[1])
    if found.location() != location:
        raise PipelineError(
            f"the catalogue has the table {'.'.join(name)} at {found.location()}, not at {location}",
            hint="Name the folder otherwise: its name is the table's namespace.",
        )
    return found


def _catalog(dsn: str) -> Catalog:
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.utils.config import Config
        from sqlalchemy import URL
    except ImportError as error:
        raise ExtraNotInstalledError("PyIceberg is not installed", extra="iceberg") from error
    if Config().get_catalog_config(CATALOG):
        return load_catalog(CATALOG)
    query = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    url = URL.create("postgresql+psycopg", query=query)
    return load_catalog(CATALOG, type="sql", uri=url.render_as_string(hide_password=False))
