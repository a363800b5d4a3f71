"""The database goes away, the network is cut, sessions end, others hold snapshots: the worker goes on."""

import asyncio
import os
import random
import signal
import threading
from collections import Counter
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.cli.program import ask, wait_until
from tests.patience import WAIT_SECONDS
from tests.process.worker.proxy import Mode, proxying
from tests.worker.running import Record, waiting_for_a_lock, working

from spanmq import Client, Message, embedded
from spanmq.worker.event import (
    ConnectionBroken,
    ConnectionRestored,
    MessageHandled,
    MessageSettled,
    MessagesReceived,
)
from spanmq_lab.simulate.server import stat_of

# What an earlier delivery of a message may have come to, if there was a later one. That may have been acked when
# listening begins anew, with a search for cancelled messages, which takes the earlier one for such.
UNDONE = {"stale", "unknown", "released", "cancelled"}
# Of the last delivery; one whose answer was lost may have counted.
DONE = {"acked", "unknown"}


TERMINATED = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity"
    " where datname = current_database() and application_name = 'spanmq worker'"
)


class Handled:
    """A handler that notes what it gets, and takes a moment."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.groups: dict[str, list[int]] = {}
        self._busy: set[str] = set()
        self._overlaps: list[str] = []

    async def __call__(self, message: Message) -> None:
        self.numbers.append(message.message_id)
        if (group := message.group) is None:
            await asyncio.sleep(0.001)
            return
        self.groups.setdefault(group, []).append(message.message_id)
        if group in self._busy:
            self._overlaps.append(f"message {message.message_id} began while another of {group} was handled")
        self._busy.add(group)
        await asyncio.sleep(0.001)
        self._busy.discard(group)

    def faults_of_order(self) -> list[str]:
        """Return what was handled beside another of its group, or before one that stands before it there."""
        found = list(self._overlaps)
        for group, numbers in self.groups.items():
            first_times = list(dict.fromkeys(numbers))
            if first_times != sorted(first_times):
                found.append(f"group {group} was handled in the order {numbers}")
        return found


def send_in_order(client: Client, count: int) -> list[int]:
    return client.send_batch("orders", range(count), group=[f"g{number % 40}" for number in range(count)])


def faults(record: Record, handled: Handled, sent: list[int]) -> list[str]:
    """Return what is wrong: a message lost, acked twice, or handled again though its first ack counted."""
    found = [f"message {number} was never handled" for number in set(sent) - set(handled.numbers)]
    found += handled.faults_of_order()
    outcomes: dict[int, list[str]] = {number: [] for number in sent}
    for event in record.of(MessageSettled):
        outcomes[event.message_id].append(event.outcome)
    times = Counter(handled.numbers)
    for number, each in outcomes.items():
        if each.count("acked") > 1:
            found.append(f"message {number} was acked twice: {each}")
        # A delivery that overslept may say that it is stale after another was acked.
        if not set(each) <= UNDONE | DONE or not set(each) & DONE:
            found.append(f"message {number} came to {each}")
        if times[number] > len(each):
            found.append(f"message {number} was handled {times[number]} times and came to {each}")
    return found


def wait_until_settled(record: Record, sent: list[int]) -> None:
    """Wait until the worker knows of each message that it is done: perhaps later than the queue is empty."""
    done: set[int] = set()

    def is_another(event: MessageSettled) -> bool:
        is_new = event.outcome in DONE and event.message_id not in done
        done.update([event.message_id] if is_new else [])
        return is_new

    record.wait(MessageSettled, len(sent), where=is_another)


def test_worker_goes_on_when_its_sessions_are_terminated(client: Client, database: str) -> None:
    sent: list[int] = []
    handled, chosen = Handled(), random.Random(1)
    terminated = 0
    with psycopg.connect(database, autocommit=True) as other, working(database, handled, lease=1.0) as record:
        for _ in range(20):
            sent += client.send_batch("orders", range(100))
            record.wait(MessageHandled, len(sent) - 50)
            sessions = other.execute(
                "select pid from pg_stat_activity"
                " where datname = current_database() and application_name = 'spanmq worker'"
            ).fetchall()
            for (pid,) in sessions:
                if chosen.random() < 0.5:
                    other.execute("select pg_terminate_backend(%s)", [pid])
                    terminated += 1
        wait_until(lambda: not client.queues.metrics("orders").length)
        wait_until_settled(record, sent)
    assert terminated > 10
    assert record.of(ConnectionRestored)
    assert faults(record, handled, sent) == []


def test_writes_with_the_ack_are_there_once_though_sessions_are_terminated(
    client: Client, database: str
) -> None:
    sent = client.send_batch("orders", range(400))
    last_words = {50, 120, 190, 260, 330}

    async def handle(message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("insert into shipped values (%s)", [message.message_id])
        await asyncio.sleep(0.002)
        if message.body in last_words:
            # Its own session too, in the middle of its transaction.
            last_words.remove(message.body)
            terminate_all(database)

    with psycopg.connect(database, autocommit=True) as other:
        other.execute("create table shipped (number int)")
        with working(database, handle, lease=1.0) as record:
            wait_until(lambda: not client.queues.metrics("orders").length)
            record.wait(MessageSettled, 5, where=lambda event: event.outcome in {"retrying", *UNDONE})
        found = other.execute("select number from shipped order by number").fetchall()
    assert [number for (number,) in found] == sent


def test_worker_waits_for_the_schema_of_a_database_that_is_restored(client: Client, database: str) -> None:
    client.send("orders", 1)
    end = threading.Event()
    waiting = waiting_for_a_lock("ack")
    with (
        psycopg.connect(database, autocommit=True) as other,
        psycopg.connect(database) as locking,
        working(database, lambda message: end.wait(WAIT_SECONDS)) as record,
    ):
        record.wait(MessagesReceived)
        locking.execute("select pgmq.delete('orders', 1)")
        end.set()
        wait_until(lambda: other.execute(waiting).fetchone())
        # The server answers, and the schema is not there yet.
        other.execute("alter schema spanmq rename to spanmq_before")
        other.execute(TERMINATED)
        record.wait(ConnectionBroken, where=lambda event: "version()" in event.error)
        other.execute("alter schema spanmq_before rename to spanmq")
        record.wait(ConnectionRestored)
        locking.rollback()
        assert record.outcomes(1) == ["acked"]


def terminate_all(dsn: str) -> None:
    """Terminate the sessions of the worker, as soon as it has one."""
    wait_until(lambda: ask(dsn, TERMINATED) > 0)


def test_worker_survives_restarts_of_the_database() -> None:
    with embedded.temporary() as server:
        with Client(server.dsn) as client:
            client.install()
            client.queues.create("orders")
            client.queues.set_policy("orders", ordered=True)
        sent: list[int] = []
        handled = Handled()
        with working(server.dsn, handled, lease=3.0, concurrency=4) as record:

            def send_more() -> None:
                # So many that it is hardly ever idle when the server goes.
                with Client(server.dsn) as client:
                    sent.extend(send_in_order(client, 2_000))
                record.wait(MessageHandled, len(sent) - 1_800)

            for how in ("fast", "immediate", "kill"):
                send_more()
                if how == "immediate":
                    postmaster = server.postmaster_id()
                    assert postmaster is not None
                    os.kill(postmaster, signal.SIGQUIT)
                    wait_until_gone(postmaster)
                elif how == "kill":
                    server.kill()
                server.restart()  # one that runs is stopped first, "fast"
                # Perhaps without ConnectionBroken: between two calls a pool reconnects without a word.
                send_more()
            with Client(server.dsn) as client:
                wait_until(lambda: not client.queues.metrics("orders").length)
            wait_until_settled(record, sent)
        assert faults(record, handled, sent) == []


def wait_until_gone(process: int) -> None:
    # Its parent may not have looked yet (Z); and it may go between the opening of a file and its reading.
    wait_until(lambda: stat_of(str(process))[:1] in ([], ["Z"]))


def socket_of(dsn: str) -> tuple[str, dict[str, Any]]:
    parts = conninfo_to_dict(dsn)
    folder = parts.get("host") or parse_qs(urlsplit(dsn).query)["host"][0]
    return f"{folder}/.s.PGSQL.{parts.get('port', 5432)}", parts


@pytest.mark.parametrize("mode", ["drop", "stall"])
def test_worker_survives_a_cut_network(client: Client, database: str, mode: Mode) -> None:
    socket, parts = socket_of(database)
    if not socket.startswith("/"):
        pytest.skip("the server is not reached through a unix socket")
    client.queues.set_policy("orders", ordered=True)
    sent: list[int] = []
    handled = Handled()
    with proxying(socket) as proxy:
        dsn = make_conninfo(**{**parts, "host": "127.0.0.1", "port": proxy.port})
        with working(dsn, handled, lease=15.0, concurrency=4, patience=5.0) as record:
            for _ in range(2):
                sent += send_in_order(client, 500)
                record.wait(MessageHandled, len(sent) - 400)
                before = proxy.connections
                proxy.set(mode)
                # It notices, and its next tries meet the same.
                record.wait(ConnectionBroken, len(record.of(ConnectionBroken)) + 1)
                assert proxy.connections > before
                restored = len(record.of(ConnectionRestored))
                proxy.set("pass")
                record.wait(ConnectionRestored, restored + 1)
            wait_until(lambda: not client.queues.metrics("orders").length)
            wait_until_settled(record, sent)
    assert faults(record, handled, sent) == []


def test_held_snapshot_and_idle_transactions_hold_nobody_up(client: Client, database: str) -> None:
    with (
        psycopg.connect(database) as snapshot,
        psycopg.connect(database) as sender,
        working(database, Handled(), poll_interval=0.05) as record,
    ):
        snapshot.execute("set transaction isolation level repeatable read")
        snapshot.execute("select count(*) from pgmq.q_orders")
        sender.execute("select pgmq.send('orders', '0')")
        for number in range(10):
            client.send_batch("orders", range(50))
            record.wait(MessageSettled, 50 * (number + 1), where=lambda event: event.outcome == "acked")
        assert client.queues.metrics("orders").length == 0
        sender.commit()
        record.wait(MessageSettled, 501, where=lambda event: event.outcome == "acked")


def test_queue_that_is_dropped_and_made_again_goes_on(client: Client, database: str) -> None:
    with working(database, Handled(), poll_interval=0.05) as record:
        client.send("orders", 1)
        record.outcomes(1)
        client.queues.drop("orders")
        client.queues.create("orders")
        client.send("orders", 2)
        record.outcomes(2)
