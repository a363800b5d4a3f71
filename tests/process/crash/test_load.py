"""The whole server is killed (SIGKILL) in the middle of load; what it had acknowledged is true afterwards."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from lab.bench.history import Call, Recorder, problems, read
from lab.bench.history.clients import told
from tests.patience import WAIT_SECONDS
from tests.sql.model.invariants import broken_invariants

from spanmq import embedded, schema
from spanmq.client import Client

ENOUGH = 400  # calls that each producer has seen through before the server is killed
TAKEN = 150  # and each consumer of calls that gave it something: there is more than that
PRODUCERS, CONSUMERS = 2, 3
# How messages leave the queue, and where that puts them; each call returns which did.
LEAVE = {
    "ack": ("gone", "select msg_id from spanmq.ack('jobs', {lease}, {ids}) where outcome = 'acked'"),
    "reject": (
        "dead",
        "select msg_id from spanmq.reject('jobs', {lease}, {ids}, 'no') where outcome = 'dead'",
    ),
    "archive": ("archived", "select * from pgmq.archive('jobs', {ids})"),
    # One by one out of a lease of many.
    "delete": ("gone", "select id from unnest({ids}) id where pgmq.delete('jobs', id)"),
}
WRITERS = (
    "select pid from pg_stat_activity"
    " where backend_type in ('walwriter', 'background writer', 'checkpointer', 'autovacuum launcher')"
)
STAY = {
    "nack": "select msg_id from spanmq.nack('jobs', {lease}, {ids}, 'boom', retry_in => 0)",
    "release": "select msg_id from spanmq.release('jobs', {lease}, {ids})",
}


def produce(dsn: str, queue: str, recorder: Recorder, busy: threading.Barrier) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in range(10**9):
            if number == ENOUGH:
                busy.wait()
            size = 1 + number % 40
            bodies = [f'{{"n": {number}}}'] * size
            with recorder.call("send", groups=[None] * size) as sending:
                rows = connection.execute("select * from pgmq.send_batch(%s, %s::jsonb[])", (queue, bodies))
                sending.got = [message_id for (message_id,) in rows]


def consume(dsn: str, queue: str, recorder: Recorder, busy: threading.Barrier) -> None:
    calls = [*LEAVE, *STAY, *LEAVE]
    number = 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(10**9):
            with recorder.call("receive", seconds=600) as receiving:
                receive = "select msg_id, lease_id from spanmq.receive(%s, %s, 600)"
                rows = receiving.got = connection.execute(receive, (queue, 1 + number % 30)).fetchall()
            if not rows:
                continue
            number += 1
            if number == TAKEN:
                busy.wait()
            ids, lease = [message_id for message_id, _ in rows], rows[0][1]
            # Every third batch only in part: its rest stays leased.
            ids = ids[: len(ids) // 2 + 1] if number % 3 == 0 else ids
            name = calls[number % len(calls)]
            if name in LEAVE:
                into, text = LEAVE[name]
                error = "no" if name == "reject" else None
                settling = recorder.call("settle", ids=ids, lease=lease, into=into, error=error)
            else:
                text, settling = STAY[name], recorder.call("free", ids=ids, lease=lease)
            with settling:
                statement = text.format(lease=lease, ids=f"array{ids}::bigint[]")
                settling.got = [each for (each,) in connection.execute(statement.encode())]


def run_until_killed(server: embedded.TemporaryServer, queue: str, folder: Path) -> None:
    busy = threading.Barrier(PRODUCERS + CONSUMERS + 1, timeout=WAIT_SECONDS)

    def until_lost(work: Callable[..., None], name: str) -> None:
        with Recorder(folder, name) as recorder, pytest.raises(psycopg.OperationalError):
            work(server.dsn, queue, recorder, busy)

    threads = [
        threading.Thread(target=until_lost, args=(work, f"{work.__name__} {number}"), daemon=True)
        for number, work in enumerate([produce] * PRODUCERS + [consume] * CONSUMERS)
    ]
    for thread in threads:
        thread.start()
    busy.wait()
    server.kill()
    for thread in threads:
        thread.join(timeout=WAIT_SECONDS)
    assert not any(thread.is_alive() for thread in threads)


def sent_in(calls: list[Call]) -> set[int]:
    return {each for call in calls if call.verb == "send" and call.is_answered for each in call.got}


def test_acknowledged_work_survives_a_crash_under_load(tmp_path: Path) -> None:
    with embedded.temporary() as server:
        with psycopg.connect(server.dsn) as connection:
            schema.install(connection)
            connection.execute("select pgmq.create('jobs'), spanmq.create_subscription('lake', 'jobs')")
        run_until_killed(server, "jobs", tmp_path)
        server.restart()
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            assert broken_invariants(connection) == []
            calls = told(tmp_path, connection, "jobs")
            assert problems(calls) == []
            ways = {call.into for call in calls if call.verb == "settle" and call.got}
            assert ways == {"gone", "dead", "archived"}, "each way out was gone"
            subscribed = {each for (each,) in connection.execute("select msg_id from pgmq.q_lake")}
            seen = calls[-1].got
            there = {*seen["left"], *seen["archived"], *(each for each, _ in seen["dead"])}
            assert not (sent_in(calls) | there) - subscribed, "the subscription misses some"
        with Client(server.dsn) as client:
            message_id = client.send("jobs", "after")
            assert message_id > max(sent_in(calls)), "an id was given twice"
            (message,) = client.receive("jobs")
            leases = {lease for call in calls if call.verb == "receive" for _, lease in call.got or ()}
            assert message.lease_id not in leases


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


def test_unlogged_queue_is_empty_after_a_crash_and_goes_on(tmp_path: Path) -> None:
    with embedded.temporary() as server:
        with psycopg.connect(server.dsn) as connection:
            schema.install(connection)
            connection.execute(
                "select pgmq.create_unlogged('jobs'), spanmq.create_subscription('lake', 'jobs')"
            )
        run_until_killed(server, "jobs", tmp_path)
        server.restart()
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            for queue in ("jobs", "lake"):
                count = connection.execute(f"select count(*) from pgmq.q_{queue}".encode())
                assert count.fetchone() == (0,)
            rows = connection.execute("select * from pgmq.send('jobs', '{}')").fetchall()
            assert rows[0][0] > max(sent_in(read(tmp_path))), "an id was given twice"
            for queue in ("jobs", "lake"):
                again = connection.execute("select msg_id from pgmq.read(%s, 30, 5)", [queue])
                assert again.fetchall() == rows
