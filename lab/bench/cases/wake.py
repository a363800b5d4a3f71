"""What a waiting receiver costs sixteen senders, and how soon an idle one has a message."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from uuid import uuid4

import psycopg
from lab.bench import scripts
from lab.bench.contestants import NATIVE, QUEUE
from lab.bench.database import Database
from lab.bench.plan import Plan
from lab.bench.results import FIRST_CALL_MS, LATENCY, SLOWEST_MS, Measurement
from lab.bench.stage import Experiment, Stage
from psycopg import sql

from spanmq.client import Client

CLIENTS = 16
MESSAGES = 200
# Long enough for the receiver to be in its wait again.
PAUSE_SECONDS = 0.02
ALONE, WATCHED = "wake/nobody-waits", "wake/somebody-waits"
BARE, NOTED, IDLE = "wake/bare-notify", "wake/notify-and-row", "wake/idle-receiver"
# NOTIFY alone does not wait for the disk; no queue can have a message without.
NOTIFY = "select pg_notify('bench_bare', '')"
ROW = f"with row as (insert into bench.noted default values) {NOTIFY}"
P99_MS = "99th percentile, ms"


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    return (
        Experiment((ALONE, WATCHED), lambda stage, cases: _sends(stage, plan, cases)),
        Experiment((BARE, NOTED, IDLE), lambda stage, _: _latencies(stage)),
    )


def _sends(stage: Stage, plan: Plan, cases: Sequence[str]) -> None:
    for number, contestant, database in stage.rounds(plan.rounds):
        if contestant.name != NATIVE:
            continue
        # In turn, so that neither has the younger server.
        for case in (ALONE, WATCHED)[:: 1 if number % 2 else -1]:
            if case not in cases:
                continue
            database.create_queue()
            with _somebody_waits(database, case == WATCHED):
                script = scripts.client_send(1)
                stage.load(
                    case,
                    number,
                    contestant,
                    script,
                    messages=1,
                    clients=CLIENTS,
                    seconds=max(plan.send_seconds, 3),
                    settling=False,
                )
            database.drop_queue()
            database.calm()


@contextmanager
def _somebody_waits(database: Database, is_watched: bool) -> Iterator[None]:
    """Listen and say so, and take nothing: the dearest receiver that there is."""
    stop = threading.Event()

    def wait() -> None:
        with psycopg.connect(database.dsn, autocommit=True) as connection:
            register = "select channel from spanmq.await_messages(array[%s], %s)"
            key = uuid4()
            channel = connection.execute(register, [QUEUE, key]).fetchall()[0][0]
            connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
            while not stop.is_set():
                connection.execute(register, [QUEUE, key])
                connection.execute("select spanmq.poll(%s)", [key])
                for _ in connection.notifies(timeout=1):
                    pass

    waiter = threading.Thread(target=wait)
    if is_watched:
        waiter.start()
    try:
        yield
    finally:
        stop.set()
        if is_watched:
            waiter.join()


def _latencies(stage: Stage) -> None:
    for number, contestant, database in stage.rounds(1):
        if contestant.name == NATIVE:
            database.execute("create table if not exists bench.noted (noted_at timestamptz default now())")
            for case, times in (
                (BARE, _bare(database, NOTIFY)),
                (NOTED, _bare(database, ROW)),
                (IDLE, _idle(database)),
            ):
                details = {FIRST_CALL_MS: times[0], SLOWEST_MS: max(times)}
                details[P99_MS] = quantiles(times, n=100)[-1]
                stage.record(Measurement(case, contestant.name, number, median(times), LATENCY, details))


def _bare(database: Database, statement: str) -> list[float]:
    """Time a statement that notifies to the other session's hearing it."""
    heard: list[float] = []
    sent: list[float] = []
    ready = threading.Event()

    def listen() -> None:
        with psycopg.connect(database.dsn, autocommit=True) as connection:
            connection.execute("listen bench_bare")
            ready.set()
            for _ in connection.notifies(stop_after=MESSAGES, timeout=120):
                heard.append(time.perf_counter())  # noqa: PERF401, the time of each

    listener = threading.Thread(target=listen)
    listener.start()
    ready.wait()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for _ in range(MESSAGES):
            time.sleep(PAUSE_SECONDS)
            sent.append(time.perf_counter())
            connection.execute(statement.encode())
    listener.join()
    return [(end - start) * 1000 for start, end in zip(sent, heard, strict=True)]


def _idle(database: Database) -> list[float]:
    """Time a send to the return of a receive that was waiting."""
    database.create_queue()
    sent: list[float] = []
    times: list[float] = []
    with Client(database.dsn) as client:

        def receive() -> None:
            while len(times) < MESSAGES:
                for message in client.receive(QUEUE, wait=60):
                    times.append((time.perf_counter() - sent[-1]) * 1000)
                    client.ack(message)

        receiver = threading.Thread(target=receive)
        receiver.start()
        time.sleep(1)
        for number in range(MESSAGES):
            while len(times) < number:
                time.sleep(0.001)
            time.sleep(PAUSE_SECONDS)
            sent.append(time.perf_counter())
            client.send(QUEUE, 1)
        receiver.join()
    database.drop_queue()
    return times
