"""Two hundred rounds of whatever begins and ends: nothing is left of them, on either side."""

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.patience import wait_until
from tests.tasks import computing

from spanmq import AsyncClient, Client, Message
from spanmq.tasks import Tasks
from spanmq.worker import Worker

ROUNDS = 200
QUEUES = 1
MANY_ROUNDS = 40
# Of what takes a tenth of a second.
FEW_ROUNDS = 20
CONNECTIONS = (
    "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    " and backend_type = 'client backend'"
)
TABLES = (
    "select c.oid::regclass::text from pg_class c"
    " where c.relnamespace in ('spanmq_core'::regnamespace, 'spanmq_call'::regnamespace) and c.relkind in ('r', 'p')"
    " and not c.relispartition and c.relname !~ '^log_' order by 1"
)
# What is kept for a time, and then deleted; the changes of queues are kept for 90 days.
KEPT_A_TIME = {"spanmq_core.change", "spanmq_core.horizon", "spanmq_core.listener", "spanmq_core.batch"}
KEPT_A_TIME |= {"spanmq_core.result", "spanmq_core.task_time"}


tasks = Tasks("jobs")


@tasks.task
async def note(number: int) -> None: ...


def names() -> Iterator[str]:
    while True:
        yield f"n{uuid4().hex[:12]}"


NAME = names()


def client_opened_and_closed(dsn: str) -> None:
    with Client(dsn) as client:
        client.receive("jobs")


def client_that_waits(dsn: str) -> None:
    with Client(dsn) as client:
        client.receive("jobs", wait=0.001)


def async_client_opened_and_closed(dsn: str) -> None:
    async def use() -> None:
        async with AsyncClient(dsn) as client:
            await client.receive("jobs", wait=0.001)

    asyncio.run(use())


def queue_created_and_dropped(dsn: str) -> None:
    with Client(dsn) as client:
        queue = next(NAME)
        client.queues.create(queue)
        client.send(queue, 1)
        client.queues.drop(queue)


def schedule_created_and_deleted(dsn: str) -> None:
    with Client(dsn) as client:
        name = next(NAME)
        client.schedules.create(name, "jobs", "0 0 * * *", 1)
        client.schedules.delete(name)


def token_made_and_revoked(dsn: str) -> None:
    with Client(dsn) as client:
        name = next(NAME)
        client.admin.tokens.create(name, queues=["jobs"], verbs=["send"])
        client.admin.tokens.revoke(name)


def batch_that_ends(dsn: str) -> None:
    with Client(dsn) as client:
        with client.transaction() as transaction:
            message = transaction.send("jobs", 1)
            transaction.batches.create("jobs", 2, {"jobs": [message]})
        client.delete("jobs", message)
        client.admin.maintain()
        client.queues.purge("jobs")


def send_of_a_loop(dsn: str) -> None:
    tasks.connect(dsn)
    asyncio.run(note.send_async(1))


def sends_of_a_loop(dsn: str) -> None:
    async def use() -> None:
        await asyncio.gather(*[note.send_async(number) for number in range(8)])

    tasks.connect(dsn)
    asyncio.run(use())


async def handle(_: Message) -> None: ...


def handle_plainly(_: Message) -> None: ...


def workers_of_a_thread(dsn: str) -> None:
    for handler in (handle, handle_plainly):
        with Client(dsn) as client:
            client.send("jobs", 1)
        Worker("jobs", handler, dsn=dsn, name="cycles", until_empty=True, observers=()).run()


def clients_and_workers_of_a_loop(dsn: str) -> None:
    """Use them in a loop that goes on, which has no task more afterwards."""

    async def use() -> None:
        before = asyncio.all_tasks()
        async with AsyncClient(dsn) as client:
            await asyncio.gather(*[client.send("jobs", number) for number in range(4)])
            await client.receive("jobs", wait=0.001)
        for handler in (handle, handle_plainly):
            worker = Worker("jobs", handler, dsn=dsn, name="cycles", until_empty=True, observers=())
            await worker.work(signals=False)
        left = asyncio.all_tasks() - before
        if left:
            await asyncio.wait(left, timeout=1)
        assert asyncio.all_tasks() == before

    asyncio.run(use())


def process_pool(dsn: str) -> None:
    computing.tasks.connect(dsn)
    computing.tasks.create_queues()
    for number in range(2):
        computing.where.send(number)
    computing.tasks.close()
    assert computing.tasks.run(processes=2, until_empty=True, name="cycles", observers=()) == 2


def subscription_made_and_dropped(dsn: str) -> None:
    with Client(dsn) as client:
        queue = next(NAME)
        client.subscriptions.create(queue, "jobs")
        client.send("jobs", 1)
        [message] = client.receive(queue)
        client.ack(message)
        client.queues.drop(queue)
        client.queues.purge("jobs")


CYCLES: dict[Callable[[str], None], int] = {
    client_opened_and_closed: ROUNDS,
    client_that_waits: FEW_ROUNDS,
    async_client_opened_and_closed: FEW_ROUNDS,
    queue_created_and_dropped: ROUNDS,
    schedule_created_and_deleted: ROUNDS,
    token_made_and_revoked: ROUNDS,
    batch_that_ends: FEW_ROUNDS,
    send_of_a_loop: MANY_ROUNDS,
    sends_of_a_loop: FEW_ROUNDS,
    workers_of_a_thread: FEW_ROUNDS,
    clients_and_workers_of_a_loop: FEW_ROUNDS,
    process_pool: 3,
    subscription_made_and_dropped: FEW_ROUNDS,
}


class Counts:
    """What this process and its database have: threads, open files, connections, and rows of each table."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def processes(self) -> dict[str, int]:
        gc.collect()
        row = self._connection.execute(CONNECTIONS).fetchone()
        return {
            "threads": threading.active_count(),
            "files": len([*Path("/proc/self/fd").iterdir()]),
            "connections": 0 if row is None else int(row[0]),
        }

    def _maintain(self) -> bool:
        did = self._connection.execute("select from spanmq.maintain(100)").fetchall()
        return bool(did or self._connection.execute("select from spanmq_core.dropped_queue").fetchall())

    def rows(self) -> dict[str, int]:
        # What was dropped is removed in steps, after all that was open on the server then has ended.
        wait_until(lambda: not self._maintain())
        counts = {}
        for (table,) in self._connection.execute(TABLES).fetchall():
            row = self._connection.execute(f"select count(*) from {table}".encode()).fetchone()
            counts[table] = 0 if row is None else int(row[0])
        return {table: count for table, count in counts.items() if table not in KEPT_A_TIME}


@pytest.mark.parametrize("cycle", CYCLES, ids=lambda cycle: cycle.__name__)
def test_rounds_leave_nothing(database: str, cycle: Callable[[str], None]) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pgmq.create('jobs')")
        counts = Counts(connection)
        for _ in range(2):  # what is made once
            cycle(database)
        before, rows = counts.processes(), counts.rows()
        for _ in range(CYCLES[cycle]):
            cycle(database)
        connection.execute("select pgmq.purge_queue('jobs')")
        # Backends and threads end a moment later.
        with suppress(AssertionError):
            wait_until(lambda: not grown(before, counts.processes()), seconds=5)
        assert grown(before, counts.processes()) == {}
        assert grown(rows, counts.rows()) == {}


def grown(before: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    """Return by how much each count has grown; a queue may have a row more for its upkeep."""
    return {what: count - before[what] for what, count in now.items() if count > before[what] + QUEUES}
