"""What workers report, and who is listed."""

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.sql.queue import Queue

REPORT = """
    select spanmq.report_worker(
        '{orders}', 'a', 5, 1, jsonb_build_object('orders', jsonb_build_object('times', %s::jsonb)))
"""
PROGRESS = REPORT.replace("times", "progress")
WORKERS = "select worker, slots, held, breaker_open_until is not null from spanmq.list_workers()"


def test_worker_is_listed_until_it_stops_or_is_silent(orders: Queue) -> None:
    orders.rows(
        "select spanmq.report_worker('{orders}', 'a', 5000, 10),"
        """ spanmq.report_worker('{Orders,none}', 'b', 7, 1, '{"orders": {"held": 1}}')"""
    )
    orders.rows(
        """select spanmq.report_worker('{orders}', 'a', 7, 10, '{"orders": {"held": 3}}'),"""
        " spanmq.report_breaker('orders', 'b', 60)"
    )
    assert orders.rows(WORKERS) == [("a", 10, 3, False), ("b", 1, 1, True)]
    # As its first report told, however long this machine took for the second one.
    running = "select extract(epoch from seen_at - started_at) from spanmq.list_workers()"
    assert 5000 <= orders.value(running) < 6000
    orders.rows("update spanmq_core.worker set seen_at = now() - interval '2 minutes' where worker = 'b'")
    assert len(orders.rows(WORKERS)) == 1
    orders.rows("select spanmq.report_worker('{orders}', 'a')")
    assert orders.value("select count(*) from spanmq_core.worker") == 0


def test_kinds_have_counts_and_percentiles(orders: Queue) -> None:
    times = (
        '[{"kind": "ship", "failed": false, "bucket": 10, "n": 90},'
        ' {"kind": "ship", "failed": true, "bucket": 20, "n": 4},'
        ' {"kind": "ship", "failed": false, "bucket": 24, "n": 6},'
        ' {"kind": "mail", "failed": true, "bucket": 0, "n": 1}]'
    )
    for _ in range(2):
        orders.rows(REPORT, times)
    kinds = "select kind, done, failed, round(p50::numeric, 3), round(p95::numeric, 2) from spanmq.list_task_kinds()"
    found = [tuple(map(str, row)) for row in orders.rows(kinds)]
    # 2^((10 - 0.5) / 2) ms, 2^((24 - 0.5) / 2) ms
    assert found == [("mail", "0", "2", "0.001", "0.00"), ("ship", "192", "8", "0.027", "3.44")]
    orders.rows("update spanmq_core.task_time set minute = minute - interval '2 hours'")
    assert orders.rows(kinds) == []
    assert len(orders.rows(kinds.replace("()", "(array['ORDERS'], 1e9)"))) == 2
    orders.rows("update spanmq_core.task_time set minute = minute - interval '1 day'")
    orders.rows("select spanmq.maintain(100)")
    assert orders.value("select count(*) from spanmq_core.task_time") == 0


def test_progress_is_that_of_the_last_report(orders: Queue) -> None:
    progress = "select progress from spanmq.list_workers()"
    entry = {"msg_id": 7, "kind": None, "share": 0.5, "note": "x" * 200}
    orders.rows(PROGRESS, Jsonb([entry | {"more": "x"}] * 100))
    assert orders.value(progress) == [entry] * 100
    wrongs: list[Any] = [
        [entry] * 101,
        [entry | {"share": 1.5}],
        [entry | {"note": "x" * 201}],
        [entry | {"msg_id": None}],
        [entry | {"kind": "x" * 256}],
        {},
    ]
    for wrong in wrongs:
        with (
            pytest.raises(psycopg.Error, match="reports must be an object"),
            orders.connection.transaction(),
        ):
            orders.rows(PROGRESS, Jsonb(wrong))
    orders.rows("select spanmq.report_worker('{orders}', 'a', 10, 10)")
    assert orders.value(progress) == []


@pytest.mark.parametrize(
    "times",
    [
        "[1]",
        "[null]",
        "[[]]",
        '[{"kind": "a", "failed": "maybe", "bucket": 1, "n": 1}]',
        '[{"kind": "a", "failed": true, "bucket": 1.5, "n": 1}]',
        '[{"kind": "a", "failed": true, "bucket": 1, "n": 1e30}]',
        '[{"kind": null, "failed": true, "bucket": 1, "n": 1}]',
    ],
)
def test_times_of_another_form_are_refused(orders: Queue, times: str) -> None:
    with (
        pytest.raises(psycopg.Error, match="reports must be an object") as raised,
        orders.connection.transaction(),
    ):
        orders.rows(REPORT, times)
    assert raised.value.sqlstate == "MQ002"
    assert orders.rows(WORKERS) == []
