"""Lakes of each format where the database, the lake or the catalogue goes back in time: refused and repaired."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet
import pytest
from spark.tests.process.lakes import compacted
from spark.tests.restored import copied
from spark.tests.without_spark import Session

from spanmq.client import Client
from spanmq.errors import PipelineError, PositionUnknownError
from spanmq_spark.jobs import export as jobs
from spanmq_spark.jobs import iceberg
from spanmq_spark.jobs.export import ExportReport, export
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.lake_format import known_table
from spanmq_spark.jobs.manifests import repair
from spanmq_spark.jobs.manifests.store import read_drafts
from spanmq_spark.jobs.repairs import RestoredTable, restored

# A lake whose catalogue goes back with the database is in test_ducklake.py.
FORMATS = ["parquet", "delta", "iceberg"]
SESSION = cast(Any, Session())
Bodies = Counter[Any]


class Killed(BaseException):
    """The process ends here."""


def killed(*_: object, **__: object) -> None:
    raise Killed


def archived(dsn: str, word: str, quantity: int) -> None:
    with Client(dsn) as client:
        client.archive("orders", client.send_batch("orders", [f"{word} {n}" for n in range(quantity)]))


def run(dsn: str, lake: Path, kind: str) -> ExportReport:
    return export(SESSION, dsn, "orders", lake, format=kind)


def retained(dsn: str) -> None:
    """Delete from the archive what retention may."""
    with Client(dsn) as client:
        client.queues.set_policy("orders", archive_retention="1 microsecond")
        while client.admin.maintain():
            pass
        client.queues.set_policy("orders", archive_retention=None)


def cut_off(dsn: str, lake: Path, kind: str) -> None:
    """Begin an export of late rows, whose process ends before the commit."""
    archived(dsn, "late", 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "verify", killed)
        with pytest.raises(Killed):
            run(dsn, lake, kind)


def words(bodies: list[str]) -> Bodies:
    return Counter(json.loads(body).split()[0] for body in bodies)


def rows_of(lake: Path, dsn: str) -> Bodies:
    """Return the first words of the bodies that the table of a lake has."""
    place = lake_at(lake)
    names = known_table(dsn, place, "archive").read("orders")
    return words([body for name in names for body in column(lake / name)])


def lost_of(lake: Path) -> Bodies:
    """Return the first words of the bodies that a repair has kept: in a DuckLake they are a table."""
    folders = (lake / "lost", lake / "lost_archive")
    return words([body for each in folders for path in each.rglob("*.parquet") for body in column(path)])


def column(path: Path) -> list[str]:
    return list(pyarrow.parquet.ParquetFile(path).read(["body"])["body"].to_pylist())


def repaired(dsn: str, lake: Path) -> RestoredTable:
    [seen] = restored(dsn, "orders", lake=lake, dry_run=True).tables
    [table] = restored(dsn, "orders", lake=lake).tables
    counts = ("only_in_lake", "only_in_database", "gone", "gone_ids", "exports")
    assert {name: getattr(table, name) for name in counts} == {name: getattr(seen, name) for name in counts}
    assert restored(dsn, "orders", lake=lake).tables == []
    return table


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("cut", ["verify", "_write", "write_manifest"])
def test_rows_that_only_the_lake_has_are_kept_whatever_was_cut_off_before(
    dsn: str, spanmq_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, cut: str
) -> None:
    archived(dsn, "before", 20)
    assert run(dsn, tmp_path, kind).exported == 20
    went_back = copied(dsn, spanmq_server)
    archived(dsn, "lost", 10)
    run(dsn, tmp_path, kind)
    cut_off(dsn, tmp_path, kind)
    went_back()
    archived(dsn, "after", 30)
    with pytest.raises(PositionUnknownError):
        run(dsn, tmp_path, kind)
    if cut != "verify":
        with monkeypatch.context() as patch:
            of = "run" if cut == "write_manifest" else "repair"
            patch.setattr(f"spanmq_spark.jobs.manifests.{of}.{cut}", killed)
            with pytest.raises(Killed):
                restored(dsn, "orders", lake=tmp_path)
    if cut != "write_manifest":
        table = repaired(dsn, tmp_path)
        assert (table.only_in_lake, table.only_in_database, table.gone) == (10, 30, 0)
    else:
        # The table may have the commit of the repair.
        restored(dsn, "orders", lake=tmp_path)
    assert run(dsn, tmp_path, kind).exported == 30
    assert rows_of(tmp_path, dsn) == {"before": 20, "after": 30}
    assert lost_of(tmp_path) == {"lost": 10}


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_are_kept_of_a_database_that_went_back_to_before_the_first_export(
    dsn: str, spanmq_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    went_back = copied(dsn, spanmq_server)
    archived(dsn, "lost", 3)
    run(dsn, tmp_path, kind)
    cut_off(dsn, tmp_path, kind)
    went_back()
    archived(dsn, "after", 4)
    with pytest.raises(PositionUnknownError):
        run(dsn, tmp_path, kind)
    # The number of the export that was cut off is taken in a new table, if that is of a catalogue in the database.
    monkeypatch.setattr("spanmq_spark.jobs.manifests.repair._write", killed)
    with pytest.raises(Killed):
        restored(dsn, "orders", lake=tmp_path)
    monkeypatch.undo()
    assert repaired(dsn, tmp_path).only_in_lake == 3
    assert run(dsn, tmp_path, kind).exported == 4
    assert (rows_of(tmp_path, dsn), lost_of(tmp_path)) == ({"after": 4}, {"lost": 3})


@pytest.mark.parametrize("kind", FORMATS[1:])
def test_rows_that_an_engine_has_rewritten_are_kept_and_no_others(
    dsn: str, spanmq_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    deltalake = pytest.importorskip("deltalake")
    archived(dsn, "before", 4)
    run(dsn, tmp_path, kind)
    went_back = copied(dsn, spanmq_server)
    archived(dsn, "lost", 3)
    run(dsn, tmp_path, kind)
    if kind == "delta":
        # One file of both exports.
        assert compacted(tmp_path) == (2, 1)
    else:
        # A file in a folder of PyIceberg's own, without one of the rows.
        with iceberg_catalogue(dsn) as catalogue:
            catalogue.load_table((tmp_path.name, "archive")).delete("message_id = 5")
    # A catalogue of another database does not go back.
    stays = Catalogue(kind, dsn, tmp_path).copied()
    went_back()
    stays()
    archived(dsn, "after", 2)
    with pytest.raises(PositionUnknownError):
        run(dsn, tmp_path, kind)
    n = 3 if kind == "delta" else 2
    # Once more, in the middle of the repair.
    write = repair._write

    def meanwhile(lost: Any, manifest: Any) -> RestoredTable:
        done = write(lost, manifest)
        if kind == "delta":
            deltalake.DeltaTable(f"{tmp_path}/archive").delete("message_id = 4")
        else:
            with iceberg_catalogue(dsn) as catalogue:
                catalogue.load_table((tmp_path.name, "archive")).delete("message_id = 6")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(repair, "_write", meanwhile)
        with pytest.raises(PipelineError, match="another program has rewritten files of queue orders"):
            restored(dsn, "orders", lake=tmp_path)
    left = {"before": 3} if kind == "delta" else {"before": 4}
    n -= kind != "delta"
    assert repaired(dsn, tmp_path).only_in_lake == n
    assert lost_of(tmp_path) == {"lost": n}
    assert rows_of(tmp_path, dsn) == left
    assert run(dsn, tmp_path, kind).exported == 2
    assert rows_of(tmp_path, dsn) == {**left, "after": 2}
    if kind == "delta":
        # Readers of older versions have their files.
        table = deltalake.DeltaTable(f"{tmp_path}/archive", version=2)
        assert table.to_pyarrow_table().num_rows == 7


def test_delta_table_is_compacted_while_an_export_writes(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for word in ("one", "two"):
        archived(dsn, word, 3)
        run(dsn, tmp_path, "delta")
    archived(dsn, "three", 3)
    verify = jobs.verify

    def meanwhile(*given: Any) -> None:
        verify(*given)
        assert compacted(tmp_path) == (2, 1)

    monkeypatch.setattr(jobs, "verify", meanwhile)
    assert run(dsn, tmp_path, "delta").exported == 3
    assert rows_of(tmp_path, dsn) == {"one": 3, "two": 3, "three": 3}
    assert run(dsn, tmp_path, "delta").exported == 0


@pytest.mark.parametrize("is_run", [True, False])
def test_iceberg_table_that_was_changed_meanwhile_takes_each_export_once(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_run: bool
) -> None:
    lake = lake_at(tmp_path)
    archived(dsn, "one", 3)
    run(dsn, tmp_path, "iceberg")
    archived(dsn, "two", 3)
    forget = iceberg._forget_snapshots

    def meanwhile(transaction: Any) -> None:
        if is_run:
            # Another run has taken the number of this one, which had lost its lock.
            [draft] = read_drafts(lake, "orders", "archive")
            taking = replace(draft, ids=[], files=[], count=0, token="")
            iceberg.IcebergFormat(dsn, lake, "archive").commit(taking, [])
        elif rows_of(tmp_path, dsn) == {"one": 3}:
            with iceberg_catalogue(dsn) as catalogue:
                catalogue.load_table((tmp_path.name, "archive")).delete("message_id = 1")
        forget(transaction)

    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "_forget_snapshots", meanwhile)
        if is_run:
            with pytest.raises(PipelineError, match="came first"):
                run(dsn, tmp_path, "iceberg")
            assert rows_of(tmp_path, dsn) == {"one": 3}
        else:
            assert run(dsn, tmp_path, "iceberg").exported == 3
    run(dsn, tmp_path, "iceberg")
    assert rows_of(tmp_path, dsn) == {"one": 3 if is_run else 2, "two": 3}


@pytest.mark.parametrize("kind", FORMATS)
def test_lake_that_was_set_back_is_refused_and_what_is_gone_is_named(
    dsn: str, tmp_path: Path, kind: str
) -> None:
    lake, backup = tmp_path / "lake", tmp_path / "backup"
    archived(dsn, "one", 30)
    run(dsn, lake, kind)
    shutil.copytree(lake, backup)
    archived(dsn, "two", 30)
    run(dsn, lake, kind)
    retained(dsn)
    archived(dsn, "two", 4)
    run(dsn, lake, kind)
    shutil.rmtree(lake)
    shutil.copytree(backup, lake)
    archived(dsn, "three", 20)
    for message in ("lacks exports of queue orders that this database has noted", "has been refused since"):
        with pytest.raises(PositionUnknownError, match=message):
            run(dsn, lake, kind)
    retained(dsn)
    table = repaired(dsn, lake)
    assert (table.only_in_lake, table.only_in_database, table.exports) == (0, 24, 0)
    assert (table.gone, table.gone_ids) == (30, "31-60")
    [named] = (lake / "lost").rglob("*.gone.json")
    assert json.loads(named.read_bytes()) == [[31, 60]]
    assert run(dsn, lake, kind).exported == 24
    assert rows_of(lake, dsn) == {"one": 30, "two": 4, "three": 20}
    archived(dsn, "four", 1)
    assert run(dsn, lake, kind).exported == 1


@pytest.mark.parametrize("kind", FORMATS[:2])
def test_lake_that_was_set_back_goes_on_where_its_exports_are_forgotten(
    dsn: str, tmp_path: Path, kind: str
) -> None:
    lake, backup = tmp_path / "lake", tmp_path / "backup"
    archived(dsn, "one", 3)
    run(dsn, lake, kind)
    shutil.copytree(lake, backup)
    archived(dsn, "two", 3)
    run(dsn, lake, kind)
    shutil.rmtree(lake)
    shutil.copytree(backup, lake)
    with pytest.raises(PositionUnknownError) as refused:
        run(dsn, lake, kind)
    assert "forget-export" in str(refused.value.hint)
    with Client(dsn) as client:
        assert client.admin.receivers.forget_export("orders", str(lake))
    assert run(dsn, lake, kind).exported == 3
    assert rows_of(lake, dsn) == {"one": 3, "two": 3}
    # The database knows what the lake has of earlier exports, too.
    retained(dsn)
    with Client(dsn) as client:
        assert client.inspect.archive("orders", 10) == []


@pytest.mark.parametrize("kind", FORMATS[:2])
def test_copy_of_a_lake_that_was_left_behind_is_refused(dsn: str, tmp_path: Path, kind: str) -> None:
    archived(dsn, "one", 3)
    run(dsn, tmp_path / "lake", kind)
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    archived(dsn, "two", 3)
    # It goes on as the first does, from where that was.
    shutil.copytree(tmp_path / "lake", tmp_path / "other")
    assert run(dsn, tmp_path / "other", kind).exported == 3
    run(dsn, tmp_path / "lake", kind)
    retained(dsn)
    with pytest.raises(PositionUnknownError, match="it has 1 of 2, or others"):
        run(dsn, tmp_path / "copy", kind)
    assert repaired(dsn, tmp_path / "copy").gone == 3


@pytest.mark.parametrize("kind", FORMATS[1:])
def test_table_that_lacks_the_last_export_takes_no_other_and_is_made_anew(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    catalogue = Catalogue(kind, dsn, tmp_path)
    archived(dsn, "one", 3)
    run(dsn, tmp_path, kind)
    went_back = catalogue.copied()
    archived(dsn, "two", 3)
    run(dsn, tmp_path, kind)
    went_back()
    archived(dsn, "three", 3)
    with pytest.raises(PositionUnknownError, match="lacks export 2 of queue orders, or has another one"):
        run(dsn, tmp_path, kind)
    table = repaired(dsn, tmp_path)
    assert (table.only_in_lake, table.only_in_database, table.exports) == (0, 3, 0)
    assert run(dsn, tmp_path, kind).exported == 3
    assert rows_of(tmp_path, dsn) == {"one": 3, "two": 3, "three": 3}


@contextmanager
def iceberg_catalogue(dsn: str) -> Iterator[Any]:
    catalogs = pytest.importorskip("pyiceberg.catalog")
    url = dsn.replace("postgresql://", "postgresql+psycopg://", 1)
    with catalogs.load_catalog("spanmq", type="sql", uri=url) as catalogue:
        yield catalogue


class Catalogue:
    """The catalogue of a table: Delta's log in the lake, Iceberg's row in the database, DuckLake's schema there."""

    def __init__(self, kind: str, dsn: str, lake: Path) -> None:
        self.kind, self.dsn, self.lake = kind, dsn, lake

    def copied(self) -> Callable[[], None]:
        """Copy it; return what puts the copy in its place."""
        import psycopg

        if self.kind == "parquet":
            return lambda: None
        if self.kind == "ducklake":
            return copied_schema(self.dsn, f"ducklake_{self.lake.name}")
        if self.kind == "delta":
            log, copy = self.lake / "archive" / "_delta_log", self.lake.with_name(f"{self.lake.name}_log")
            shutil.copytree(log, copy)

            def put() -> None:
                shutil.rmtree(log)
                copy.rename(log)

            return put
        with psycopg.connect(self.dsn) as connection:
            found = connection.execute("select metadata_location, table_name from iceberg_tables").fetchall()

        def update() -> None:
            with psycopg.connect(self.dsn) as connection:
                for place, name in found:
                    connection.execute(
                        "update iceberg_tables set metadata_location = %s where table_name = %s",
                        [place, name],
                    )

        return update


def copied_schema(dsn: str, name: str) -> Callable[[], None]:
    """Copy the rows of a schema's tables; return what puts them back."""
    import psycopg

    query = "select relname from pg_class where relkind = 'r' and relnamespace = %s::regnamespace"
    with psycopg.connect(dsn) as connection:
        tables = [f"{name}.{table}" for (table,) in connection.execute(query, [name]).fetchall()]
        copies = {}
        for table in tables:
            with connection.cursor().copy(f"copy {table} to stdout") as copy:
                copies[table] = b"".join(bytes(part) for part in copy)

    def put() -> None:
        with psycopg.connect(dsn) as connection:
            for table, rows in copies.items():
                connection.execute(f"truncate {table}")
                with connection.cursor().copy(f"copy {table} from stdin") as copy:
                    copy.write(rows)

    return put
