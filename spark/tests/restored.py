"""A database that goes back in time: a copy of it, which takes its place later, under the same name and identity."""

import uuid
from collections.abc import Callable

import psycopg
from psycopg import sql


def copied(dsn: str, server: str) -> Callable[[], None]:
    """Copy a database; return what puts the copy in its place. Sessions of the database are ended by both."""
    name = str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])
    copy = f"spanmq_test_{uuid.uuid4().hex[:16]}"

    def run(connection: psycopg.Connection[object], statement: str, *names: str) -> None:
        connection.execute(
            "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = any (%s)",
            [list(names)],
        )
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    with psycopg.connect(server, autocommit=True) as connection:
        run(connection, "create database {} template {}", copy, name)

    def went_back() -> None:
        with psycopg.connect(server, autocommit=True) as connection:
            run(connection, "drop database {}", name)
            run(connection, "alter database {} rename to {}", copy, name)

    return went_back
