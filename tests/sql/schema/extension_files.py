"""Folders in which a server finds extensions by its setting extension_control_path."""

from pathlib import Path

import psycopg
import pytest
from psycopg import sql


def write_upstream(folder: Path) -> None:
    """Write PGMQ as an extension into the folder `extension` of a folder."""
    pgmq = pytest.importorskip("pgmq")
    target = folder / "extension"
    target.mkdir(exist_ok=True)
    control = "default_version = '1.13.0'\nrelocatable = false\nschema = 'pgmq'\nsuperuser = false\n"
    (target / "pgmq.control").write_text(control)
    (target / "pgmq--1.13.0.sql").write_text(pgmq.get_embedded_install_sql())


def open_to_server(folder: Path) -> None:
    """Make what is in a `server_folder` readable for the server, which may be another user."""
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def use_folder(dsn: str, folder: Path) -> None:
    """Have all later sessions of a database find the extensions of a folder; skip the test where none can."""
    open_to_server(folder)
    with psycopg.connect(dsn, autocommit=True) as session:
        if session.info.server_version < 180000:
            pytest.skip("before PostgreSQL 18 extensions lie in the server's own folder")
        setting = sql.Literal(f"{folder}:$system")
        database = sql.Identifier(session.info.dbname)
        statement = sql.SQL("alter database {} set extension_control_path = {}").format(database, setting)
        session.execute(statement)
