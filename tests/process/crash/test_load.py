"""The whole server is killed (SIGKILL) in the middle of load; what it had acknowledged is true afterwards."""

import os
import signal
import threading
from dataclasses import dataclass, field

import psycopg
import pytest
from tests.patience import WAIT_SECONDS
from tests.sql.model.invariants import broken_invariants

from spanmq import embedded, schema
from spanmq.client import Client

ENOUGH = 400  # calls that each producer has seen through before the server is killed
TAKEN = 150  # and each consumer of calls that gave it something: there is more than that
PRODUCERS, CONSUMERS = 2, 3
# How messages leave the queue; each call says which did.
LEAVE = {
    "ack": "select msg_id from spanmq.ack('jobs', {lease}, {ids}) where outcome = 'acked'",
    "reject": "select msg_id from spanmq.reject('jobs', {lease}, {ids}, 'no') where outcome = 'dead'",
    "archive": "select * from pgmq.archive('jobs', {ids})",
    # One by one out of a lease of many.
    "delete": "select id from unnest({ids}) id where pgmq.delete('jobs', id)",
}
WRITERS = (
    "select pid from pg_stat_activity"
    " where backend_type in ('walwriter', 'background writer', 'checkpointer', 'autovacuum launcher')"
)
STAY = {
    "nack": "select msg_id from spanmq.nack('jobs', {lease}, {ids}, 'boom', retry_in => 0)",
    "release": "select msg_id from spanmq.release('jobs', {lease}, {ids})",
}


@dataclass
class Records:
    """What the threads were told, kept outside the database."""

    sent: set[int] = field(default_factory=set)
    asked: dict[int, str] = field(default_factory=dict)  # id → by which call it was to leave the queue
    done: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in LEAVE})
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
    calls = [*LEAVE, *STAY, *LEAVE]
    number = 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(10**9):
            rows = connection.execute(
                "select msg_id, lease_id from spanmq.receive(%s, %s, 600)", (queue, 1 + number % 30)
            ).fetchall()
            if not rows:
                continue
            number += 1
            if number == TAKEN:
                busy.wait()
            taken = [message_id for message_id, _ in rows]
            # Every third batch only in part: its rest stays leased.
            taken = taken[: len(taken) // 2 + 1] if number % 3 == 0 else taken
            name = calls[number % len(calls)]
            with records.lock:
                records.leases.add(rows[0][1])
                records.asked.update((each, name) for each in taken if name in LEAVE)
            call = (LEAVE | STAY)[name].format(lease=rows[0][1], ids=f"array{taken}::bigint[]")
            told = connection.execute(call.encode()).fetchall()
            if name in LEAVE:
                with records.lock:
                    records.done[name].update(message_id for (message_id,) in told)


def run_until_killed(server: embedded.TemporaryServer, queue: str) -> Records:
    records = Records()
    busy = threading.Barrier(PRODUCERS + CONSUMERS + 1, timeout=WAIT_SECONDS)

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
        thread.join(timeout=WAIT_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    return records


def test_acknowledged_work_survives_a_crash_under_load() -> None:
    with embedded.temporary() as server:
        with psycopg.connect(server.dsn) as connection:
            schema.install(connection)
            connection.execute("select pgmq.create('jobs'), spanmq.create_subscription('lake', 'jobs')")
        records = run_until_killed(server, "jobs")
        server.restart()
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            assert broken_invariants(connection) == []
            left, archived, dead = (
                {message_id for (message_id,) in connection.execute(f"select msg_id from {table}".encode())}
                for table in ("pgmq.q_jobs", "pgmq.a_jobs", "spanmq_core.dead_letter")
            )
            done = records.done
            assert all(done.values()), "each way out was gone"
            assert not (done["ack"] | done["delete"]) & (left | archived | dead), "settled messages came back"
            assert done["archive"] <= archived, "archived messages are lost"
            assert done["reject"] <= dead, "dead letters are lost"
            # Of what was under way the outcome is unknown; but nothing of it is lost.
            kept = {each for each in records.sent if records.asked.get(each) not in ("ack", "delete")}
            assert not kept - left - archived - dead, "sent messages are lost"
            subscribed = {each for (each,) in connection.execute("select msg_id from pgmq.q_lake")}
            assert not (records.sent | left | archived | dead) - subscribed, "the subscription misses some"
        with Client(server.dsn) as client:
            message_id = client.send("jobs", "after")
            assert message_id > max(records.sent), "an id was given twice"
            (message,) = client.receive("jobs")
            assert message.lease_id not in records.leases


def test_lease_that_a_crash_undid_has_a_number_that_does_not_come_again() -> None:
    # What was committed asynchronously is lost, and with it how far the sequence of leases had come.
    settings = {"synchronous_commit": "off"}
    with embedded.temporary(settings=settings) as server:
        with Client(server.dsn) as client:
            client.install()
            client.queues.create("jobs")
            client.send_batch("jobs", range(10))
        server.restart()
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            receive = b"select lease_id from spanmq.receive('jobs')"
            # Nobody else is to write what a commit left for later.
            for (writer,) in connection.execute(WRITERS).fetchall():
                os.kill(writer, signal.SIGSTOP)
            before = [connection.execute(receive).fetchone() for _ in range(3)]
            server.kill()
        server.restart()
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            assert connection.execute("select count(*) from pgmq.q_jobs where read_ct > 0").fetchone() == (0,)
            again = [connection.execute(receive).fetchone() for _ in range(3)]
        assert not set(before) & set(again)


def test_unlogged_queue_is_empty_after_a_crash_and_goes_on() -> None:
    with embedded.temporary() as server:
        with psycopg.connect(server.dsn) as connection:
            schema.install(connection)
            connection.execute(
                "select pgmq.create_unlogged('jobs'), spanmq.create_subscription('lake', 'jobs')"
            )
        records = run_until_killed(server, "jobs")
        server.restart()
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            for queue in ("jobs", "lake"):
                count = connection.execute(f"select count(*) from pgmq.q_{queue}".encode())
                assert count.fetchone() == (0,)
            rows = connection.execute("select * from pgmq.send('jobs', '{}')").fetchall()
            assert rows[0][0] > max(records.sent), "an id was given twice"
            for queue in ("jobs", "lake"):
                read = connection.execute("select msg_id from pgmq.read(%s, 30, 5)", [queue])
                assert read.fetchall() == rows
