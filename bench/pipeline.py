"""The pipeline on Spark against controls, in one run: `python -m bench.pipeline`. See docs/benchmark.md."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow.parquet
from adbc_driver_postgresql import dbapi

from bench.server import serving
from spanmq import schema
from spanmq.client import Client
from spanmq.spark.session import session
from spanmq.testing import new_database, with_database

# Of Debian's libpostgresql-jdbc-java; for the comparison only.
JDBC: Final = Path("/usr/share/java/postgresql.jar")
BODY: Final = "jsonb_build_object('order', id, 'customer', id % 977, 'pad', repeat('x', 228))"
SINGLES: Final = 7
CHUNK: Final = 100_000


class Bench:
    """The cases; each gives the seconds that it took."""

    def __init__(self, spark: Any, dsn: str, rows: int, folder: Path) -> None:
        self.spark, self.dsn, self.rows, self.folder = spark, dsn, rows, folder
        self.number = 0

    def prepare(self) -> None:
        """Fill an archive, and write the Parquet files that the writing cases read."""
        self.execute("select pgmq.create('archived')")
        self.execute(
            "insert into pgmq.a_archived (msg_id, read_ct, last_read_at, vt, message)"
            f" select id, 1, now(), now(), {BODY} from generate_series(1, {self.rows}) id"
        )
        self.execute("vacuum analyze pgmq.a_archived")
        frame = self.read("archived", "archive").select("body", "message_id")
        frame.select("body").write.parquet(str(self.folder / "bodies"))

    def control(self) -> float:
        """Copy the archive to one Parquet file, with ADBC and Arrow alone."""
        began = time.monotonic()
        with dbapi.connect(self.dsn) as connection, connection.cursor() as cursor:
            cursor.execute(
                "select 'archived'::text as queue, msg_id, read_ct, enqueued_at, last_read_at, archived_at,"
                " headers->>'x-pgmq-group' as group_key, message::text as body from pgmq.a_archived"
            )
            reader = cursor.fetch_record_batch()
            with pyarrow.parquet.ParquetWriter(self.folder / "control.parquet", reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
        return time.monotonic() - began

    def archive(self) -> float:
        """Copy the archive to Parquet by the source."""
        began = time.monotonic()
        self.read("archived", "archive").write.mode("overwrite").parquet(str(self.folder / "archive"))
        return time.monotonic() - began

    def stream(self) -> float:
        """Drain a backlog of as many into Parquet by a stream."""
        queue = self.fill()
        folder = self.folder / queue
        began = time.monotonic()
        frame = self.source(self.spark.readStream, queue).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start(str(folder / "lake")).awaitTermination()
        seconds = time.monotonic() - began
        self.must_be_empty(queue)
        return seconds

    def send(self) -> float:
        """Send what a Parquet folder holds, as a whole."""
        self.number += 1
        queue = f"sent_{self.number}"
        self.execute(f"select pgmq.create('{queue}')")
        began = time.monotonic()
        writer = self.spark.read.parquet(str(self.folder / "bodies")).write.format("spanmq")
        writer.option("dsn", self.dsn).option("queue", queue).mode("append").save()
        seconds = time.monotonic() - began
        self.execute(f"select pgmq.drop_queue('{queue}')")
        return seconds

    def jdbc_read(self) -> float:
        """Copy the archive to Parquet by Spark's own JDBC source."""
        began = time.monotonic()
        query = (
            "(select msg_id, read_ct, enqueued_at, last_read_at, archived_at,"
            " headers->>'x-pgmq-group' as group_key, message::text as body from pgmq.a_archived) a"
        )
        options = {"partitionColumn": "msg_id", "lowerBound": "1", "upperBound": str(self.rows)}
        reader = self.jdbc(self.spark.read, query).options(**options, numPartitions="20", fetchsize="10000")
        reader.load().write.mode("overwrite").parquet(str(self.folder / "jdbc"))
        return time.monotonic() - began

    def jdbc_write(self) -> float:
        """Append the Parquet folder to a plain table of a queue's columns by JDBC."""
        self.execute("drop table if exists plain")
        self.execute(
            "create table plain (msg_id bigserial primary key, enqueued_at timestamptz default now(),"
            " message jsonb, headers jsonb)"
        )
        began = time.monotonic()
        frame = self.spark.read.parquet(str(self.folder / "bodies")).withColumnRenamed("body", "message")
        options = {"stringtype": "unspecified", "batchsize": "10000"}
        self.jdbc(frame.write, "plain").options(**options).mode("append").save()
        return time.monotonic() - began

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
            with Client(self.dsn) as client:
                for _ in range(SINGLES + 2):
                    began = time.monotonic()
                    client.send("singles", 1)
                    if not seen.acquire(timeout=60):
                        raise RuntimeError(f"nothing came within a minute: {query.exception()}")
                    times.append(time.monotonic() - began)
        finally:
            query.stop()
        return statistics.median(times[2:])

    def fill(self) -> str:
        """Make a queue with a backlog."""
        self.number += 1
        queue = f"backlog_{self.number}"
        self.execute(f"select pgmq.create('{queue}')")
        for first in range(1, self.rows + 1, CHUNK):
            last = min(first + CHUNK, self.rows + 1) - 1
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
        return reader.format("jdbc").option("url", jdbc_url(self.dsn)).option("dbtable", table)

    def execute(self, statement: str) -> None:
        """Run one statement."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())


def jdbc_url(dsn: str) -> str | None:
    """Give the address for JDBC, which knows no unix sockets; None where there is none, or no driver."""
    given = psycopg.conninfo.conninfo_to_dict(dsn)
    host = str(given.get("host") or "")
    if not JDBC.exists() or not host or host.startswith("/"):
        return None
    words = f"user={given.get('user', '')}&password={given.get('password', '')}"
    return f"jdbc:postgresql://{host}:{given.get('port', 5432)}/{given['dbname']}?{words}"


def measure(bench: Bench, rounds: int) -> list[tuple[str, float | None, str]]:
    """Run the cases in turn; gives a name, a median or a ratio, and what it must be."""
    cases: dict[str, Callable[[], float]] = {
        "archive, ADBC control": bench.control,
        "archive to Parquet": bench.archive,
        "backlog to Parquet, stream": bench.stream,
        "Parquet to queue": bench.send,
    }
    if jdbc_url(bench.dsn):
        cases |= {"archive, JDBC": bench.jdbc_read, "Parquet to table, JDBC": bench.jdbc_write}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            seconds[name].append(case())
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    archive, control = medians["archive to Parquet"], medians["archive, ADBC control"]
    found: list[tuple[str, float | None, str]] = [(name, value, "seconds") for name, value in medians.items()]
    found.append(("archive / control", archive / control, "at most 1.5"))
    found.append(("stream / archive", medians["backlog to Parquet, stream"] / archive, "at most 1.5"))
    if "archive, JDBC" in medians:
        found.append(("archive / JDBC", archive / medians["archive, JDBC"], "at most 1"))
        write = medians["Parquet to queue"] / medians["Parquet to table, JDBC"]
        found.append(("write / JDBC", write, "at most 1"))
    else:
        found.append(("JDBC", None, "skipped: needs Debian's libpostgresql-jdbc-java and --dsn over TCP"))
    found.append(("one message, warm stream", bench.single(), "seconds, at most 1"))
    return found


def main() -> int:
    """Run the cases, and print medians and how they stand to their controls."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description="Measure the pipeline.")
    parser.add_argument("--rows", type=int, default=2_000_000, help="messages a case")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case runs")
    parser.add_argument("--dsn", help="measure on that server, in a database made and dropped")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(serving(options.dsn))
        dsn = with_database(server, stack.enter_context(new_database(server)))
        with psycopg.connect(dsn, autocommit=True) as connection:
            schema.install(connection)
        folder = Path(tempfile.mkdtemp(prefix="spanmq-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        spark = session("local[2]", settings={"spark.jars": str(JDBC)} if JDBC.exists() else {})
        stack.callback(spark.stop)
        bench = Bench(spark, dsn, options.rows, folder)
        bench.prepare()
        found = measure(bench, options.rounds)
    print(f"{options.rows:,} messages, medians of {options.rounds}")
    for name, value, what in found:
        print(f"{name:32} {'-' if value is None else format(value, '.2f'):>8}  {what}")
    if options.json:
        options.json.write_text(json.dumps([list(each) for each in found], indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
