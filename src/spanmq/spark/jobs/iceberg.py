"""Iceberg tables: the executors have written the files, and one commit of PyIceberg makes them rows.

With it goes the number of the manifest, as a property of the table: whether a commit took place before a kill
can be asked afterwards. The catalogue is the one that PyIceberg's configuration has as `spanmq`, else tables
in the database of the queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow
from psycopg.conninfo import conninfo_to_dict

from spanmq.errors import ExtraNotInstalledError, PipelineError
from spanmq.spark.jobs.delta import PARTITIONS

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

CATALOG: Final = "spanmq"


def committed(dsn: str, folder: Path, application: str) -> int:
    """Return the number of an application's last commit into a table, 0 without any."""
    name = _name(folder)
    with _catalog(dsn) as catalog:
        if not catalog.table_exists(name):
            return 0
        return int(catalog.load_table(name).properties.get(application, 0))


def commit(
    dsn: str, folder: Path, application: str, number: int, files: Sequence[str], schema: pyarrow.Schema
) -> None:
    """Add files (by their paths within the folder) to its table, which is created if need be."""
    name, location = _name(folder), folder.resolve().as_uri()
    with _catalog(dsn) as catalog:
        if catalog.table_exists(name):
            table = catalog.load_table(name)
            if table.location() != location:
                raise PipelineError(
                    f"the catalogue has the table {'.'.join(name)} at {table.location()}, not at {location}",
                    hint="Name the folder otherwise: its name is the table's namespace.",
                )
            transaction: Any = table.transaction()
        else:
            catalog.create_namespace_if_not_exists(name[:1])
            transaction = catalog.create_table_transaction(name, schema, location=location)
            with transaction.update_spec() as spec:
                for column in PARTITIONS:
                    spec.add_identity(column)
        transaction.add_files([f"{location}/{each}" for each in files])
        transaction.set_properties({application: str(number)})
        transaction.commit_transaction()


def _name(folder: Path) -> tuple[str, str]:
    """Return the name of the table in a folder: that of the lake, and its own."""
    place = folder.resolve()
    return place.parent.name, place.name


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
