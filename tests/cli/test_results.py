"""Batches, kinds of tasks and results: what the dashboard and the client show."""

from tests.cli.program import do, records, spanmq

from spanmq.client import Client


def test_batches_are_listed(orders: str) -> None:
    assert spanmq("batch list", dsn=orders).out == "no batches\n"
    with Client(orders) as client:
        sent = client.send_batch("orders", [1, 2])
        batch_id = client.batches.create("orders", {"done": True}, {"orders": sent})
    [batch] = records("batch list", "orders", dsn=orders)
    assert (batch["batch_id"], batch["total"], batch["unsettled"], batch["body"]) == (
        batch_id,
        2,
        2,
        {"done": True},
    )
    assert records("batch list", "--before", batch_id, dsn=orders) == []
    assert records("batches", dsn=orders) == [batch]


def test_results_are_shown(orders: str) -> None:
    with Client(orders) as client:
        done, failed, waiting = client.send_batch("orders", [1, 2, 3])
        first, second = client.receive("orders", 2)
        client.results.ack(first, {"sum": 3})
        client.reject(second, "no such number")
    ids = (done, failed, waiting)
    found = records("result get", "orders", *ids, dsn=orders)
    assert [(each["state"], each["message_state"], each["value"], each["error"]) for each in found] == [
        ("stored", None, {"sum": 3}, None),
        ("dead", None, None, "no such number"),
        ("missing", "pending", None, None),
    ]


def test_kinds_of_tasks_are_listed(orders: str) -> None:
    assert spanmq("task list", dsn=orders).out == "no worker has handled a task in this time\n"
    times = '[{"kind": "ship", "failed": false, "bucket": 10, "n": 90}]'
    progress = '[{"msg_id": 7, "kind": "ship", "share": 0.5, "note": "page 30"}]'
    reports = f'{{"orders": {{"times": {times}, "progress": {progress}}}}}'
    do(orders, f"select spanmq.report_worker('{{orders}}', 'a', 5, 1, '{reports}')")
    [kind] = records("task list", "--seconds", 600, dsn=orders)
    assert spanmq("task list", dsn=orders).out.splitlines()[0].endswith("P50 SECONDS  P95 SECONDS")
    assert (kind["queue"], kind["kind"], kind["done"], kind["failed"]) == ("orders", "ship", 90, 0)
    do(orders, "update spanmq_core.task_time set minute = minute - interval '5 minutes'")
    steps = records("task statistics", "orders", "ship", "--seconds", 900, dsn=orders)
    assert [each["done"] for each in steps if each["done"]] == [90]
    shown = spanmq("queue workers", dsn=orders).out
    assert "message id 7 task ship share 0.5 note page 30" in shown
    assert "Progress(" not in shown
