"""Streams and data frames into any table of PostgreSQL: each epoch once, whatever is killed, or nothing."""

import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from spark.tests.conftest import new_role
from spark.tests.protocol import SEAMS, Source, Stream, save, sink_to
from spark.tests.restored import copied
from spark.tests.test_goes_back import Killed, killed

from spanmq.client import Client
from spanmq.errors import (
    InvalidArgumentError,
    MissingPrivilegeError,
    PipelineError,
    PositionUnknownError,
    SpanmqError,
)
from spanmq_spark.jobs.repairs import restored_table

KINDS = {
    "long": pyarrow.int64(),
    "int": pyarrow.int32(),
    "double": pyarrow.float64(),
    "string": pyarrow.string(),
    "decimal(10,3)": pyarrow.decimal128(10, 3),
    "timestamp": pyarrow.timestamp("us", "UTC"),
    "struct<a:int>": pyarrow.struct([("a", pyarrow.int32())]),
    "array<int>": pyarrow.list_(pyarrow.int32()),
}


def of(columns: str) -> StructType:
    """Return the schema of these columns."""
    named = (each.split(" ") for each in columns.split(", "))
    return from_arrow_schema(pyarrow.schema([(name, KINDS[kind]) for name, kind in named]))


Database = psycopg.Connection[Any]
# Without spanmq.
TABLE = "create table public.orders (id bigint primary key, body text)"


@pytest.fixture
def target(empty_database: str) -> Iterator[Database]:
    """A database of a user's own, without spanmq."""
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection


def sink_source(dsn: str, **options: str) -> Source:
    return Source({"dsn": dsn, "table": "public.orders", **options})


def sink(dsn: str, **options: str) -> Any:
    return sink_source(dsn, **options).source


def batch(*ids: int, body: str = "x") -> list[pyarrow.RecordBatch]:
    kinds = pyarrow.schema([("id", pyarrow.int64()), ("body", pyarrow.string())])
    rows = [{"id": n, "body": f"{body} {n}"} for n in ids]
    return [pyarrow.RecordBatch.from_pylist(rows, schema=kinds)] if rows else []


SCHEMA = from_arrow_schema(batch(1)[0].schema)


def rows_in(connection: Database, columns: str = "id") -> list[Any]:
    return connection.execute(f"select {columns} from public.orders order by 1".encode()).fetchall()


def ids_in(connection: Database) -> list[int]:
    return [n for (n,) in rows_in(connection)]


def stages(connection: Database) -> list[str]:
    query = (
        "select relname from pg_class where relnamespace = 'spanmq_sink'::regnamespace and relname ~ '^s_'"
    )
    return [name for (name,) in connection.execute(query).fetchall()]


def test_each_epoch_is_inserted_once_whatever_its_replay_has_for_tasks(
    target: Database, empty_database: str
) -> None:
    write = sink_to(sink(empty_database), of=SCHEMA)
    write("query", 0, [batch(1, 2), batch(), batch(3)])
    write("query", 0, [batch(1), batch(2, 3)])
    write("query", 1, [])
    write("query", 2, [batch(4)])
    assert ids_in(target) == [1, 2, 3, 4]
    assert stages(target) == []
    # Another stream has epochs of its own.
    write("other", 0, [batch(5)])
    assert ids_in(target) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "step", ["stage", "_make_stage", "_copy", "_note", "_insert", "_drop_stages", "_sweep"]
)
@pytest.mark.parametrize("is_after", [False, True])
def test_epoch_that_is_killed_at_any_step_counts_once(
    target: Database, empty_database: str, monkeypatch: pytest.MonkeyPatch, step: str, *, is_after: bool
) -> None:
    from spanmq_spark.table_sink import Sink

    write = sink_to(sink(empty_database), of=SCHEMA)
    write("query", 0, [batch(1)])
    act = getattr(Sink, step)

    def killing(*given: Any) -> None:
        if is_after:
            act(*given)
        killed()

    with monkeypatch.context() as patch:
        patch.setattr(Sink, step, killing)
        with pytest.raises(Killed):
            write("query", 1, [batch(2, 3), batch(4)])
    assert ids_in(target) in ([1], [1, 2, 3, 4])
    write("query", 1, [batch(2), batch(3, 4)])
    write("query", 2, [batch(5)])
    assert ids_in(target) == [1, 2, 3, 4, 5]
    assert stages(target) == []


def test_attempts_that_the_driver_does_not_name_are_never_read(target: Database, empty_database: str) -> None:
    save(
        sink_source(empty_database),
        {"id": [1, 2], "body": ["a", "b"]},
        {"id": [3], "body": ["c"]},
        attempts=3,
    )
    assert ids_in(target) == [1, 2, 3]


def test_batch_with_a_writer_id_is_written_once_and_one_that_fails_not_at_all(
    target: Database, empty_database: str
) -> None:
    for ids in ([1, 2], [3, 4]):
        save(sink_source(empty_database), {"id": ids, "body": ["a", "b"]})
    for _ in range(2):
        save(sink_source(empty_database, writerId="load"), {"id": [5], "body": ["a"]})
    with pytest.raises(SpanmqError, match="duplicate key"):
        save(sink_source(empty_database), {"id": [6, 5], "body": ["a", "b"]})
    assert ids_in(target) == [1, 2, 3, 4, 5]
    assert stages(target) == []


def test_upsert_updates_by_the_primary_key_or_by_the_option(target: Database, empty_database: str) -> None:
    target.execute("alter table orders add column at timestamptz default now(), add unique (body)")
    write = sink_to(sink(empty_database, mode="upsert"), of=SCHEMA)
    write("query", 0, [batch(1, 2, body="old")])
    write("query", 1, [batch(2, 3, body="new")])
    assert rows_in(target, "id, body") == [(1, "old 1"), (2, "new 2"), (3, "new 3")]
    save(sink_source(empty_database, mode="upsert", key="body"), {"id": [9], "body": ["new 3"]})
    assert rows_in(target, "id, body")[-1] == (9, "new 3")
    target.execute("create table pairs (a bigint, b text, primary key (b, a))")
    for _ in range(2):
        save(
            Source({"dsn": empty_database, "table": "pairs", "mode": "upsert"}),
            {"a": [1, 2], "b": ["x", "x"]},
        )
    assert target.execute("select a, b from pairs order by 1").fetchall() == [(1, "x"), (2, "x")]


def test_triggers_foreign_keys_and_policies_of_the_table_apply(target: Database, empty_database: str) -> None:
    with new_role(empty_database) as role:
        target.execute(f"create schema stage authorization {role}".encode())
        dsn = make_conninfo(empty_database, user=role)
        with pytest.raises(
            MissingPrivilegeError, match=f"{role} may not insert into the table public.orders"
        ):
            sink(dsn).streamWriter(SCHEMA, False)
        target.execute(f"grant insert on orders to {role}".encode())
        with pytest.raises(
            MissingPrivilegeError, match=r"can't create the ledger .*\nhint: .* create schema spanmq_sink"
        ):
            sink(dsn).streamWriter(SCHEMA, False)
        with pytest.raises(MissingPrivilegeError, match="may not update the table"):
            sink(dsn, mode="upsert", stageSchema="stage").streamWriter(SCHEMA, False)
        target.execute(
            "create table others (id bigint primary key); insert into others select generate_series(1, 5);"
            "alter table orders add foreign key (id) references others;"
            "alter table orders enable row level security;"
            "create policy few on orders for insert with check (id < 5);"
            "create function loud() returns trigger language plpgsql as"
            " $$begin new.body := upper(new.body); return new; end$$;"
            "create trigger loud before insert on orders for each row execute function loud()"
        )
        write = sink_to(sink(dsn, stageSchema="stage"), of=SCHEMA)
        write("query", 0, [batch(1, 2)])
        for ids, message in (((3, 9), "policy|foreign key"), ((3, 5), "row-level security policy")):
            with pytest.raises(SpanmqError, match=message):
                write("query", 1, [batch(*ids)])
        write("query", 1, [batch(4)])
        assert rows_in(target, "id, body") == [(1, "X 1"), (2, "X 2"), (4, "X 4")]


def test_target_that_went_back_and_checkpoint_that_went_back_are_refused(
    target: Database, empty_database: str, spanmq_server: str, tmp_path: Path
) -> None:
    write = sink_to(sink(empty_database), of=SCHEMA)
    for epoch in range(3):
        write("query", epoch, [batch(epoch)])
    target.close()
    went_back = copied(empty_database, spanmq_server)
    for epoch in range(3, 6):
        write("query", epoch, [batch(epoch)] if epoch != 4 else [])
    # Of the epoch before, and with other rows.
    with pytest.raises(
        PositionUnknownError, match=r"takes no epoch 4: it has epoch 5 .*\nhint: The checkpoint"
    ):
        write("query", 4, [])
    with pytest.raises(PositionUnknownError, match="it has that epoch with 1 rows, not 2"):
        write("query", 5, [batch(5, 6)])
    sink_to(sink(empty_database, failOnDataLoss="false"), of=SCHEMA)("query", 5, [batch(5, 6)])
    went_back()
    for epoch in (4, 5, 6):
        with pytest.raises(
            PositionUnknownError, match=rf"takes no epoch {epoch}: it has epoch 2 as the newest"
        ):
            write("query", epoch, [batch(9)])
    with pytest.raises(PositionUnknownError, match="it has no epoch of the stream"):
        write("another", 1, [batch(9)])
    write("query", 3, [batch(3)])
    logs = {"offsets": range(7), "commits": range(6)}
    for log, numbers in logs.items():
        (tmp_path / log).mkdir()
        for number in numbers:
            (tmp_path / log / str(number)).touch()
    (tmp_path / "metadata").write_text('{"id": "query"}')
    for is_dry_run in (True, False):
        report = restored_table(empty_database, "orders", tmp_path, dry_run=is_dry_run)
        assert report.epochs == [4, 5]
    assert sorted(path.name for path in tmp_path.glob("*/*")) == [*"00112233", "4"]
    assert restored_table(empty_database, "orders", tmp_path).epochs == []
    with psycopg.connect(empty_database) as connection:
        assert ids_in(connection) == [0, 1, 2, 3]


def test_stage_that_a_crash_has_emptied_writes_nothing(
    target: Database, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spanmq_spark.table_sink import Sink

    stage = Sink.stage

    def emptied(self: Sink, *given: Any) -> Any:
        done = stage(self, *given)
        target.execute(f"truncate spanmq_sink.{done.stage}".encode())
        return done

    write = sink_to(sink(empty_database), of=SCHEMA)
    with monkeypatch.context() as patch:
        patch.setattr(Sink, "stage", emptied)
        with pytest.raises(PipelineError, match=r"of 2 rows for the table public\.orders 0 are staged"):
            write("query", 0, [batch(1, 2)])
    write("query", 0, [batch(1, 2)])
    assert ids_in(target) == [1, 2]


TYPES: Sequence[tuple[str, Any, str, Any]] = [
    ("boolean", pyarrow.bool_(), "bool", True),
    ("tinyint", pyarrow.int8(), "int", 7),
    ("smallint", pyarrow.int16(), "smallint", 7),
    ("int", pyarrow.int32(), "numeric(9, 2)", 7),
    ("bigint", pyarrow.int64(), "int", 7),
    ("float", pyarrow.float32(), "float8", 0.5),
    ("double", pyarrow.float64(), "double precision", 0.1),
    ("decimal", pyarrow.decimal128(38, 10), "numeric", Decimal("1234567890123456789.0123456789")),
    ("string", pyarrow.string(), "varchar(3)", "äöü"),
    ("json", pyarrow.string(), "jsonb", '{"a": 1}'),
    ("enum", pyarrow.string(), "mood", "sad"),
    ("uuid", pyarrow.string(), "uuid", "00000000-0000-0000-0000-00000000000a"),
    ("binary", pyarrow.binary(), "bytea", b"\0\xff"),
    ("date", pyarrow.date32(), "date", date(2026, 1, 31)),
    (
        "timestamp",
        pyarrow.timestamp("us", "Europe/Berlin"),
        "timestamptz",
        datetime(2026, 1, 31, 12, tzinfo=UTC),
    ),
    ("local", pyarrow.timestamp("us"), "timestamp", datetime(2026, 1, 31, 12)),
]


def test_values_of_each_type_arrive_as_they_are(target: Database, empty_database: str) -> None:
    target.execute("create type mood as enum ('sad', 'happy')")
    columns = ", ".join(f'"{name}" {kind}' for name, _, kind, _ in TYPES)
    target.execute(f"create table kinds ({columns})".encode())
    arrays = {name: pyarrow.array([value, None], kind) for name, kind, _, value in TYPES}
    save(Source({"dsn": empty_database, "table": "kinds"}), arrays)
    values, nulls = target.execute("select * from kinds").fetchall()
    expected = [{"a": 1} if name == "json" else value for name, _, _, value in TYPES]
    assert [str(each) if isinstance(each, uuid.UUID) else each for each in values] == expected
    assert set(nulls) == {None}


@pytest.mark.parametrize(
    ("spark", "postgres", "message"),
    [
        ("double", "int", "it is double, the table's is integer"),
        ("double", "numeric", "it is double"),
        ("decimal(10,3)", "numeric(10,2)", "it is decimal\\(10,3\\), the table's is numeric with 2 decimals"),
        ("string", "int", "it is string"),
        ("string", "timestamptz", "it is string"),
        ("timestamp", "timestamp", "it is timestamp, the table's is timestamp without"),
        ("struct<a:int>", "jsonb", r"it is struct<a:int>, the table's is jsonb\nhint: .*to_json"),
        ("array<int>", "int[]", "it is array<int>"),
    ],
)
def test_type_that_does_not_fit_is_refused_before_the_first_row_by_its_column(
    target: Database, empty_database: str, spark: str, postgres: str, message: str
) -> None:
    target.execute(f"create table other (id bigint, v {postgres})".encode())
    schema = of(f"id long, v {spark}")
    with pytest.raises(InvalidArgumentError, match=f"the column v can't be written into other: {message}"):
        Source({"dsn": empty_database, "table": "other"}).source.streamWriter(schema, False)


def test_columns_and_options_that_do_not_fit_are_refused_by_name(
    target: Database, empty_database: str
) -> None:
    def refused(message: str, schema: str = "id long, body string", **options: str) -> None:
        for write in ("writer", "streamWriter"):
            source = sink(empty_database, **options)
            with pytest.raises(InvalidArgumentError, match=message):
                getattr(source, write)(of(schema), False)

    target.execute(
        "create table strict (id bigint not null, made int generated always as (1) stored,"
        " v int not null default 1 unique)"
    )
    refused("no table has the name 'public.none'", table="public.none")
    refused("no table has the name 'a b c'", table="a b c")
    refused("has no column 'boddy'\nhint: Did you mean body", "id long, boddy string")
    refused("lacks the column id, which the table strict needs", "v int", table="strict")
    refused("the column made of the table strict is generated", "id long, made int", table="strict")
    refused("has no primary key", "id long", table="strict", mode="upsert")
    refused("has no unique index of body", mode="upsert", key="body")
    refused("lacks the column v of the key", "id long", table="strict", mode="upsert", key="v")
    refused("option mode can't be 'overwrite'", mode="overwrite")
    refused("the option key is for the mode upsert", key="id")
    refused("has no option 'tabel'", tabel="x")
    with pytest.raises(InvalidArgumentError, match="a table can't be overwritten"):
        sink(empty_database).writer(SCHEMA, True)


def test_value_that_is_too_long_is_an_error_and_not_cut(target: Database, empty_database: str) -> None:
    target.execute("create table short (v varchar(3), n smallint)")
    for text, number in (("1234", 1), ("1", 1 << 20)):
        with pytest.raises(SpanmqError, match=r"too long|out of range"):
            save(Source({"dsn": empty_database, "table": "short"}), {"v": [text], "n": [number]})
    assert target.execute("select count(*) from short").fetchone() == (0,)


def drain(client: Client, source: str, target: Database, dsn: str, checkpoint: Path, kill: str) -> None:
    """Send messages out of a queue into a table, with a driver that is killed now and then: each is there once."""
    target.execute("create table bodies (message_id bigint, body jsonb)")
    write = sink_to(Source({"dsn": dsn, "table": "bodies"}).source, of=of("message_id long, body string"))
    stream = Stream({"dsn": source, "queue": "orders", "columns": "message_id, body"}, checkpoint, write)
    for first in range(0, 40, 10):
        client.send_batch("orders", range(first, first + 10))
        stream.run(kill=kill if first % 20 else "")
    stream.run()
    stream.stop()
    found = target.execute("select body::int from bodies order by 1").fetchall()
    assert [n for (n,) in found] == list(range(40))


@pytest.mark.parametrize("kill", SEAMS)
def test_stream_out_of_a_queue_into_a_table_loses_and_doubles_nothing(
    client: Client, database: str, target: Database, empty_database: str, tmp_path: Path, kill: str
) -> None:
    drain(client, database, target, empty_database, tmp_path / "checkpoint", kill)
