"""A lake in DuckDB: its extension over the real catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
from psycopg.conninfo import conninfo_to_dict, make_conninfo

EXTENSIONS = ("ducklake", "postgres_scanner")


def connected() -> Any:
    """Return a connection with the extensions, which DuckDB itself would fetch."""
    connection = duckdb.connect()
    for name in EXTENSIONS:
        place = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"load '{place / f'{name}.duckdb_extension'}'")
    return connection


@contextmanager
def attached(dsn: str, folder: Path, *, inlined: int = 0, data_path: Path | None = None) -> Iterator[Any]:
    """Attach the DuckLake of a folder as `lake`, for a block; changes of up to so many rows go into the catalogue.

    With a `data_path` DuckDB makes it.
    """
    with connected() as connection:
        connection.execute("set timezone = 'UTC'")
        address = make_conninfo(**{key: str(value) for key, value in conninfo_to_dict(dsn).items()})
        quoted = address.replace("'", "''")
        connection.execute(
            f"attach 'ducklake:postgres:{quoted}' as lake (metadata_schema 'ducklake_{folder.name}',"
            f" data_inlining_row_limit {inlined}" + (f", data_path '{data_path}')" if data_path else ")")
        )
        yield connection
        connection.execute("use memory")
        connection.execute("detach lake")


def rows(dsn: str, folder: Path, query: str = "select * from lake.archive order by message_id") -> list[Any]:
    """Return what a query over the lake returns."""
    with attached(dsn, folder) as lake:
        return list(lake.execute(query).fetchall())
