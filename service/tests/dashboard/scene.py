"""A database in which something has happened: what pages show."""

from collections.abc import Sequence

import psycopg
from psycopg.types.json import Jsonb

from spanmq.client import Client

HOSTILE = '<script>alert("x")</script>&<b>'
HOSTILE_QUEUE = '"><img src=x onerror=alert(1)>/../'
# Longer than all tests take: a scene is shared.
HELD_SECONDS = 36_000.0
TRACEBACK = "Traceback:\n  File bank.py, line 12\nTimeoutError"


def fill(dsn: str) -> None:
    """Make queues with messages in every state, and six hours of history."""
    with Client(dsn) as client:
        for name in ("orders", "invoices", "mail", "empty", "Reports 2030", HOSTILE_QUEUE):
            client.queues.create(name)
        _orders(client)
        _invoices(client)
        _mail(client)
        _hostile(client)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for queue, backlog, rate in (("orders", 40_000, 300), ("invoices", 300, 20), ("mail", 60, 5)):
            history(connection, queue, backlog, rate)


def work(dsn: str) -> None:
    """Let messages recur, batches be open and ended, and jobs have run."""
    with Client(dsn) as client:
        client.schedules.create("nightly", "orders", "0 3 * * *", {"n": 1})
        client.batches.create("orders", {"n": 1}, {"invoices": [299, 300, 301]})
        client.batches.create(HOSTILE_QUEUE, {HOSTILE: HOSTILE}, {})
        client.admin.maintain()
        times = [{"kind": HOSTILE, "failed": True, "bucket": 16, "n": 9}]
        report_worker(dsn, HOSTILE_QUEUE, HOSTILE, slots=10, held=1, times=times)
        done = client.admin.pipeline_runs.begin("export", "orders", target="/lake")
        client.admin.pipeline_runs.end(done, report={"exported": 1234})
        failed = client.admin.pipeline_runs.begin("backfill", HOSTILE_QUEUE, target=HOSTILE)
        client.admin.pipeline_runs.end(failed, error=HOSTILE)
        client.admin.pipeline_runs.begin("migrate", "mail", target="amqp")


def report_worker(
    dsn: str,
    queue: str,
    worker: str,
    *,
    slots: int,
    held: int,
    times: Sequence[dict[str, object]] = (),
    progress: Sequence[dict[str, object]] = (),
    breaker: dict[str, object] | None = None,
    slow: Sequence[dict[str, object]] = (),
) -> None:
    """Report a worker, as it does itself."""
    report = {"held": held, "times": list(times), "progress": list(progress), "slow": list(slow)}
    report |= {} if breaker is None else {"breaker": breaker}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "select spanmq.report_worker(queues => array[%s], worker => %s, running_for => 60, slots => %s,"
            " reports => %s)",
            [queue, worker, slots, Jsonb({queue.lower(): report})],
        )


def history(connection: psycopg.Connection[object], queue: str, backlog: int, rate: int) -> None:
    """Write samples a minute apart, as maintain() would have."""
    connection.execute(
        """
        insert into spanmq_core.statistics
        select q.queue_id, clock_timestamp() - m * interval '1 minute', 60,
               s.sent, s.sent * 0.98, s.sent * 0.97, s.sent * 0.01, s.sent * 0.002,
               s.backlog, s.backlog * 0.9, s.backlog * 0.1, s.backlog / 200.0
        from spanmq_core.queue q
        cross join generate_series(0, 360) m
        cross join lateral (
            select %s * 60 * (1 + 0.5 * sin(m / 20.0)) as sent, %s * (1 + 0.6 * cos(m / 35.0)) as backlog) s
        where q.name = %s
        """,
        [rate, backlog, queue],
    )


def _orders(client: Client) -> None:
    client.queues.set_policy("orders", ordered=True, max_attempts=2, dead_letter_blocks_group=True)
    for number in range(40):
        client.send("orders", {"order": number, "total": 17.5}, group=f"customer-{number % 8}")
    client.send("orders", {"order": 99}, group="customer-later", delay=HELD_SECONDS)
    taken = client.receive("orders", 3, lease=HELD_SECONDS)
    client.nack(taken[:1], "connection refused by the bank", retry_in=HELD_SECONDS)
    client.reject(taken[1:2], "no such customer", category="BUSINESS", error_class="LookupError")


def _invoices(client: Client) -> None:
    client.queues.set_policy("invoices", max_attempts=2)
    client.send_batch("invoices", [{"invoice": number} for number in range(300)])
    for _ in range(2):
        taken = client.receive("invoices", 2, lease=HELD_SECONDS)
        client.nack(taken, "timeout after 30 s", retry_in=0, traceback=TRACEBACK)
    client.receive("invoices", 20, lease=HELD_SECONDS)


def _mail(client: Client) -> None:
    client.send_batch("mail", [{"to": f"person{number}@example.org"} for number in range(60)])
    client.queues.pause("mail")


def _hostile(client: Client) -> None:
    """Put the text everywhere: message 1 waits to be tried again, 2 is dead."""
    client.queues.set_schema(HOSTILE_QUEUE, {"type": "object", "title": HOSTILE})
    told = {"error_class": HOSTILE, "traceback": HOSTILE, "worker": HOSTILE}
    both = [{HOSTILE: HOSTILE}] * 2
    client.send_batch(HOSTILE_QUEUE, both, headers=both, group=[HOSTILE] * 2)
    first, second = client.receive(HOSTILE_QUEUE, 2)
    client.reject([second], HOSTILE, **told)
    client.nack([first], HOSTILE, retry_in=HELD_SECONDS, **told)
