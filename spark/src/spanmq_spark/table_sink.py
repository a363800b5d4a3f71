"""The writers into any table of PostgreSQL: rows into a stage first, then one transaction into the table.

Tasks copy rows into an unlogged table of the epoch, each attempt under a mark of its own. The driver's commit inserts
the rows of the attempts that Spark names, and notes the epoch in a ledger: a replay finds it there, whichever tasks it
has, and rows of attempts that nobody names are never read. Triggers, foreign keys and policies of the table apply.

The stage and the ledger are in a schema of the role's own, in the database of the table. That needs no other right than
to create this schema, nor spanmq there, nor a session that lasts longer than a transaction.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pyarrow
from psycopg import sql
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import DecimalType, StructType

from spanmq.client import Client
from spanmq.client.calls import connect, typed_errors
from spanmq.errors import (
    InvalidArgumentError,
    MissingPrivilegeError,
    PipelineError,
    PositionUnknownError,
    SpanmqError,
)
from spanmq_spark.options import dsn_of, hint_of, named_options
from spanmq_spark.release import StreamSink
from spanmq_spark.writer import STREAM, chunks, identity

if TYPE_CHECKING:
    from spanmq_spark.adbc import Connection

NAMES: Final = ("dsn", "table", "mode", "key", "writerId", "stageSchema", "failOnDataLoss")
MODES: Final = ("append", "upsert")
SCHEMA: Final = "spanmq_sink"
CHUNK: Final = 50_000
MARK: Final = "_spanmq_mark"
DAY_SECONDS: Final = 86_400
# The epochs of a stream that the ledger keeps.
EPOCHS: Final = 1_000
# By the type in Spark: that of the column of the stage, and the types of a table's column that hold each value of it.
KINDS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    name: (stage, frozenset(allowed.split()))
    for name, stage, allowed in (
        ("boolean", "boolean", "bool"),
        ("tinyint", "smallint", "int2 int4 int8 numeric float4 float8"),
        ("smallint", "smallint", "int2 int4 int8 numeric float4 float8"),
        ("int", "integer", "int2 int4 int8 numeric float8"),
        ("bigint", "bigint", "int2 int4 int8 numeric"),
        ("float", "real", "float4 float8"),
        ("double", "double precision", "float8"),
        ("decimal", "numeric", "numeric"),
        ("binary", "bytea", "bytea"),
        ("date", "date", "date"),
        ("timestamp", "timestamptz", "timestamptz"),
        ("timestamp_ntz", "timestamp", "timestamp"),
        # As it is, or as what PostgreSQL reads out of a text, and nothing that would be rounded or cut.
        ("string", "text", "text varchar bpchar json jsonb uuid xml citext inet cidr macaddr"),
    )
}
TEXTS: Final = frozenset(("text", "varchar", "bpchar"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The checked options of a user."""

    dsn: str
    table: str
    mode: str = "append"
    key: tuple[str, ...] = ()
    writer_id: str | None = None
    schema: str = SCHEMA
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of the table, and how a row of the stage becomes its value."""

    name: str
    stage_type: str
    cast: str


@dataclass(frozen=True, slots=True)
class Target:
    """The table, with the columns that are written, and of an upsert the key."""

    schema: str
    name: str
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]

    @property
    def relation(self) -> sql.Identifier:
        """The table, in SQL."""
        return sql.Identifier(self.schema, self.name)


@dataclass
class Staged(WriterCommitMessage):
    """A task's message to the driver: under which mark its rows are in which stage, and their number."""

    writer: str
    stage: str
    mark: str
    count: int


def read_table_options(settings: Mapping[str, str], *, is_stream: bool) -> TableOptions:
    """Check the options of a write into a table; raises InvalidArgumentError."""
    values = named_options(settings, NAMES, "a write into a table")
    mode = values.get("mode", "append").lower()
    if mode not in MODES:
        raise InvalidArgumentError(
            f"the option mode can't be {mode!r}", hint=hint_of(mode, MODES, "append, or upsert.")
        )
    if "key" in values and mode == "append":
        raise InvalidArgumentError("the option key is for the mode upsert")
    if is_stream and "writerId" in values:
        raise InvalidArgumentError("the option writerId is not for a stream: its checkpoint names it")
    loss = values.get("failOnDataLoss", "true").lower()
    if loss not in ("true", "false"):
        raise InvalidArgumentError(f"the option failOnDataLoss must be true or false, got {loss!r}")
    return TableOptions(
        dsn=dsn_of(values),
        table=values["table"],
        mode=mode,
        key=tuple(name.strip() for name in values["key"].split(",")) if "key" in values else (),
        writer_id=values.get("writerId"),
        schema=values.get("stageSchema", SCHEMA),
        fail_on_data_loss=loss == "true",
    )


class TableWriter(DataSourceArrowWriter):
    """Writes a data frame into a table: all of its rows are seen at one instant, or none."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._sink = Sink(options, schema)
        self._writer = f"job:{options.writer_id}" if options.writer_id else f"write:{uuid.uuid4()}"

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        """Stage the rows of one task."""
        return self._sink.stage(self._writer, 0, iterator)

    def commit(self, messages: Sequence[Staged | None]) -> None:  # type: ignore[override]
        """Insert what the tasks staged."""
        self._sink.commit(self._writer, 0, messages)

    def abort(self, messages: Sequence[Staged | None]) -> None:  # type: ignore[override]
        """Drop the stage."""
        self._sink.abort(messages)


class TableStreamWriter(StreamSink):  # type: ignore[misc]
    """Writes each epoch of a stream into a table, exactly once."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._sink = Sink(options, schema)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        """Stage the rows of one task of an epoch."""
        return self._sink.stage(*identity(), iterator)

    def commit(self, messages: Sequence[Staged | None], batchId: int) -> None:  # noqa: N803
        """Insert the rows of an epoch, unless that was done before."""
        writer = next((message.writer for message in messages if message is not None), None)
        if writer is not None:
            self._sink.commit(writer, batchId, messages)

    def abort(self, messages: Sequence[Staged | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Drop the stage."""
        self._sink.abort(messages)


class Sink:
    """A table as the sink of a data frame with this schema; raises what check_target() raises."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        with _connected(options) as connection:
            self._target = find_target(connection, options, schema)
            self._prepare(connection)

    def stage(self, writer: str, epoch: int, batches: Iterator[pyarrow.RecordBatch]) -> Staged:
        """Copy the rows of one attempt of a task into the stage, under a mark of its own."""
        from spanmq_spark import adbc

        digest = hashlib.sha256(f"{writer}/{self._options.table}".encode()).hexdigest()[:16]
        name = f"s_{int(time.time()) // DAY_SECONDS}_{digest}_{epoch}"
        mark, count = uuid.uuid4().hex, 0
        with adbc.connected(self._options.dsn, pooler=True) as connection:
            for chunk in chunks(batches, CHUNK):
                if not count:
                    self._make_stage(name)
                self._copy(connection, name, chunk, mark)
                count += chunk.num_rows
        return Staged(writer, name, mark, count)

    def commit(self, writer: str, epoch: int, messages: Sequence[Staged | None]) -> None:
        """Note the epoch and insert its rows, in one transaction; nothing, if that was done before."""
        known = [message for message in messages if message is not None]
        count = sum(message.count for message in known)
        name = f"{writer}/{self._target.schema}.{self._target.name}"
        stages = sorted({message.stage for message in known if message.count})
        with _connected(self._options) as connection, connection.transaction():
            connection.execute("set transaction isolation level read committed")
            # Whoever is told of it relies on it, whatever the role's settings are.
            connection.execute("set local synchronous_commit = on")
            is_new = self._note(connection, name, epoch, count)
            for stage in stages if is_new else ():
                marks = [message.mark for message in known if message.stage == stage and message.count]
                expected = sum(message.count for message in known if message.stage == stage)
                self._insert(connection, stage, marks, expected)
        with suppress(SpanmqError), _connected(self._options) as connection:
            self._drop_stages(connection, stages)
            self._sweep(connection, [message.stage for message in known])

    def abort(self, messages: Sequence[Staged | None]) -> None:
        """Drop the stages; if the server cannot be reached, another commit does."""
        stages = sorted({message.stage for message in messages if message is not None and message.count})
        with suppress(SpanmqError), _connected(self._options) as connection:
            self._drop_stages(connection, stages)

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Create the schema and the ledger, unless they exist."""
        schema = self._options.schema
        [existing] = connection.execute("select to_regclass(%s)", [f'"{schema}".ledger']).fetchone() or (
            None,
        )
        if existing is not None:
            return
        ledger = (
            "create table if not exists {0}.ledger (writer text, epoch bigint, n bigint not null,"
            " written_at timestamptz not null default now(), primary key (writer, epoch))"
        )
        [existing] = connection.execute("select to_regnamespace(%s)", [f'"{schema}"']).fetchone() or (None,)
        for statement in (*(["create schema if not exists {0}"] if existing is None else []), ledger):
            try:
                connection.execute(sql.SQL(statement).format(sql.Identifier(schema)))
            except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable):
                # Another writer was quicker.
                continue
            except psycopg.errors.InsufficientPrivilege as error:
                raise MissingPrivilegeError(
                    f"the role {connection.info.user} can't create the ledger in the schema {schema}",
                    hint=f"As the owner of the database: create schema {schema} authorization {connection.info.user}."
                    " The option stageSchema names another one.",
                ) from error

    def _make_stage(self, name: str) -> None:
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column.stage_type))
            for column in self._target.columns
        )
        statement = sql.SQL(
            "create unlogged table if not exists {} ({}, {} text) with (autovacuum_enabled = off)"
        )
        # Tasks may create it at the same time.
        taken = suppress(psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable)
        with _connected(self._options) as connection, taken:
            connection.execute(statement.format(self._staged(name), columns, sql.Identifier(MARK)))

    def _copy(self, connection: Connection, stage: str, chunk: pyarrow.Table, mark: str) -> None:
        from spanmq_spark.adbc import StatementError

        table = chunk.append_column(MARK, pyarrow.repeat(mark, chunk.num_rows))
        try:
            connection.append(self._options.schema, stage, table)
        except StatementError as error:
            raise PipelineError(
                f"staging {chunk.num_rows} rows for the table {self._options.table}: {error}"
            ) from error

    def _note(self, connection: psycopg.Connection[Any], writer: str, epoch: int, count: int) -> bool:
        """Note an epoch; return False if it was before. Raises PositionUnknownError if one is missing before it."""
        ledger = sql.Identifier(self._options.schema, "ledger")
        query = sql.SQL("select epoch, n from {} where writer = %s order by epoch desc limit 1").format(
            ledger
        )
        insert = sql.SQL(
            "insert into {} (writer, epoch, n) values (%s, %s, %s) on conflict do nothing"
        ).format(ledger)
        # Another driver, which does the same, is waited for.
        is_new = connection.execute(insert, [writer, epoch, count]).rowcount == 1
        older = sql.SQL(
            "select epoch, n from {} where writer = %s and epoch <> %s order by epoch desc limit 1"
        )
        newest, _ = connection.execute(older.format(ledger), [writer, epoch]).fetchone() or (None, 0)
        if newest is not None and newest > epoch:
            raise self._refused(
                epoch,
                f"it has epoch {newest} of the stream",
                "The checkpoint was set back to an earlier time",
            )
        if is_new and epoch and newest != epoch - 1:
            last = "no epoch" if newest is None else f"epoch {newest} as the newest"
            raise self._refused(
                epoch, f"it has {last} of the stream", "This database was restored to an earlier time"
            )
        if not is_new and self._options.fail_on_data_loss:
            [_, n] = connection.execute(query, [writer]).fetchone() or (epoch, count)
            if n != count:
                raise self._refused(
                    epoch,
                    f"it has that epoch with {n} rows, not {count}",
                    "The checkpoint was set back to an earlier time, or the query gives other rows each time (then"
                    " failOnDataLoss=false keeps the first ones)",
                )
        connection.execute(
            sql.SQL("delete from {} where writer = %s and epoch <= %s").format(ledger),
            [writer, epoch - EPOCHS],
        )
        return is_new

    def _refused(self, epoch: int, what: str, why: str) -> PositionUnknownError:
        return PositionUnknownError(
            f"the table {self._options.table} takes no epoch {epoch}: {what}",
            hint=f"{why}: see the guide, Tables of PostgreSQL.",
        )

    def _insert(
        self, connection: psycopg.Connection[Any], stage: str, marks: list[str], expected: int
    ) -> None:
        """Insert the staged rows of these marks, or update those of the same key."""
        target = self._target
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in target.columns)
        values = sql.SQL(", ").join(
            sql.SQL("{}{}").format(sql.Identifier(column.name), sql.SQL(column.cast))
            for column in target.columns
        )
        staged = sql.SQL("from {} where {} = any (%s)").format(self._staged(stage), sql.Identifier(MARK))
        # The rows that a crash of the server has taken: what it finds is all that there will be.
        [count] = connection.execute(sql.SQL("select count(*) {}").format(staged), [marks]).fetchone() or (0,)
        if count != expected:
            raise PipelineError(
                f"of {expected} rows for the table {self._options.table} {count} are staged",
                hint="A crash of the server empties unlogged tables. Nothing was written: run it again.",
            )
        statement = sql.SQL("insert into {} ({}) select {} {}").format(target.relation, names, values, staged)
        connection.execute(statement + self._on_conflict(), [marks])

    def _on_conflict(self) -> sql.Composable:
        target = self._target
        if not target.key:
            return sql.SQL("")
        key = sql.SQL(", ").join(map(sql.Identifier, target.key))
        others = [sql.Identifier(column.name) for column in target.columns if column.name not in target.key]
        if not others:
            return sql.SQL(" on conflict ({}) do nothing").format(key)
        values = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in others)
        return sql.SQL(" on conflict ({}) do update set {}").format(key, values)

    def _drop_stages(self, connection: psycopg.Connection[Any], stages: Sequence[str]) -> None:
        for stage in stages:
            with suppress(psycopg.errors.LockNotAvailable), connection.transaction():
                # A late task may still write into it: a later commit drops it.
                connection.execute("set local lock_timeout = '2s'")
                connection.execute(sql.SQL("drop table if exists {}").format(self._staged(stage)))

    def _sweep(self, connection: psycopg.Connection[Any], stages: Sequence[str]) -> None:
        """Drop stages that a killed driver or a late task left: of earlier epochs, or two days old."""
        today = int(time.time()) // DAY_SECONDS
        ours = {tuple(stage.rsplit("_", 1)) for stage in stages}
        tables = connection.execute(
            "select relname from pg_catalog.pg_class where relnamespace = to_regnamespace(%s) and relkind = 'r'"
            " and relname ~ '^s_[0-9]+_[0-9a-f]{16}_[0-9]+$' and pg_has_role(relowner, 'usage')",
            [f'"{self._options.schema}"'],
        ).fetchall()
        for (name,) in tables:
            family, epoch = name.rsplit("_", 1)
            is_earlier = any(family == one and int(epoch) < int(newest) for one, newest in ours)
            if is_earlier or int(name.split("_")[1]) < today - 1:
                self._drop_stages(connection, [name])

    def _staged(self, name: str) -> sql.Identifier:
        return sql.Identifier(self._options.schema, name)


@contextmanager
def _connected(options: TableOptions) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection for a block, whose errors are spanmq's; nothing of it outlives a transaction."""
    with (
        connect(options.dsn, application_name="spanmq sink", pooler=True) as connection,
        typed_errors(Client(connection=connection)),
    ):
        yield connection


def table_epochs(dsn: str, table: str, query: str, schema: str = SCHEMA) -> list[int]:
    """Return the epochs of a stream that the ledger has for a table, in order."""
    statement = sql.SQL(
        "select l.epoch from {} l join pg_catalog.pg_class c on c.oid = to_regclass(%s)"
        " join pg_catalog.pg_namespace n on n.oid = c.relnamespace"
        " where l.writer = concat(%s::text, '/', n.nspname, '.', c.relname) order by 1"
    ).format(sql.Identifier(schema, "ledger"))
    with _connected(TableOptions(dsn=dsn, table=table)) as connection:
        [existing] = connection.execute("select to_regclass(%s)", [f'"{schema}".ledger']).fetchone() or (
            None,
        )
        if existing is None:
            return []
        return [n for (n,) in connection.execute(statement, [table, f"{STREAM}{query}"]).fetchall()]


def find_target(connection: psycopg.Connection[Any], options: TableOptions, schema: StructType) -> Target:
    """Return the table that the options name, for a data frame of this schema.

    Raises InvalidArgumentError for a table or a column that does not exist, or whose type does not hold the column's,
    and MissingPrivilegeError.
    """
    try:
        relation = connection.execute(
            "select n.nspname, c.relname, c.oid, has_any_column_privilege(c.oid, 'insert') as may_insert,"
            " has_any_column_privilege(c.oid, 'update') as may_update"
            " from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace"
            " where c.oid = to_regclass(%s) and c.relkind in ('r', 'p', 'v', 'f')",
            [options.table],
        ).fetchone()
    except (psycopg.errors.SyntaxError, psycopg.errors.InvalidName):
        relation = None
    if relation is None:
        raise InvalidArgumentError(
            f"no table has the name {options.table!r}",
            hint="Such as public.orders; quote names that need it.",
        )
    namespace, name, oid, may_insert, may_update = relation
    if not may_insert or (options.mode == "upsert" and not may_update):
        verb = "update" if may_insert else "insert into"
        raise MissingPrivilegeError(
            f"the role {connection.info.user} may not {verb} the table {options.table}"
        )
    columns = connection.execute(
        "select a.attname, coalesce(b.typname, t.typname), coalesce(b.typtype, t.typtype),"
        " format_type(a.atttypid, null), a.atttypmod, a.attnotnull and not a.atthasdef and a.attidentity = '',"
        " a.attgenerated <> '' or a.attidentity = 'a'"
        " from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid"
        " left join pg_catalog.pg_type b on b.oid = nullif(t.typbasetype, 0)"
        " where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum",
        [oid],
    ).fetchall()
    named = {column[0]: column for column in columns}
    written = []
    for field in schema:
        if field.name not in named:
            hint = hint_of(field.name, named, f"It has {', '.join(named)}.")
            raise InvalidArgumentError(f"the table {options.table} has no column {field.name!r}", hint=hint)
        _, kind, form, full, modifier, _, is_generated = named[field.name]
        if is_generated:
            raise InvalidArgumentError(f"the column {field.name} of the table {options.table} is generated")
        written.append(_column(options.table, field, kind, form, full, modifier))
    for column, *_, is_needed, _ in columns:
        if is_needed and column not in {chosen.name for chosen in written}:
            raise InvalidArgumentError(
                f"the data frame lacks the column {column}, which the table {options.table} needs",
                hint="It is not null, and has no default.",
            )
    key = (
        _key(connection, options, oid, {chosen.name for chosen in written})
        if options.mode == "upsert"
        else ()
    )
    return Target(namespace, name, tuple(written), key)


def _column(table: str, field: Any, kind: str, form: str, full: str, modifier: int) -> TargetColumn:
    """Return how a column is written; raises InvalidArgumentError if its values may not fit."""
    name = "decimal" if isinstance(field.dataType, DecimalType) else field.dataType.simpleString()
    stage_type, allowed = KINDS.get(name, ("", frozenset()))
    fits = kind in allowed or (name == "string" and form == "e")
    why = f"it is {field.dataType.simpleString()}, the table's is {full}"
    if fits and name == "decimal" and modifier >= 0 and field.dataType.scale > (modifier - 4) & 0x7FF:
        fits, why = False, f"{why} with {(modifier - 4) & 0x7FF} decimals"
    if not fits:
        hint = "Cast it in Spark, or write it as text: to_json(…)." if not stage_type else "Cast it in Spark."
        raise InvalidArgumentError(f"the column {field.name} can't be written into {table}: {why}", hint=hint)
    # Other types take a text as it is: one that is too long for varchar(3) is an error, as it is not by a cast.
    cast = f"::{full}" if name == "string" and kind not in TEXTS else ""
    return TargetColumn(field.name, stage_type, cast)


def _key(
    connection: psycopg.Connection[Any], options: TableOptions, oid: int, written: set[str]
) -> tuple[str, ...]:
    """Return the columns of an upsert's key: the option's, which need a unique index, or the primary key's."""
    indexes = connection.execute(
        "select i.indisprimary, array(select a.attname::text"
        " from unnest(i.indkey::int2[]) with ordinality k (number, place)"
        " join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number order by k.place)"
        " from pg_catalog.pg_index i where i.indrelid = %s and i.indisunique and i.indisvalid and i.indpred is null"
        " and i.indexprs is null order by i.indisprimary desc",
        [oid],
    ).fetchall()
    keys = [tuple(names) for is_primary, names in indexes if is_primary or options.key]
    key = options.key or next(iter(keys), ())
    if not key or {*key} not in [{*names} for names in keys]:
        raise InvalidArgumentError(
            f"the table {options.table} has no unique index of {', '.join(key)}"
            if key
            else f"the table {options.table} has no primary key",
            hint="An upsert needs one; the option key names its columns.",
        )
    if missing := [name for name in key if name not in written]:
        raise InvalidArgumentError(f"the data frame lacks the column {missing[0]} of the key")
    return key
