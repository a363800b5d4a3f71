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
        """ spanmq.report_worker('{orders}', 'b', 7, 1,"""
        """ '{"orders": {"held": 1, "breaker": {"open_for": 60, "opening": 1}}}')"""
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
    figures = [tuple(map(str, row)) for row in orders.rows(kinds)]
    # 2^((10 - 0.5) / 2) ms, 2^((24 - 0.5) / 2) ms
    assert figures == [("mail", "0", "2", "0.001", "0.00"), ("ship", "192", "8", "0.027", "3.44")]
    orders.rows("update spanmq_core.task_time set minute = minute - interval '2 hours'")
    assert orders.rows(kinds) == []
    assert len(orders.rows(kinds.replace("()", "(array['ORDERS'], 1e9)"))) == 2
    orders.rows("update spanmq_core.task_time set minute = minute - interval '1 day'")
    orders.rows("select spanmq.maintain(100)")
    assert orders.value("select count(*) from spanmq_core.task_time") == 0


def test_statistics_of_a_task_have_a_row_for_each_step(orders: Queue) -> None:
    orders.rows(
        REPORT,
        '[{"kind": "ship", "failed": false, "bucket": 10, "n": 9},'
        ' {"kind": "ship", "failed": true, "bucket": 20, "n": 1},'
        ' {"kind": "mail", "failed": true, "bucket": 0, "n": 7}]',
    )
    steps = "spanmq.task_statistics('ORDERS', 'ship'"
    call = f"select done, failed, round(p50::numeric, 3), round(p95::numeric, 3) from {steps}"
    # The minute under way is not complete.
    assert set(orders.rows(f"{call})")) == {(0, 0, None, None)}
    orders.rows("update spanmq_core.task_time set minute = minute - interval '5 minutes'")
    figures = [tuple(map(str, row)) for row in orders.rows(f"{call})")]
    assert len(figures) == 60
    # 2^((10 - 0.5) / 2) ms, 2^((20 - 0.5) / 2) ms
    assert [row for row in figures if row[0] != "0"] == [("9", "1", "0.027", "0.861")]
    assert len(orders.rows(f"{call}, 1800, 900)")) == 2
    began = f"select array_agg(extract(epoch from began_at)::int % 900) from {steps}, 7200, 900)"
    assert orders.value(began) == [0] * 8


def test_worker_that_is_asked_to_stop_learns_so_from_its_reports(orders: Queue) -> None:
    orders.rows("select pgmq.create('others')")
    report = "select queue, command from spanmq.report_worker('{orders,others}', 'a', %s)"
    assert orders.rows(report, 100) == []
    orders.rows("select spanmq.report_worker('{orders}', 'b', 100)")
    assert orders.value("select spanmq.stop_worker('a')") == 2
    assert orders.value("select spanmq.stop_worker('none')") == 0
    assert orders.rows(
        "select worker, stop_asked_at is not null from spanmq.list_workers() group by 1, 2"
    ) == [
        ("a", True),
        ("b", False),
    ]
    assert orders.rows(report, 100) == [(None, "stop")]
    assert orders.rows(report, 100) == [(None, "stop")]
    assert orders.rows("select * from spanmq.report_worker('{orders}', 'b', 100)") == []
    # One that has begun since has its name, while the one before still ends.
    assert orders.rows(report, 0) == []
    assert orders.rows("select distinct stop_asked_at from spanmq.list_workers() where worker = 'a'") == [
        (None,)
    ]
    assert orders.rows(report, 100) == [(None, "stop")]
    orders.rows("update spanmq_core.worker set seen_at = now() - interval '2 minutes'")
    assert orders.value("select spanmq.stop_worker('a')") == 0


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
    with pytest.raises(psycopg.Error, match="slow and stacks"), orders.connection.transaction():
        orders.rows(REPORT.replace("times", "slow"), "{}")
    orders.rows("select spanmq.report_worker('{orders}', 'a', 10, 10)")
    assert orders.value(progress) == []


def test_breakers_of_made_up_names_are_bounded(orders: Queue) -> None:
    """A row for each name would stay for as long as its report says, which is up to a day."""
    report = (
        "select spanmq.report_worker('{orders}', 'w' || i, 1, 1, '{\"orders\": {\"breaker\":"
        ' {"open_for": 9, "opening": 1}}}\') from generate_series(%s::int, %s::int) i'
    )
    orders.rows(report, 1, 1001)
    # Workers that are seen no more leave theirs.
    orders.rows("update spanmq_core.worker set seen_at = seen_at - interval '1 hour'")
    orders.rows(report, 2001, 2100)
    assert orders.value("select count(*) from spanmq_core.breaker") == 1000
    orders.rows(report, 1, 1)
    assert orders.value("select count(*) from spanmq_core.breaker where worker = 'w1'") == 1


def test_reports_of_made_up_names_are_bounded(orders: Queue) -> None:
    """A thousand workers, and in a minute ten thousand times and what one report more has."""
    orders.rows("select spanmq.report_worker('{orders}', 'w' || i, 1) from generate_series(1, 1001) i")
    assert orders.value("select count(*) from spanmq_core.worker") == 1000
    orders.rows("select spanmq.report_worker('{orders}', 'w1', 2, 7)")
    assert orders.value("select slots from spanmq_core.worker where worker = 'w1'") == 7
    minute = "select date_trunc('minute', clock_timestamp())"
    began = None
    while began != orders.value(minute):  # again, if a minute ended in between
        began = orders.value(minute)
        orders.rows("delete from spanmq_core.task_time")
        for report in range(4):
            times = [
                {"kind": f"kind {report} {i}", "failed": False, "bucket": 1, "n": 1} for i in range(4000)
            ]
            orders.rows(REPORT, Jsonb(times))
    assert orders.value("select count(*) from spanmq_core.task_time") == 12000


def test_handlers_that_take_long_are_listed(orders: Queue) -> None:
    slow = '[{"msg_id": 1, "kind": "ship", "seconds": 61.5, "more": 1}, {"msg_id": 2, "seconds": 3}]'
    orders.rows(REPORT.replace("times", "slow"), slow)
    assert orders.value("select slow from spanmq.list_workers()") == [
        {"msg_id": 1, "kind": "ship", "seconds": 61.5},
        {"msg_id": 2, "kind": None, "seconds": 3},
    ]
    orders.rows("select spanmq.report_worker('{orders}', 'a', 6, 1)")
    assert orders.value("select slow from spanmq.list_workers()") == []


STACKS = '[{"msg_id": 1, "kind": "ship", "seconds": 61.5, "stack": "line 1"}]'


def test_worker_is_asked_for_stacks_and_answers_once(orders: Queue) -> None:
    report = (
        REPORT.replace("times", "stacks").replace("select spanmq", "select r.queue, r.command from spanmq")
        + " r"
    )
    assert orders.rows(report, STACKS) == []
    assert orders.value("select spanmq.ask_stacks('orders', 'none')") is False
    assert orders.value("select spanmq.get_stacks('orders', 'a')") is None
    assert orders.value("select spanmq.ask_stacks('orders', 'a')") is True
    assert orders.value("select stacks_at from spanmq_core.worker") is None
    orders.rows("update spanmq_core.worker set stacks_asked_at = stacks_asked_at - interval '1 second'")
    assert orders.rows("select * from spanmq.report_worker('{orders}', 'a', 6, 1)") == [("orders", "stacks")]
    assert orders.value("select spanmq.get_stacks('orders', 'a')") is None
    assert orders.rows(report, STACKS) == []
    assert orders.value("select spanmq.get_stacks('orders', 'a')") == [
        {"msg_id": 1, "kind": "ship", "seconds": 61.5, "stack": "line 1"}
    ]
    # Nobody asked for more.
    orders.rows(report, "[]")
    assert len(orders.value("select spanmq.get_stacks('orders', 'a')")) == 1
    orders.rows("update spanmq_core.worker set stacks_asked_at = now() + interval '1 second'")
    assert orders.value("select spanmq.get_stacks('orders', 'a')") is None
    orders.rows(
        "update spanmq_core.worker set (stacks_asked_at, stacks_at) = (now() - interval '2 minutes', null)"
    )
    assert orders.rows("select * from spanmq.report_worker('{orders}', 'a', 6, 1)") == []
