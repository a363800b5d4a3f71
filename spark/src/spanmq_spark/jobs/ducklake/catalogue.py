"""The catalogue of a DuckLake: tables of PostgreSQL, in a schema of the database that has the queues.

The schema is named by the lake's folder. It is version 1.0 of DuckLake's specification, with one table beside: what
exports note of themselves, so that it commits with the files that it is about. Statements are in sql.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final

import psycopg
import pyarrow
from psycopg import sql
from psycopg.rows import dict_row

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, MissingPrivilegeError, PipelineError
from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.lake_table import PARTITIONS, LakeTable

VERSION: Final = "1.0"
PREFIX: Final = "ducklake_"
# How a CREATE ends that waited for another session's.
EXISTS: Final = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DuplicateSchema,
    psycopg.errors.DuplicateTable,
    psycopg.errors.DuplicateObject,
)
# The place of the last column.
LAST: Final = 1_000
# PostgreSQL cuts longer names.
NAME_BYTES_MAX: Final = 63
FOLDER: Final = importlib.resources.files("spanmq_spark") / "sql"
KINDS: Final = {
    "string": "varchar",
    "int32": "int32",
    "int64": "int64",
    "timestamp[us, tz=UTC]": "timestamptz",
}
# The names of the places that a file of deletions has.
PLACE: Final = "pos"


@dataclass(frozen=True, slots=True)
class Noted:
    """The record of the newest export of a queue's table in the catalogue; number 0 without any."""

    number: int = 0
    source: str = ""
    position: str | None = None
    since: str = ""
    compared_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """The number of nulls of a column in a file, and its least and greatest value, where that is known."""

    column_id: int
    nulls: int
    low: str | None = None
    high: str | None = None


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is to be added; its path begins at the folder of the table."""

    path: str
    rows: int
    size: int
    footer: int
    partitions: tuple[str, ...]
    stats: tuple[ColumnStats, ...]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that a table has since a snapshot, by its name in the lake, and the file of its deleted rows."""

    id: int
    name: str
    snapshot: int
    deletes: str | None
    format: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The catalogue of a lake, with one of its tables, through a client's connection."""

    server: Client
    lake: Lake
    table: LakeTable

    @property
    def name(self) -> str:
        """The schema; raises InvalidArgumentError where the folder's name is too long for one."""
        name = f"{PREFIX}{self.lake.folder}"
        if len(name.encode()) > NAME_BYTES_MAX:
            raise InvalidArgumentError(
                f"the name of the folder {self.lake.folder} is too long for a DuckLake",
                hint=f"Its catalogue is a schema, {PREFIX} and that name: {NAME_BYTES_MAX} bytes at most.",
            )
        return name

    @property
    def data_path(self) -> str:
        """The place of its files, as the catalogue has it."""
        return f"{self.lake.uri}/"

    def exists(self) -> bool:
        """Return whether there is one; raises PipelineError for one that is not spanmq's, or of another folder."""
        if not self._has("ducklake_metadata") and not self._has("spanmq_export"):
            return False
        if not self._has("spanmq_export"):
            raise PipelineError(
                f"the schema {self.name} has a DuckLake that spanmq did not create",
                hint="Name the folder otherwise: its name is part of the schema's. Or rename the schema.",
            )
        values = dict(self._rows("select key, value from {catalogue}.ducklake_metadata where scope is null"))
        if values.get("data_path") != self.data_path:
            raise PipelineError(
                f"the schema {self.name} has the DuckLake of {values.get('data_path')}, not of {self.data_path}",
                hint="Name the folder otherwise: its name is part of the schema's.",
            )
        if values.get("version") != VERSION or values.get("encrypted") != "false":
            raise PipelineError(
                f"the DuckLake in the schema {self.name} has version {values.get('version')}, encrypted:"
                f" {values.get('encrypted')}; exports write version {VERSION}, not encrypted"
            )
        self._check_table()
        return True

    def lock(self) -> None:
        """Be the only writer of the catalogue until the transaction ends; DuckDB's sessions wait at their commit."""
        self._run("lock table {catalogue}.ducklake_snapshot in share row exclusive mode")

    def create(self) -> None:
        """Create the catalogue unless it exists, and its table, or the columns that the table lacks."""
        if not self.exists():
            try:
                with self.server.connection.transaction():
                    self._create()
            except EXISTS:
                # The first export of another queue has created it meanwhile.
                if not self.exists():
                    raise
        self.lock()
        # Nothing of it changes from now on.
        self._check_table()
        columns = columns_of(self.table)
        known = {row["column_id"] for row in self._columns()}
        added = [column["id"] for column in columns if column["id"] not in known]
        if added:
            values: dict[str, Any] = {
                "columns": json.dumps(columns),
                "added": added,
                "partitions": list(partition_ids(self.table)),
            }
            self._run(_statement("columns"), {**values, "table": self.table.name})

    def _create(self) -> None:
        schema, connection = self.name, self.server.connection
        query = "select not exists (select from pg_catalog.pg_namespace n where n.nspname = %s)"
        [is_new] = connection.execute(query, [schema]).fetchone()
        try:
            if is_new:
                self._run("create schema {catalogue}")
            for statement in _statements("tables"):
                path = {"data_path": self.data_path} if "%(data_path)s" in statement else None
                self._run(statement, path)
        except psycopg.errors.InsufficientPrivilege as error:
            user = connection.info.user
            raise MissingPrivilegeError(
                f"the role {user} can't create the schema {schema}, the catalogue of the DuckLake",
                hint=f"As the owner of the database: create schema {schema} authorization {user}.",
            ) from error

    def noted(self, queue: str) -> Noted:
        """Return what the newest export of a queue has noted."""
        query = (
            "select number, source, position::text, since, compared_at from {catalogue}.spanmq_export"
            " where of_table = %(table)s::text and queue = %(queue)s::text"
        )
        records = self._rows(query, {"table": self.table.name, "queue": queue})
        return Noted(*records[0]) if records else Noted()

    def note(self, queue: str, noted: Noted, follows: str | None) -> bool:
        """Note an export, or more of it; return False if the newest is not the one that it `follows`."""
        statement = (
            "insert into {catalogue}.spanmq_export as e values (%(table)s::text, %(queue)s::text, %(number)s::bigint,"
            " %(source)s::text, %(position)s::uuid, %(since)s::text, %(compared_at)s::float8)"
            " on conflict (of_table, queue) do update set number = excluded.number, source = excluded.source,"
            " position = excluded.position, since = excluded.since,"
            " compared_at = excluded.compared_at where e.position = %(follows)s::uuid"
        )
        values = {**asdict(noted), "table": self.table.name, "queue": queue, "follows": follows}
        return bool(self._run(statement, values).rowcount)

    def add(self, files: Sequence[NewFile], message: str, ended: Sequence[int] = ()) -> None:
        """Add files to the table by one snapshot, and end those with these ids."""
        values = {
            "table": self.table.name,
            "files": json.dumps([asdict(file) for file in files]),
            "ended": list(ended),
            "partitions": list(partition_ids(self.table)),
            "message": message,
        }
        [[n]] = self._rows(_statement("add"), values)
        if n != len(files):
            raise PipelineError(f"the DuckLake in the schema {self.name} took {n} of {len(files)} files")

    def files(self, queue: str) -> list[DataFile]:
        """Return the files that the table has of a queue.

        Raises PipelineError if rows of the table are in the catalogue itself, or deleted in another way than by
        Parquet files of places.
        """
        if not self.exists():
            return []
        files = self.files_named(queue)
        if files:
            self._check_inlined()
        for file in files:
            if file.format != "parquet":
                raise PipelineError(
                    f"rows of {file.name} in {self.lake.uri} are deleted by a file of format {file.format}",
                    hint="Call ducklake_rewrite_data_files in DuckDB before.",
                )
        return files

    def files_named(self, queue: str) -> list[DataFile]:
        """Return the files that the table has of a queue, however its rows are deleted."""
        with self.server.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(self._sql(_statement("files")), {"table": self.table.name, "queue": queue})
            return [self._file(row) for row in cursor.fetchall()]

    def deleted_here(self, files: Sequence[DataFile]) -> list[tuple[int, int]]:
        """Return the places of deleted rows that the catalogue itself has, each with the id of its file."""
        [table_id] = (row[0] for row in self._rows(_TABLE_ID, {"table": self.table.name}))
        name = f"ducklake_inlined_delete_{table_id}"
        if not self._has(name):
            return []
        query = f"select file_id, row_id from {{catalogue}}.{name} where file_id = any (%(ids)s::bigint[])"
        return list(self._rows(query, {"ids": [file.id for file in files]}))

    def names(self) -> set[str]:
        """Return the names in the lake of all files that the catalogue knows, of any table and snapshot."""
        query = (
            "select case when f.path_is_relative then t.path || f.path else f.path end"
            " from (select d.table_id, d.path, d.path_is_relative from {catalogue}.ducklake_data_file d union all"
            " select x.table_id, x.path, x.path_is_relative from {catalogue}.ducklake_delete_file x) f"
            " join {catalogue}.ducklake_table t on t.table_id = f.table_id"
            " union select s.path from {catalogue}.ducklake_files_scheduled_for_deletion s"
        )
        return {path.removeprefix(self.data_path) for (path,) in self._rows(query)}

    def _file(self, row: dict[str, Any]) -> DataFile:
        deletes = row["deletes"]
        return DataFile(
            row["data_file_id"],
            self._name(row["path"], is_relative=row["path_is_relative"]),
            row["begin_snapshot"],
            None if deletes is None else self._name(deletes, is_relative=row["is_beside"]),
            row["format"],
        )

    def _name(self, path: str, *, is_relative: bool) -> str:
        return f"{self.table.name}/{path}" if is_relative else path.removeprefix(self.data_path)

    def _check_table(self) -> None:
        """Raise PipelineError for a table whose columns or partitions are not those of an export."""
        columns = {column["id"]: (column["name"], column["type"]) for column in columns_of(self.table)}
        # A change of a column adds a row of its id.
        newest = {row["column_id"]: row for row in self._columns()}
        for id_, row in newest.items():
            expected = columns.get(id_)
            name, is_now = row["column_name"], row["end_snapshot"] is None
            if expected is None and name not in dict(columns.values()):
                continue
            if not is_now or expected != (name, row["column_type"]):
                raise PipelineError(
                    f"the column {name} of the table {self.table.name} in the schema {self.name} was changed",
                    hint="An export writes its own columns; others may be added. Export into another folder.",
                )
        query = (
            "select p.column_id from {catalogue}.ducklake_partition_column p join {catalogue}.ducklake_partition_info i"
            " on i.partition_id = p.partition_id and i.table_id = p.table_id and i.end_snapshot is null"
            " where p.table_id = ("
            + _TABLE_ID
            + ") and p.transform = 'identity' order by p.partition_key_index"
        )
        partitions = tuple(id_ for (id_,) in self._rows(query, {"table": self.table.name}))
        if newest and partitions != partition_ids(self.table):
            raise PipelineError(
                f"the table {self.table.name} in the schema {self.name} is not partitioned by"
                f" {' and '.join(PARTITIONS)}",
                hint="Set these partitions again, or export into another folder.",
            )

    def _columns(self) -> list[dict[str, Any]]:
        query = (
            "select c.column_id, c.column_name, c.column_type, c.end_snapshot from {catalogue}.ducklake_column c"
            f" where c.table_id = ({_TABLE_ID}) and c.parent_column is null order by c.begin_snapshot"
        )
        with self.server.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(self._sql(query), {"table": self.table.name})
            return list(cursor.fetchall())

    def _check_inlined(self) -> None:
        query = f"select table_name from {{catalogue}}.ducklake_inlined_data_tables where table_id = ({_TABLE_ID})"
        for (name,) in self._rows(query, {"table": self.table.name}):
            rows = sql.SQL("select from {}.{} where end_snapshot is null limit 1").format(
                sql.Identifier(self.name), sql.Identifier(name)
            )
            if self.server.connection.execute(rows).rowcount:
                raise PipelineError(
                    f"rows of the table {self.table.name} of {self.lake.uri} are in the catalogue, not in files",
                    hint="Call ducklake_flush_inlined_data in DuckDB before.",
                )

    def _has(self, relation: str) -> bool:
        # Not to_regclass(): what it knew before a wait for another session, it may answer after it.
        query = (
            "select exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n"
            " on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s)"
        )
        [exists] = self.server.connection.execute(query, [self.name, relation]).fetchone()
        return bool(exists)

    def _rows(self, statement: str, values: dict[str, Any] | None = None) -> list[Any]:
        return list(self._run(statement, values).fetchall())

    def _run(self, statement: str, values: dict[str, Any] | None = None) -> Any:
        return self.server.connection.execute(self._sql(statement), values)

    def _sql(self, statement: str) -> sql.Composed:
        return sql.SQL(statement).format(catalogue=sql.Identifier(self.name))


# The table of a name.
_TABLE_ID: Final = (
    "select t.table_id from {catalogue}.ducklake_table t join {catalogue}.ducklake_schema m"
    " on m.schema_id = t.schema_id and m.schema_name = 'main' and m.end_snapshot is null"
    " where t.table_name = %(table)s::text and t.end_snapshot is null"
)


@cache
def _statements(name: str) -> tuple[str, ...]:
    """Return the statements of a file."""
    text = (FOLDER / f"{name}.sql").read_text("utf-8")
    return tuple(statement for statement in text.split(";\n") if statement.strip())


def _statement(name: str) -> str:
    """Return the only statement of a file."""
    [statement] = _statements(name)
    return statement


def field_ids(table: LakeTable) -> dict[str, int]:
    """Return the id of each column: the day's is the first, so that a later column changes none."""
    return {name: n for n, name in enumerate((PARTITIONS[1], *table.schema.names), 1)}


def columns_of(table: LakeTable) -> list[dict[str, Any]]:
    """Return id, place, name and type of each column: the day is the last, also of columns to come."""
    ids, places = field_ids(table), {PARTITIONS[1]: LAST}
    return [
        {
            "id": ids[field.name],
            "place": places.get(field.name, ids[field.name]),
            "name": field.name,
            "type": KINDS[str(field.type)],
        }
        for field in table.schema_with_day
    ]


def partition_ids(table: LakeTable) -> tuple[int, ...]:
    """Return the ids of the columns by which a table is partitioned."""
    ids = field_ids(table)
    return tuple(ids[name] for name in PARTITIONS)


def schema_of(table: LakeTable) -> pyarrow.Schema:
    """Return the columns as files have them, with their ids."""
    ids = field_ids(table)
    fields = [
        field.with_metadata({b"PARQUET:field_id": str(ids[field.name]).encode()})
        for field in table.schema_with_day
    ]
    return pyarrow.schema(fields)
