"""Ctrl-C and SIGTERM in the middle: nothing is left half done, and it is said how far it got."""

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from service.tests.running import patient
from tests.cli.program import (
    PROGRAM,
    Program,
    ask,
    do,
    end,
    environment,
    finish,
    spanmq,
    started,
    wait_until,
)
from tests.patience import WAIT_SECONDS

from spanmq.schema.release import LOCK_KEY
from spanmq.testing import wait_until_waiting

WAITING = (
    "select pid from pg_stat_activity where datname = current_database()"
    " and wait_event_type = 'Lock' and pid <> pg_backend_pid()"
)
LISTENING = (
    "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    # What a session asks when it listens, and goes on showing. Not the question before this one, whose session may not
    # have ended yet.
    " and query ~ 'spanmq[.]poll' and query !~ 'pg_stat_activity'"
)
COUNT = "select count(*) from pgmq.q_orders"
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
FINISHING = "spanmq: finishing what is on its way (Ctrl-C again: don't wait)\n"


@contextmanager
def senders_blocked(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Make everybody who sends wait until the connection is rolled back."""
    with psycopg.connect(dsn) as connection:
        connection.execute("lock table spanmq_core.state in access exclusive mode")
        yield connection


def wait_for_a_blocked_session(dsn: str) -> None:
    wait_until(lambda: ask(dsn, WAITING) is not None)
    with psycopg.connect(dsn, autocommit=True) as connection:
        wait_until_waiting(connection, ask(dsn, WAITING))


@contextmanager
def sending(dsn: str, text: bytes) -> Iterator[Program[bytes]]:
    """Start a program that sends these lines, and could be given more."""
    with started("send", "orders", dsn=patient(dsn)) as process:
        process.stdin.write(text)
        process.stdin.flush()
        yield process


def interrupt_where_it_waits(*command: str, dsn: str, number: signal.Signals = signal.SIGINT) -> None:
    """Interrupt a program that waits for a lock: it says so, and nothing else."""
    with started(*command, dsn=patient(dsn)) as process:
        wait_for_a_blocked_session(dsn)
        done = end(process, number)
    assert (done.code, done.err) == (128 + number, "spanmq: interrupted\n")


def test_send_interrupted_between_batches_says_what_was_sent(orders: str) -> None:
    with sending(orders, b"1\n2\n3\n") as process:
        wait_until(lambda: ask(orders, COUNT) == 3, process)
        done = end(process, signal.SIGINT)
    # The batch is there before the program has heard of it.
    said = done.err.removeprefix(FINISHING)
    assert (done.code, said) == (130, "spanmq: sent 3 messages\nspanmq: interrupted\n")
    assert ask(orders, COUNT) == 3


@pytest.mark.parametrize("number", SIGNALS)
def test_batch_on_its_way_is_finished_and_counted(orders: str, number: signal.Signals) -> None:
    with senders_blocked(orders) as connection, sending(orders, b"1\n2\n") as process:
        wait_for_a_blocked_session(orders)
        process.send_signal(number)
        connection.rollback()
        done = finish(process)
    said = f"{FINISHING}spanmq: sent 2 messages\nspanmq: interrupted\n"
    assert (done.code, done.err) == (128 + number, said)
    assert ask(orders, COUNT) == 2


def test_closed_terminal_does_not_end_what_nohup_runs(orders: str) -> None:
    program = shlex.join([*PROGRAM, "send", "orders"])
    command = ["bash", "-c", f"trap '' HUP; exec {program}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment(orders)) as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n")
        process.stdin.flush()
        wait_until(lambda: ask(orders, COUNT) == 1, process)
        process.send_signal(signal.SIGHUP)
        process.communicate(b"2\n", timeout=WAIT_SECONDS)
    assert process.returncode == 0
    assert ask(orders, COUNT) == 2


def test_second_interrupt_does_not_wait_and_says_that_it_does_not_know(orders: str) -> None:
    with senders_blocked(orders) as connection, sending(orders, b"1\n2\n") as process:
        wait_for_a_blocked_session(orders)
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().decode() == FINISHING
        done = end(process, signal.SIGINT)
        connection.rollback()
    assert done.code == 130
    assert done.err == ("spanmq: sent 0 messages; one more batch may have been sent\nspanmq: interrupted\n")
    assert ask(orders, COUNT) == 0


@pytest.mark.parametrize("command", [["schema", "upgrade"], ["schema", "uninstall", "--yes"]])
def test_interrupted_change_of_the_schema_changes_nothing(orders: str, command: list[str]) -> None:
    looks = "select string_agg(version || applied_at, ' ' order by id) from spanmq_core.release"
    before = ask(orders, looks)
    with psycopg.connect(orders) as other:
        # Who creates or drops anything waits for this one.
        other.execute("select pg_advisory_xact_lock(%s)", [LOCK_KEY])
        interrupt_where_it_waits(*command, dsn=orders)
    assert ask(orders, looks) == before
    assert spanmq("schema verify", dsn=orders).code == 0


def test_interrupted_adoption_leaves_pgmq_as_it_was(upstream_database: str) -> None:
    do(upstream_database, "select pgmq.create('orders')", "select pgmq.send('orders', '1'::jsonb)")
    with psycopg.connect(upstream_database) as other:
        # Everything but the archive is locked by then.
        other.execute("select count(*) from pgmq.a_orders")
        interrupt_where_it_waits("schema adopt", dsn=upstream_database)
    assert ask(upstream_database, "select to_regnamespace('spanmq')") is None
    assert ask(upstream_database, "select msg_id from pgmq.read('orders', 30, 1)") == 1


def test_interrupted_wait_takes_nothing(orders: str) -> None:
    with started("receive", "orders", "--wait", 600, dsn=orders) as process:
        wait_until(lambda: ask(orders, LISTENING) == 1, process)
        done = end(process, signal.SIGINT)
    assert (done.code, done.out, done.err) == (130, "", "spanmq: interrupted\n")


def test_maintain_for_ever_ends_after_its_step(orders: str) -> None:
    for number, code, said in ((signal.SIGTERM, 0, ""), (signal.SIGINT, 130, "spanmq: interrupted\n")):
        ask(orders, "select count(*) from pgmq.send_batch('orders', array_fill('1'::jsonb, array[40000]))")
        with started("maintain", "--every", 600, dsn=orders) as process:
            assert process.stdout.readline().startswith(b"orders ")
            done = end(process, number)
        assert (done.code, done.err) == (code, said)


def test_service_and_worker_end_with_the_same_codes(orders: str) -> None:
    for command in (
        ("serve", "--port", 0, "--without-tokens", "--json"),
        ("worker", "json:dumps", "-q", "orders", "--json"),
    ):
        for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
            with started(*command, dsn=orders) as process:
                assert b"started" in process.stdout.readline()
                done = end(process, number)
            assert (done.code, "interrupted" in done.err) == (code, code == 130), command


@contextmanager
def failing(dsn: str, function: str, sqlstate: str = "40001") -> Iterator[None]:
    """Have each call of an SQL function fail with a temporary error."""
    healthy = ask(dsn, f"select pg_get_functiondef('{function}'::regproc)")
    broken = f"begin raise 'no luck' using errcode = '{sqlstate}'; end"
    do(dsn, f"{healthy[: healthy.index('AS $function$')]} as $function$ {broken} $function$")
    yield
    do(dsn, healthy)


@pytest.mark.parametrize(
    ("sqlstate", "name"), [("40001", "transaction conflict"), ("25006", "server read only")]
)
def test_maintain_for_ever_outlives_an_error(orders: str, sqlstate: str, name: str) -> None:
    do(orders, "select pgmq.send('orders', '1')")
    with started("maintain", "--every", "0.05", dsn=orders) as process:
        assert process.stdout.readline().startswith(b"orders ")
        with failing(orders, "spanmq.maintain", sqlstate):
            assert process.stderr.readline() == f"spanmq: {name}: no luck\n".encode()
        do(orders, "select pgmq.create('more')", "select pgmq.send('more', '1')")
        assert any(line.startswith(b"more ") for line in iter(process.stdout.readline, b""))
        assert end(process).code == 0


def test_top_outlives_an_error(orders: str) -> None:
    with started("top", "--json", "--every", "0.1", dsn=orders) as process:
        assert json.loads(process.stdout.readline())["queue"] == "orders"
        with failing(orders, "spanmq_call.health"):
            assert process.stderr.readline() == b"spanmq: transaction conflict: no luck\n"
        do(orders, "select pgmq.create('more')")
        assert any(json.loads(line)["queue"] == "more" for line in iter(process.stdout.readline, b""))
        assert end(process).code == 0


def test_top_goes_on_until_it_is_interrupted(orders: str) -> None:
    with started("top", "--json", dsn=orders) as process:
        assert json.loads(process.stdout.readline())["queue"] == "orders"
        done = end(process, signal.SIGINT)
    assert (done.code, done.err) == (0, "")
