"""Run it: `python -m lab.bench.dashboard [--messages N] [--queues N] [--dsn DSN]`: what each page takes.

Every message is a run by itself, as after as many single sends, and of a group. They are sent in batches
over two connections, and cut into runs of one by one statement between dropping and making the indexes: ten
million take minutes so, singly hours. Half of them wait in one
queue. There are three days of statistics for each queue.
"""

from __future__ import annotations

import argparse
import http.client
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import psycopg
from lab.bench import processor
from lab.bench.server import fresh, serving
from lab.bench.service.process import service
from psycopg import sql

PAGE_MS_MAX = 100.0
LOOKS = 20
BATCH = 50_000
# The large queue, and one of the others.
PAGES = {
    "all queues": "/",
    "all queues, by backlog": "/?order=backlog",
    "the large queue": "/queue?queue=queue_0",
    "messages of the large queue, from its middle": "/queue/messages?queue=queue_0&after={middle}",
    "a search that finds nothing": "/queue/messages?queue=queue_0&find=none&after={middle}",
    "failing in the large queue": "/queue/failing?queue=queue_0",
    "receivers of the large queue": "/queue/receivers?queue=queue_0",
    "groups of the large queue": "/queue/groups?queue=queue_0",
    "storage of the large queue": "/queue/storage?queue=queue_0",
    "another queue": "/queue?queue=queue_1",
    "a message": "/message?queue=queue_0&id={middle}",
    "chart of all, an hour": "/chart?of=rates&span=1h",
    "chart of one, three days": "/chart?of=rates&span=3d&queue=queue_0",
    "figures of one, three days": "/figures?span=3d&queue=queue_0",
    "dead letters": "/dead-letters",
    "dead letters of the large queue": "/queue/dead-letters?queue=queue_0",
    "policies": "/policies",
    "a policy": "/queue/policy?queue=queue_0",
    "schedules": "/schedules",
    "batches": "/batches",
    "workers": "/workers",
    "tasks": "/tasks",
    "pipeline runs": "/pipeline-runs",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill, measure and print; give the number of pages that took too long."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.dashboard", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=200)
    parser.add_argument("--dsn", help="measure on this server; makes and drops spanmq_bench_* databases")
    options = parser.parse_args(arguments)
    with serving(options.dsn) as server, fresh(server) as dsn:
        fill(dsn, options.queues, options.messages)
        with service(dsn) as (address, pid):
            pids = [pid, processor.server_of(dsn)]
            measured = {
                name: look(address, path, options.messages // 4, pids) for name, path in PAGES.items()
            }
    print(
        f"\n{options.queues} queues, {options.messages:,} messages sent one at a time; {LOOKS} looks each\n\n"
        "| page | median, ms | 9 of 10 within, ms | processor, ms | bytes |\n|---|---|---|---|---|"
    )
    for name, (times, used, size) in measured.items():
        print(f"| {name} | {median(times):.1f} | {ninth(times):.1f} | {used:.1f} | {size:,} |")
    print()
    late = [name for name, (times, *_) in measured.items() if ninth(times) > PAGE_MS_MAX]
    print(f"{'MISSED' if late else 'met'}: every page within {PAGE_MS_MAX:g} ms {', '.join(late)}")
    return len(late)


def ninth(times: Sequence[float]) -> float:
    """Return what nine of ten took at most."""
    return quantiles(times, n=10)[-1]


def look(address: str, path: str, middle: int, pids: Sequence[int | None]) -> tuple[list[float], float, int]:
    """Ask for a page again and again, over one connection.

    Gives what each took, the processor time of a look in the service and in PostgreSQL (which a busy machine
    makes no longer, as it does the rest), in ms, and the size.
    """
    place = urlsplit(address)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
    times, size, before = [], 0, 0.0
    for number in range(LOOKS + 1):
        if number == 1:
            before = _used(pids)
        began = perf_counter()
        connection.request("GET", path.format(middle=middle))
        answer = connection.getresponse()
        size = len(answer.read())
        times.append((perf_counter() - began) * 1000)
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
    connection.close()
    # Without the first, which reads templates and makes plans.
    return times[1:], (_used(pids) - before) * 1000 / LOOKS, size


def _used(pids: Sequence[int | None]) -> float:
    return sum(processor.seconds_of(pid) for pid in pids if pid is not None)


def fill(dsn: str, queues: int, messages: int) -> None:
    """Make the queues: half of the messages in the first, the rest evenly in the others."""
    from spanmq import schema

    first, *others = names = [f"queue_{number}" for number in range(queues)]
    began = perf_counter()

    def say(what: str) -> None:
        print(f"{perf_counter() - began:6.1f} s: {what}", file=sys.stderr, flush=True)

    with psycopg.connect(dsn, autocommit=True) as connection:
        schema.install(connection)
        connection.execute("set synchronous_commit = off")
        for name in names:
            connection.execute("select pgmq.create(%s)", [name])
        say(f"{queues} queues")
        with ThreadPoolExecutor(2) as threads:
            sent = [
                threads.submit(send, dsn, [first], messages // 2),
                threads.submit(send, dsn, others, messages // 2 // max(len(others), 1)),
            ]
            for sending in sent:
                sending.result()
        say("messages sent")
        give_groups(connection)
        say("groups given")
        for name in names:
            hold(connection, name)
        say("leases, failures, dead letters")
        remember(connection)
        connection.execute("vacuum analyze")
        say("statistics; all is filled")


def send(dsn: str, queues: Sequence[str], count: int) -> None:
    """Send so many messages to each queue."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        for queue in queues:
            for first in range(0, count, BATCH):
                connection.execute(
                    "select count(*) from pgmq.send_batch(%s, array(select jsonb_build_object('number', i, "
                    "'text', repeat('x', 100)) from generate_series(1, %s) i))",
                    [queue, min(BATCH, count - first)],
                )


def give_groups(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Give each message a group, of all queues at once."""
    cursor = connection.execute(
        "select indexrelid::regclass::text, pg_get_indexdef(indexrelid) from pg_index "
        "where indrelid = 'spanmq_core.state'::regclass and not indisprimary"
    )
    indexes: list[tuple[str, str]] = [(name, text) for name, text in cursor.fetchall()]
    connection.execute("set maintenance_work_mem = '256MB'")
    with connection.transaction():
        for name, _ in indexes:
            connection.execute(sql.SQL("drop index {}").format(sql.Identifier(*name.split("."))))
        connection.execute(
            """
            update spanmq_core.state set group_key = 'customer-' || msg_id % 10000,
                group_hash = hashtextextended('customer-' || msg_id % 10000, 0)
            where group_hash is null
            """
        )
        for _, text in indexes:
            connection.execute(text.encode())
    connection.execute("vacuum analyze spanmq_core.state")


def hold(connection: psycopg.Connection[object], queue: str) -> None:
    """Let receivers hold a hundred leases, and a hundred messages have failed; as many are dead."""
    # With a number of its own each is a call of its own.
    connection.execute(
        "select count(*) from generate_series(1, 100) i cross join lateral spanmq.receive(%s, 1, 3600 + i)",
        [queue],
    )
    connection.execute(
        "select count(*) from spanmq.receive(%s, 100, 3600) r "
        "cross join lateral spanmq.nack(%s, r.lease_id, array[r.msg_id], 'a timeout', retry_in => 3600)",
        [queue, queue],
    )
    connection.execute(
        "select count(*) from spanmq.receive(%s, 100, 3600) r "
        "cross join lateral spanmq.reject(%s, r.lease_id, array[r.msg_id], 'no such customer ' || r.msg_id)",
        [queue, queue],
    )


def remember(connection: psycopg.Connection[object]) -> None:
    """Write three days of samples, a minute apart."""
    connection.execute(
        """
        insert into spanmq_core.statistics
        select s.queue_id, clock_timestamp() - m * interval '1 minute', 60, 600, 590, 580, 10, 1,
               count(*) over (partition by s.queue_id), 1000, 200, 12.5
        from spanmq_core.queue s cross join generate_series(1, 3 * 1440) m
        """
    )


if __name__ == "__main__":
    raise SystemExit(main())
