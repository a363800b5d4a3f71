"""A client and a schema that are one release apart."""

import logging
from typing import Any

import psycopg
import pytest
from tests.client.conftest import LATER
from tests.worker.running import working

import spanmq
from spanmq import Client, Message
from spanmq.errors import SchemaVersionError
from spanmq.model import Result
from spanmq.worker.breaker import BreakerPolicy
from spanmq.worker.event import MessageSettled

# A function that returns the rows of the real one without a column.
LACKING = """
alter function spanmq.list_changes(text, bigint, int) rename to list_changes_of_later;
create function spanmq.list_changes(queue text default null, before bigint default null, qty int default 100)
returns table ({columns}) language sql as $$
    select {names} from spanmq.list_changes_of_later(queue, before, qty) $$"""
COLUMNS = {
    "change_id": "bigint",
    "changed_at": "timestamptz",
    "role": "text",
    "actor": "text",
    "action": "text",
    "queue_name": "text",
    "details": "jsonb",
}
POLICY = """
create or replace function spanmq_call.get_policy(queue text) returns jsonb language sql security definer as $$
    select spanmq_core.settings_of(q, spanmq_core.policy_of(q.queue_id)) - '{setting}'
    from spanmq_core.find_queue(queue) q $$"""


def execute(dsn: str, text: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(text.encode())


def lists(client: Client) -> list[Any]:
    """Return what a client reads of a queue with a message, a dead letter, a schedule and a change."""
    return [
        client.queues.policy("orders"),
        client.queues.list(),
        client.peek("orders"),
        client.dead_letters.list("orders"),
        client.schedules.list(),
        client.batches.list(),
        client.inspect.changes("orders"),
    ]


def test_client_leaves_out_what_a_later_schema_has_more_and_logs_its_version_once(
    client: Client, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.send_batch("orders", [1, 2])
    client.reject(client.receive("orders"), "boom")
    client.schedules.create("yearly", "orders", "0 0 1 1 *", 3)
    client.batches.create("orders", 4, {"orders": [2]})
    before = lists(client)
    assert all(before)
    execute(database, LATER)
    with caplog.at_level(logging.WARNING, "spanmq"):
        for _ in range(2):
            with Client(database) as other:
                assert lists(other) == before
        assert {each.outcome for each in client.ack(client.receive("orders", 9))} == {"acked"}
    assert [each.getMessage() for each in caplog.records] == [
        f"schema_version schema=9.0.0 client={spanmq.__version__}"
    ]


@pytest.mark.parametrize("column", ["actor", "details"])
def test_column_that_an_older_schema_lacks_is_none(client: Client, database: str, column: str) -> None:
    client.queues.set_policy("orders", lease=5)
    without(database, column)
    [change] = client.inspect.changes("orders", limit=1)
    assert (change.action, getattr(change, column)) == ("set_policy", None)


def test_setting_that_an_older_schema_lacks_has_its_default(client: Client, database: str) -> None:
    client.queues.set_policy("orders", redrive_delay=7, lease=5)
    execute(database, POLICY.format(setting="redrive_delay"))
    policy = client.queues.policy("orders")
    assert (policy.lease, policy.redrive_delay) == (5, 60)


def test_worker_receives_from_a_schema_of_0_1_0(client: Client, database: str) -> None:
    execute(
        database,
        """drop function spanmq.receive(text, int, double precision, int, boolean, int, boolean);
        create function spanmq.receive(
            queue text, qty int default 1, lease double precision default null, slots int default 1,
            alone boolean default false
        ) returns setof spanmq.leased_message language sql as $$
            select * from spanmq_call.receive(queue, qty, lease, slots, alone) $$;
        drop function spanmq.report_worker(text[], text, double precision, int, jsonb);
        create function spanmq.report_worker(
            queues text[], worker text, running_for double precision default null, slots int default 0,
            reports jsonb default '{}'
        ) returns void language sql as '' """,
    )
    client.send_batch("orders", range(20))

    def handle(message: Message) -> None:
        if message.message_id <= 10:
            raise ConnectionError("down")

    policy = BreakerPolicy(failures=5, tries=3, pause=0.05)
    with working(database, handle, concurrency=1, breaker=policy) as record:
        record.wait(MessageSettled, 10, where=lambda event: event.outcome == "acked")


def test_progress_and_errors_of_results_may_be_of_an_older_schema(client: Client, database: str) -> None:
    worker = "now() as started_at, now() as seen_at, 1 as slots, 0 as held, null::timestamptz as breaker_open_until"
    execute(
        database,
        f"""create view spanmq.report as select 'mine' as worker, 'orders' as queue, {worker};
        create view spanmq.outcome as select 7::bigint as msg_id, 'dead' as state, null::jsonb as result;
        drop function spanmq.list_workers(text[]);
        create function spanmq.list_workers(queues text[] default null) returns setof spanmq.report
        language sql as $$ table spanmq.report $$;
        drop function spanmq.list_results(text, bigint[]);
        create function spanmq.list_results(queue text, msg_ids bigint[]) returns setof spanmq.outcome
        language sql as $$ table spanmq.outcome $$""",
    )
    assert [each.progress for each in client.health.workers()] == [()]
    assert client.results.list("orders", 7) == [Result("orders", 7, "dead")]


def test_column_that_has_to_exist_is_named(client: Client, database: str) -> None:
    client.queues.set_policy("orders", lease=5)
    without(database, "action")
    with pytest.raises(SchemaVersionError, match="'action'") as refused:
        client.inspect.changes("orders")
    assert (refused.value.code, refused.value.queue) == ("schema_older", "orders")


def without(dsn: str, column: str) -> None:
    """Make the list of changes one of an older schema, which lacks a column."""
    columns = [f"{name} {kind}" for name, kind in COLUMNS.items() if name != column]
    names = [name for name in COLUMNS if name != column]
    execute(dsn, LACKING.format(columns=", ".join(columns), names=", ".join(names)))
