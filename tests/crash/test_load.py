"""The whole server is killed (SIGKILL) in the middle of load; what it had acknowledged is true afterwards."""

import threading
from dataclasses import dataclass, field

import psycopg
import pytest
from tests.sql.model.invariants import broken_invariants

from spanmq import embedded, schema
from spanmq.client import Client

ENOUGH = 400  # calls that each thread has seen through before the server is killed
PRODUCERS, CONSUMERS = 2, 3


@dataclass
class Records:
    """What the threads were told, kept outside the database."""

    sent: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)  # to be settled, with an outcome that may be unknown
    leases: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


def produce(dsn: str, queue: str, records: Records, busy: threading.Barrier) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in range(10**9):
            if number == ENOUGH:
                busy.wait()
            size = 1 + number % 40
            bodies = [f'{{"n": {number}}}'] * size
            rows = connection.execute(
                "select * from pgmq.send_batch(%s, %s::jsonb[])", (queue, bodies)
            ).fetchall()
            with records.lock:
                records.sent.update(message_id for (message_id,) in rows)


def consume(dsn: str, queue: str, records: Records, busy: threading.Barrier) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in range(10**9):
            if number == ENOUGH:
                busy.wait()
            rows = connection.execute(
                "select msg_id, lease_id from pgmq.receive(%s, %s, 600)", (queue, 1 + number % 30)
            ).fetchall()
            if not rows:
                continue
            taken = [message_id for message_id, _ in rows]
            # Every third batch only in part: its rest stays leased.
            taken = taken[: len(taken) // 2 + 1] if number % 3 == 0 else taken
            with records.lock:
                records.leases.add(rows[0][1])
                records.asked.update(taken)
            acked = connection.execute(
                "select msg_id from pgmq.ack(%s, %s, %s) where outcome = 'acked'", (queue, rows[0][1], taken)
            ).fetchall()
            with records.lock:
                records.settled.update(message_id for (message_id,) in acked)


def run_until_killed(server: embedded.TemporaryServer, queue: str) -> Records:
    records = Records()
    busy = threading.Barrier(PRODUCERS + CONSUMERS + 1, timeout=60)

    def until_lost(work: object) -> None:
        assert callable(work)
        with pytest.raises(psycopg.OperationalError):
            work(server.dsn, queue, records, busy)

    threads = [
        threading.Thread(target=until_lost, args=(work,), daemon=True)
        for work in [produce] * PRODUCERS + [consume] * CONSUMERS
    ]
    for thread in threads:
        thread.start()
    busy.wait()
    server.kill()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    return records


@pytest.mark.crash
@pytest.mark.slow
def test_acknowledged_work_survives_a_crash_under_load() -> None:
    with embedded.temporary() as server:
        with psycopg.connect(server.dsn) as connection:
            schema.install(connection)
            connection.execute("select pgmq.create('jobs')")
        records = run_until_killed(server, "jobs")
        server.restart()
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            assert broken_invariants(connection) == []
            left = {message_id for (message_id,) in connection.execute("select msg_id from pgmq.q_jobs")}
            assert not records.settled & left, "settled messages came back"
            assert not records.sent - left - records.asked, "sent messages are lost"
        with Client(server.dsn) as client:
            message_id = client.send("jobs", "after")
            assert message_id > max(records.sent), "an id was given twice"
            (message,) = client.receive("jobs")
            assert message.lease_id not in records.leases


@pytest.mark.crash
@pytest.mark.slow
def test_unlogged_queue_is_empty_after_a_crash_and_goes_on() -> None:
    with embedded.temporary() as server:
        with psycopg.connect(server.dsn) as connection:
            schema.install(connection)
            connection.execute("select pgmq.create_unlogged('jobs')")
        records = run_until_killed(server, "jobs")
        server.restart()
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            assert broken_invariants(connection) == []
            assert connection.execute("select count(*) from pgmq.q_jobs").fetchone() == (0,)
            rows = connection.execute("select * from pgmq.send('jobs', '{}')").fetchall()
            assert rows[0][0] > max(records.sent), "an id was given twice"
            assert connection.execute("select msg_id from pgmq.read('jobs', 30, 5)").fetchall() == rows
