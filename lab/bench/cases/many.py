"""What many queues and many segments cost: processor time of maintenance, memory of a session, calls about all."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
from lab.bench import processor
from lab.bench.contestants import CALLS, NATIVE, UPSTREAM
from lab.bench.database import Database
from lab.bench.plan import Plan
from lab.bench.results import LATENCY, MEMORY, Measurement
from lab.bench.stage import Experiment, Stage
from psycopg.conninfo import make_conninfo

QUEUES = 2_000
USED_QUEUES = 200
SEGMENTS = 400
TIMES = 20
ALL_QUEUES = 10_000
CREATE_CASE, MAINTAIN_CASE = "many/10000-queues/create", "many/10000-queues/maintain"
METRICS_CASE, DUMP_CASE = "many/10000-queues/metrics-all", "many/10000-queues/dump"
ALL = (CREATE_CASE, MAINTAIN_CASE, METRICS_CASE, DUMP_CASE)
IDLE, LATE, TOUCHED = "many/idle-queues", "many/segments-with-late-leases", "many/queues-of-a-session"
MAINTAIN = "select * from spanmq.maintain()"
CREATE, DROP = "select pgmq.create(%s)", "select pgmq.drop_queue(%s)"


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    return (
        *((Experiment(ALL, _all_queues),) if plan.beside else ()),
        Experiment((TOUCHED,), _memory),
        Experiment((IDLE,), lambda stage, _: _maintenance(stage, IDLE, QUEUES)),
        Experiment((LATE,), lambda stage, _: _maintenance(stage, LATE, 1, _leases_in_segments())),
    )


def _for_each(database: Database, count: int, statement: str) -> None:
    """Call a statement for many queues, each in a transaction of its own: all at once would need too many locks."""
    with database.connect() as connection:
        for number in range(1, count + 1):
            connection.execute(statement, [f"many_{number}"])


def _leases_in_segments() -> str:
    """Return the block that leaves a message with an ended lease in each of many segments."""
    return (
        f"do $$ begin for i in 0 .. {SEGMENTS - 1} loop"
        " perform setval(q.ids, i * q.segment_size + 5), pgmq.send('many_1', '1')"
        " from spanmq_core.queue q where q.name = 'many_1';"
        f" end loop; perform pgmq.read('many_1', -1, {SEGMENTS}); end $$"
    )


def _maintenance(stage: Stage, case: str, queues: int, filling: str = "") -> None:
    database = next(
        stage.databases[contestant.database] for contestant in stage.contestants if contestant.ours
    )
    _for_each(database, queues, CREATE)
    if filling:
        database.execute(filling)
    database.maintain()
    database.calm()
    with database.connect() as connection:
        for number in range(TIMES):
            before = processor.nanoseconds_of(connection.info.backend_pid)
            connection.execute(MAINTAIN)
            used = (processor.nanoseconds_of(connection.info.backend_pid) - before) / 1e6
            if number:  # the first one makes its plans
                stage.record(Measurement(case, NATIVE, number, used, LATENCY))
    _for_each(database, queues, DROP)


def _memory(stage: Stage, _: Sequence[str]) -> None:
    for number, contestant, database in stage.rounds(1):
        if contestant.name not in {UPSTREAM, CALLS}:
            continue
        _for_each(database, USED_QUEUES, CREATE)
        with database.connect() as connection:
            before = _anonymous_megabytes(connection)
            for queue in range(1, USED_QUEUES + 1):
                _use(connection, f"many_{queue}")
            used = _anonymous_megabytes(connection) - before
        stage.record(Measurement(TOUCHED, contestant.name, number, used, MEMORY))
        _for_each(database, USED_QUEUES, DROP)


def _use(connection: psycopg.Connection, queue: str) -> None:
    connection.execute("select pgmq.send(%s, '1')", [queue])
    connection.execute("select * from pgmq.read(%s, 30, 1)", [queue])
    connection.execute("select pgmq.delete(%s, 1::bigint)", [queue])


def _anonymous_megabytes(connection: psycopg.Connection) -> float:
    """Return what the session's process has to itself: without shared buffers and the program. Linux only."""
    lines = Path(f"/proc/{connection.info.backend_pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:")) / 1024


def _all_queues(stage: Stage, _: Sequence[str]) -> None:
    """Measure calls about ten thousand queues in processor time, and a dump, in a copy of the database."""
    for number, contestant, original in stage.rounds(1):
        if contestant.name not in {UPSTREAM, CALLS}:
            continue
        with _copy(original) as database:
            with database.connect() as connection:
                creates = [f"select pgmq.create('many_{queue}')" for queue in range(ALL_QUEUES)]
                times = {CREATE_CASE: _used_ms(connection, *creates) / ALL_QUEUES}
            database.calm()
            statements = {METRICS_CASE: "select count(*) from pgmq.metrics_all()"}
            if contestant.ours:
                # Each call looks into 1,000 queues: afterwards all are known to be quiet, for a minute.
                for _call in range(ALL_QUEUES // 1000 + 2):
                    database.maintain()
                statements[MAINTAIN_CASE] = MAINTAIN
            for case, statement in statements.items():
                with database.connect() as connection:
                    connection.execute(statement)  # the first one makes its plans
                    times[case] = _used_ms(connection, statement)
            program = str(stage.generator.binary.with_name("pg_dump"))
            command = [program, "--schema-only", "--file=/dev/null", f"--dbname={database.dsn}"]
            started_at = time.perf_counter()
            subprocess.run(command, check=True)
            times[DUMP_CASE] = (time.perf_counter() - started_at) * 1000
        for case, ms in times.items():
            stage.record(Measurement(case, contestant.name, number, ms, LATENCY))


def _used_ms(connection: psycopg.Connection, *statements: str) -> float:
    """Run statements, each in a transaction of its own, and return the processor time of the session."""
    before = processor.nanoseconds_of(connection.info.backend_pid)
    for statement in statements:
        connection.execute(statement)
    return (processor.nanoseconds_of(connection.info.backend_pid) - before) / 1e6


@contextmanager
def _copy(original: Database) -> Iterator[Database]:
    """Yield a copy of a database; drop it after the block."""
    name = f"{original.name}_many"
    dsn = make_conninfo(original.dsn, dbname="postgres")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"create database {name} template {original.name}".encode())
        try:
            yield replace(original, dsn=make_conninfo(original.dsn, dbname=name))
        finally:
            connection.execute(f"drop database {name} with (force)".encode())
