"""The pipeline on Spark against controls: `python -m lab.bench.pipeline`. See docs/internals/performance.md."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import secrets
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow
import pyarrow.parquet
from adbc_driver_postgresql import dbapi
from lab.bench import processor
from lab.bench.memory import Watch
from lab.bench.server import SETTINGS

from spanmq import embedded, schema
from spanmq.client import Client
from spanmq.testing import new_database, with_database
from spanmq_spark.jobs.export import export
from spanmq_spark.options import Options
from spanmq_spark.session import session
from spanmq_spark.writer import write_rows

# Of Debian's libpostgresql-jdbc-java; for the comparison only.
JDBC: Final = Path("/usr/share/java/postgresql.jar")
BODY: Final = "jsonb_build_object('order', id, 'customer', id % 977, 'pad', repeat('x', 228))"
SINGLES: Final = 7
CHUNK: Final = 100_000
FEW: Final = 10_000
# JDBC knows no unix sockets, and this address is nobody else's.
HOST: Final = "127.0.0.2"
PORT: Final = 5432
# A tenth of the messages must need about as much memory as all: no list of them is kept anywhere.
FEWER: Final = 10


@dataclass(frozen=True, slots=True)
class Target:
    """What was reached, and what must be: at most `limit`. None: not measured, or no limit."""

    name: str
    value: float | None
    unit: str
    limit: float | None = None

    @property
    def is_missed(self) -> bool:
        """Return whether it was measured and is too much."""
        return self.value is not None and self.limit is not None and self.value > self.limit

    def line(self) -> str:
        """Write it for people."""
        value = "-" if self.value is None else f"{self.value:.2f}"
        limit = (
            "" if self.limit is None else f"at most {self.limit:g}: {'MISSED' if self.is_missed else 'met'}"
        )
        return f"{self.name:52} {value:>8} {self.unit:17} {limit}".rstrip()


class Bench:
    """The cases. Each leaves in `seconds` and `processor_seconds` what it took, without what it prepared.

    Processor time is that of this process, Spark and the server, if that runs here.
    """

    def __init__(self, spark: Any, dsn: str, rows: int, folder: Path, jdbc: str | None = None) -> None:
        self.spark, self.dsn, self.rows, self.folder, self.url = spark, dsn, rows, folder, jdbc
        self.number = 0
        self.seconds = self.processor_seconds = 0.0
        self.archived = f"archived_{rows}"

    def prepare(self) -> None:
        """Fill an archive."""
        self.folder.mkdir(exist_ok=True)
        self.execute(f"select pgmq.create('{self.archived}')")
        self.execute(
            f"insert into pgmq.a_{self.archived} (msg_id, read_ct, last_read_at, vt, message)"
            f" select id, 1, now(), now(), {BODY} from generate_series(1, {self.rows}) id"
        )
        self.execute(f"vacuum analyze pgmq.a_{self.archived}")

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure what is done within."""
        server = processor.server_of(self.dsn)
        pids = [os.getpid()] + ([] if server is None else [server])
        used, began = processor.seconds_of_all(*pids), time.monotonic()
        yield
        self.seconds = time.monotonic() - began
        self.processor_seconds = processor.seconds_of_all(*pids) - used

    def bodies(self) -> None:
        """Copy the bodies of the archive to Parquet files, which the writing cases read."""
        with self.timed():
            frame = self.read(self.archived, "archive").select("body")
            frame.write.mode("overwrite").parquet(str(self.folder / "bodies"))

    def few_tasks(self) -> None:
        """Copy a million messages of the archive to Parquet by four tasks."""
        self.tasks(4)

    def many_tasks(self) -> None:
        """Copy the same by 32 tasks."""
        self.tasks(32)

    def tasks(self, count: int) -> None:
        """Copy a million messages of the archive to Parquet by so many tasks."""
        with self.timed():
            reader = self.source(self.spark.read, self.archived).option("table", "archive")
            frame = reader.options(endingOffsets=1_000_001, minPartitions=count).load()
            frame.write.mode("overwrite").parquet(str(self.folder / "tasks"))

    def control(self) -> None:
        """Copy the archive to one Parquet file, with ADBC and Arrow alone."""
        with self.timed(), dbapi.connect(self.dsn) as connection, connection.cursor() as cursor:
            cursor.execute(
                f"select '{self.archived}'::text as queue, msg_id, read_ct, enqueued_at, last_read_at,"
                " archived_at, headers->>'x-pgmq-group' as group_key, message::text as body"
                f" from pgmq.a_{self.archived}"
            )
            reader = cursor.fetch_record_batch()
            with pyarrow.parquet.ParquetWriter(self.folder / "control.parquet", reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)

    def archive(self) -> None:
        """Copy the archive to Parquet by the source."""
        with self.timed():
            self.read(self.archived, "archive").write.mode("overwrite").parquet(str(self.folder / "archive"))

    def count(self) -> None:
        """Count the messages of the archive by the source; PySpark tells it not which columns are needed."""
        with self.timed():
            source = self.source(self.spark.read, self.archived).option("table", "archive")
            self.must_count(source.option("columns", "message_id").load())

    def jdbc_count(self) -> None:
        """Count them by Spark's own JDBC source, with as many parts."""
        with self.timed():
            self.must_count(self.jdbc_frame())

    def must_count(self, frame: Any) -> None:
        """Raise unless a frame has as many rows."""
        if (count := frame.count()) != self.rows:
            raise RuntimeError(f"of {self.rows} messages {count} were counted")

    def export(self) -> None:
        """Export the archive into a lake: read it, write files, read them back, and compare."""
        self.number += 1
        with self.timed():
            done = export(self.spark, self.dsn, self.archived, self.folder / f"lake_{self.number}")
            if done.exported != self.rows:
                raise RuntimeError(f"of {self.rows} messages {done.exported} were exported")

    def holes(self) -> None:
        """Drain as many, of a queue of which every second message is gone."""
        self.stream(every=2)

    def stream(self, every: int = 1) -> None:
        """Drain a backlog of as many into Parquet by a stream; only each `every`th message is left of it."""
        queue = self.fill(self.rows * every)
        # In calls of a few: what one call takes grows faster than its messages.
        for first in range(1, self.rows * every + 1, FEW) if every > 1 else ():
            last = min(first + FEW - 1, self.rows * every)
            gone = f"array(select id from generate_series({first}, {last}) id where id % {every} <> 0)"
            self.execute(f"select count(*) from pgmq.delete('{queue}', {gone})")
        # What the preparation leaves to autovacuum and the checkpointer is not the stream's.
        self.execute("vacuum analyze spanmq_core.state")
        self.execute("checkpoint")
        folder = self.folder / queue
        with self.timed():
            frame = self.source(self.spark.readStream, queue).load()
            writer = frame.writeStream.format("parquet").option(
                "checkpointLocation", str(folder / "checkpoint")
            )
            writer.trigger(availableNow=True).start(str(folder / "lake")).awaitTermination()
        self.must_be_empty(queue)

    def send(self) -> None:
        """Send what a Parquet folder holds, as a whole."""
        self.number += 1
        queue = f"sent_{self.rows}_{self.number}"
        self.execute(f"select pgmq.create('{queue}')")
        with self.timed():
            writer = self.spark.read.parquet(str(self.folder / "bodies")).write.format("spanmq")
            writer.option("dsn", self.dsn).option("queue", queue).mode("append").save()
        self.execute(f"select pgmq.drop_queue('{queue}')")

    def jdbc_read(self) -> None:
        """Copy the archive to Parquet by Spark's own JDBC source."""
        with self.timed():
            self.jdbc_frame().write.mode("overwrite").parquet(str(self.folder / "jdbc"))

    def jdbc_frame(self) -> Any:
        """Return the archive as JDBC reads it, in four parts."""
        query = (
            f"(select '{self.archived}'::text as queue, msg_id, read_ct, enqueued_at, last_read_at,"
            " archived_at, headers->>'x-pgmq-group' as group_key, message::text as body"
            f" from pgmq.a_{self.archived}) a"
        )
        options = {"partitionColumn": "msg_id", "lowerBound": "1", "upperBound": str(self.rows)}
        return (
            self.jdbc(self.spark.read, query).options(**options, numPartitions="4", fetchsize="10000").load()
        )

    def jdbc_write(self) -> None:
        """Append the Parquet folder to a plain table of a queue's columns by JDBC."""
        frame = self.for_table()
        with self.timed():
            options = {"stringtype": "unspecified", "batchsize": "10000"}
            self.jdbc(frame.write, "plain").options(**options).mode("append").save()

    def sink_append(self) -> None:
        """Append it to the same table by the sink into a table, which can't double it."""
        self.sink("append")

    def sink_upsert(self) -> None:
        """Upsert it into the same table, which is empty."""
        self.sink("upsert")

    def sink(self, mode: str) -> None:
        """Write the Parquet folder into the table by the sink."""
        frame = self.for_table()
        with self.timed():
            writer = frame.write.format("spanmq").option("dsn", self.dsn).option("table", "public.plain")
            writer.option("mode", mode).mode("append").save()

    def for_table(self) -> Any:
        """Make the table, and return the Parquet folder as its rows."""
        self.execute("drop table if exists plain")
        self.execute(
            "create table plain (msg_id bigint primary key, enqueued_at timestamptz default now(),"
            " message jsonb, headers jsonb)"
        )
        frame = self.spark.read.parquet(str(self.folder / "bodies"))
        return frame.selectExpr("monotonically_increasing_id() as msg_id", "body as message")

    def single(self) -> float:
        """Send one message to a warm stream, several times; from the send to its batch's end."""
        self.execute("select pgmq.create('singles')")
        seen = threading.Semaphore(0)
        frame = self.source(self.spark.readStream, "singles").load()
        checkpoint = str(self.folder / "singles")

        def see(batch: Any, _: int) -> None:
            for _row in batch.collect():
                seen.release()

        writer = frame.writeStream.foreachBatch(see)
        query = writer.option("checkpointLocation", checkpoint).start()
        times = []
        try:
            with Client(self.dsn, maintain_interval=1.0) as client:
                for _ in range(SINGLES + 2):
                    began = time.monotonic()
                    client.send("singles", 1)
                    if not seen.acquire(timeout=60):
                        raise RuntimeError(f"nothing came within a minute: {query.exception()}")
                    times.append(time.monotonic() - began)
        finally:
            query.stop()
        return statistics.median(times[2:])

    def fill(self, count: int) -> str:
        """Make a queue with a backlog."""
        self.number += 1
        queue = f"backlog_{self.rows}_{self.number}"
        self.execute(f"select pgmq.create('{queue}')")
        for first in range(1, count + 1, CHUNK):
            last = min(first + CHUNK, count + 1) - 1
            self.execute(
                f"select count(*) from pgmq.send_batch('{queue}', (select array_agg({BODY})"
                f" from generate_series({first}, {last}) id))"
            )
        return queue

    def must_be_empty(self, queue: str) -> None:
        """Raise unless all of a queue is settled; drop it."""
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute("select queue_length from pgmq.metrics(%s)", [queue]).fetchone()
        if row != (0,):
            raise RuntimeError(f"{queue} still holds {row} messages")
        self.execute(f"select pgmq.drop_queue('{queue}')")

    def source(self, reader: Any, queue: str) -> Any:
        """Name our source."""
        return reader.format("spanmq").option("dsn", self.dsn).option("queue", queue)

    def read(self, queue: str, table: str) -> Any:
        """Read a table of a queue."""
        return self.source(self.spark.read, queue).option("table", table).load()

    def jdbc(self, reader: Any, table: str) -> Any:
        """Name Spark's JDBC source."""
        source = reader.format("jdbc").option("driver", "org.postgresql.Driver")
        return source.option("url", self.url).option("dbtable", table)

    def execute(self, statement: str) -> None:
        """Run one statement."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())


def memory(bench: Bench) -> float:
    """Return the megabytes that Python has while a bench reads, receives and sends all that it has."""
    with Watch(os.getpid()) as watch:
        for case in (bench.archive, bench.stream, bench.send):
            case()
    return watch.megabytes


def whole(few: Bench, many: Bench, dsn: str) -> list[Target]:
    """Return what memory a tenth, all, and large bodies take."""
    few_megabytes, many_megabytes = memory(few), memory(many)
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        large_megabytes = fresh.submit(large_bodies, dsn).result()
    targets = [
        Target("a writer of bodies of 190 KB", large_megabytes, "MB", 150),
        Target(f"Python's memory, {few.rows:,} messages", few_megabytes, "MB"),
        Target(f"Python's memory, {many.rows:,} messages", many_megabytes, "MB"),
    ]
    if few_megabytes:
        targets.append(Target("memory of many / of few", many_megabytes / few_megabytes, "", 1.25))
    return targets


def large_bodies(dsn: str) -> float:
    """Return the megabytes that a task needs beside its input to write bodies of 190 KB; in a fresh process."""
    options = Options(dsn=dsn, queue="large")
    with Client(dsn) as client:
        client.queues.create("large")
    before = kilobytes("VmRSS")
    batch = pyarrow.RecordBatch.from_pydict({"body": ['"' + "x" * 190_000 + '"'] * 200})
    write_rows(options, "large", 0, itertools.repeat(batch, 10))
    return (kilobytes("VmHWM") - before) / 1024 - float(batch.nbytes) / 2**20


def kilobytes(name: str) -> int:
    """Return the memory of this process now (VmRSS), or at most (VmHWM; getrusage() counts its parent's too)."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(f"{name}:"))


def measure(bench: Bench, few: Bench, rounds: int, chosen: str = "") -> list[Target]:
    """Run the cases in turn; gives medians, how they stand to their controls, and to those of a tenth.

    Both in seconds and in seconds of processor time, of Spark and the server together. Of the cases those that contain
    `chosen`, a regular expression.
    """
    cases: dict[str, Callable[[], None]] = {
        "archive, ADBC control": bench.control,
        "archive to Parquet": bench.archive,
        "the same, a tenth": few.archive,
        "count of the archive": bench.count,
        "a million of them, 4 tasks": bench.few_tasks,
        "the same, 32 tasks": bench.many_tasks,
        "archive to a lake, export": bench.export,
        "backlog to Parquet, stream": bench.stream,
        "stream, a tenth": few.stream,
        "the same, every second gone": bench.holes,
        "Parquet to queue": bench.send,
        "write, a tenth": few.send,
        "Parquet to table, append": bench.sink_append,
        "Parquet to table, upsert": bench.sink_upsert,
    }
    if bench.url:
        cases |= {
            "archive, JDBC": bench.jdbc_read,
            "count, JDBC": bench.jdbc_count,
            "Parquet to table, JDBC": bench.jdbc_write,
        }
    cases = {name: case for name, case in cases.items() if re.search(chosen, name)}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    processor_seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            case()
            owner = few if name.endswith("a tenth") else bench
            seconds[name].append(owner.seconds)
            processor_seconds[name].append(owner.processor_seconds)
    targets = ratios({name: statistics.median(times) for name, times in seconds.items()}, "seconds")
    used = {name: statistics.median(times) for name, times in processor_seconds.items()}
    targets += ratios(used, "of processor time")
    if not bench.url:
        targets.append(Target("JDBC: no jar, or no TCP", None, ""))
    if re.search(chosen, "one message"):
        targets.append(Target("one message, warm stream", bench.single(), "seconds", 1))
    return targets


def ratios(medians: dict[str, float], unit: str) -> list[Target]:
    """Return the medians, and how those stand to each other that were measured."""
    targets = [Target(name, value, unit) for name, value in medians.items()]
    times = "" if unit == "seconds" else unit
    for case, control, limit in (
        ("archive to Parquet", "archive, ADBC control", 1.15),
        ("archive to a lake, export", "archive to Parquet", 1.4),
        ("the same, 32 tasks", "a million of them, 4 tasks", 1.5),
        ("the same, every second gone", "backlog to Parquet, stream", 1 / 0.8),
        ("backlog to Parquet, stream", "archive to Parquet", 1.5),
        ("archive to Parquet", "the same, a tenth", 10.5),
        ("backlog to Parquet, stream", "stream, a tenth", 10.5),
        ("Parquet to queue", "write, a tenth", 10.5),
        ("archive to Parquet", "archive, JDBC", 0.7),
        ("count of the archive", "count, JDBC", 1.2),
        ("Parquet to queue", "Parquet to table, JDBC", 1),
        ("Parquet to table, append", "Parquet to table, JDBC", 1.5),
        ("Parquet to table, upsert", "Parquet to table, JDBC", 2),
    ):
        if {case, control} <= medians.keys():
            targets.append(Target(f"{case} / {control}", medians[case] / medians[control], times, limit))
    return targets


@contextmanager
def serving(dsn: str | None) -> Iterator[tuple[str, str | None]]:
    """Return the DSN of the server to measure on, and its address for JDBC if that is to be measured."""
    if dsn is not None:
        parameters = psycopg.conninfo.conninfo_to_dict(dsn)
        host = str(parameters.get("host") or "")
        words = f"user={parameters.get('user', '')}&password={parameters.get('password', '')}"
        reachable = JDBC.exists() and host and not host.startswith("/")
        yield (
            dsn,
            f"jdbc:postgresql://{host}:{parameters.get('port', PORT)}/%s?reWriteBatchedInserts=true&{words}"
            if reachable
            else None,
        )
        return
    reachable = JDBC.exists() and is_free(HOST, PORT)
    settings = {**SETTINGS, "listen_addresses": HOST} if reachable else SETTINGS
    with embedded.temporary(version=18, settings=settings) as server:
        password = secrets.token_hex(16)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"alter role postgres password '{password}'".encode())
            row = connection.execute("show hba_file").fetchone()
            assert row is not None
            with Path(row[0]).open("a") as rules:
                rules.write(f"\nhost all postgres {HOST}/32 scram-sha-256\n")
            connection.execute("select pg_reload_conf()")
        words = f"user=postgres&password={password}"
        yield (
            server.dsn,
            f"jdbc:postgresql://{HOST}:{PORT}/%s?reWriteBatchedInserts=true&{words}" if reachable else None,
        )


def is_free(host: str, port: int) -> bool:
    """Return whether a server could listen there."""
    with socket.socket() as tried:
        # As the server does: connections of one before may still be closing.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError:
            return False
    return True


def main() -> int:
    """Run the cases, and print medians and how they stand to their controls; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.pipeline", description="Measure the pipeline.")
    parser.add_argument("--rows", type=int, default=2_000_000, help="messages a case")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case runs")
    parser.add_argument(
        "--cases", default="", help="measure only cases whose name has this regular expression"
    )
    parser.add_argument("--dsn", help="measure on that server, in a database made and dropped")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    with ExitStack() as stack:
        server, url = stack.enter_context(serving(options.dsn))
        name = stack.enter_context(new_database(server))
        dsn = with_database(server, name)
        with psycopg.connect(dsn, autocommit=True) as connection:
            schema.install(connection)
        folder = Path(tempfile.mkdtemp(prefix="spanmq-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        spark = session("local[2]", settings={"spark.jars": str(JDBC)} if url else {})
        stack.callback(spark.stop)
        # The few come first: they warm Spark up, and what the many add shows.
        few = Bench(spark, dsn, max(options.rows // FEWER, 1), folder / "few")
        many = Bench(spark, dsn, options.rows, folder / "many", url % name if url else None)
        few.prepare()
        many.prepare()
        few.bodies()
        first = few.seconds
        few.bodies()
        second = few.seconds
        many.bodies()
        targets = [] if options.cases else whole(few, many, dsn)
        targets += measure(many, few, options.rounds, options.cases)
    targets.append(Target("first job above its second run", first - second, "seconds", 5))
    print(f"{options.rows:,} messages, medians of {options.rounds}, local[2]")
    for target in targets:
        print(target.line())
    if options.json:
        measured = [{**asdict(target), "is_missed": target.is_missed} for target in targets]
        options.json.write_text(json.dumps({"rows": options.rows, "found": measured}, indent=2))
    return int(any(target.is_missed for target in targets))


if __name__ == "__main__":
    raise SystemExit(main())
