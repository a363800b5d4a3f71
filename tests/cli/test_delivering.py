"""Failing, holding and asking, from the command line."""

import pytest
from tests.cli.program import ask, do, records, spanmq
from tests.sql.queue import breaker_report


@pytest.fixture
def filled(orders: str) -> str:
    """A queue with five messages, 1 to 5."""
    do(orders, "select pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(1, 5) n))")
    return orders


def test_message_that_never_failed_is_told_in_words(filled: str) -> None:
    assert spanmq("message failures", "orders", 5, dsn=filled).out == "it never failed\n"


def test_lease_is_named_and_held(filled: str) -> None:
    lease_id = records("receive", "orders", "-n", 5, "--lease", 600, dsn=filled)[0]["lease_id"]
    assert records("message extend", "orders", lease_id, 1, "--seconds", 600, dsn=filled) == [
        {"message_id": 1, "outcome": "extended"}
    ]
    assert records("nack", "orders", lease_id, 1, "--category", "PERMANENT", dsn=filled) == [
        {"message_id": 1, "outcome": "dead"}
    ]
    assert records("message reject", "orders", lease_id, 2, 9, dsn=filled) == [
        {"message_id": 2, "outcome": "dead"},
        {"message_id": 9, "outcome": "stale"},
    ]
    assert records("message release", "orders", lease_id, 3, dsn=filled)[0]["outcome"] == "released"
    extended = records("message extend", "orders", lease_id, 3, 4, "--seconds", 1, "--shorten", dsn=filled)
    assert extended == [{"message_id": 3, "outcome": "stale"}, {"message_id": 4, "outcome": "extended"}]


def test_pause_and_resume(filled: str) -> None:
    assert "paused" not in spanmq("queue list", dsn=filled).out.lower()
    assert records("queue pause", "orders", dsn=filled) == [{"queue": "orders", "is_paused": True}]
    do(
        filled,
        (
            "select spanmq.report_worker('{orders}', 'worker-7', 1, 1,"
            """ '{"orders": {"breaker": {"open_for": 600, "opening": 1}}}')"""
        ),
    )
    for verb in ("list", "health", "metrics", "count", "latest-statistics"):
        assert "  paused, breaker open" in spanmq("queue", verb, dsn=filled).out.splitlines()[1], verb
        assert records("queue", verb, dsn=filled)[0]["is_paused"] is True, verb
    assert records("queue close-breaker", "orders", dsn=filled) == [{"queue": "orders", "closed": 1}]
    assert "breaker" not in spanmq("queue", "list", dsn=filled).out
    assert records("receive", "orders", dsn=filled) == []
    assert spanmq("receive", "orders", dsn=filled).out == "no messages: the queue is paused\n"
    assert spanmq("message read", "orders", dsn=filled).out == "no messages: the queue is paused\n"
    assert spanmq("queue resume", "orders", dsn=filled).out == "receivers get messages of orders again\n"
    assert len(records("receive", "orders", dsn=filled)) == 1
    assert ask(filled, "select (spanmq.get_policy('orders')->>'paused')::boolean") is False


def test_worker_is_asked_to_stop(filled: str) -> None:
    do(filled, "select spanmq.report_worker('{orders}', 'worker-7', 1, 1)")
    asked = records("queue stop-worker", "worker-7", dsn=filled)
    assert asked == [{"worker": "worker-7", "queues": 1}]
    assert records("queue workers", dsn=filled)[0]["stop_asked_at"] is not None
    refused = spanmq("queue stop-worker", "worker-8", dsn=filled)
    assert (refused.code, "no worker 'worker-8' is running" in refused.err) == (1, True)
    assert "hint: spanmq worker list shows " in refused.err
    guessed = spanmq("worker", "stop", "worker-7", dsn=filled)
    assert (guessed.code, "spanmq queue stop-worker" in guessed.err) == (2, True)


def test_state_of_a_message_has_what_its_queue_waits_for(filled: str) -> None:
    assert records("message state", "orders", 1, dsn=filled)[0]["waits_for"] == "no_worker"
    do(filled, breaker_report("orders", worker="worker-7"))
    assert "breaker_open" in spanmq("message state", "orders", 1, dsn=filled).out
    assert "it tries again in" in spanmq("queue attention", dsn=filled).out
    do(filled, "select spanmq.pause('orders')")
    assert records("message state", "orders", 1, dsn=filled)[0]["waits_for"] == "paused"
    assert records("queue attention", "orders", dsn=filled)[0]["level"] == "problem"


def test_why_shows_each_reason_and_the_call_that_ends_it(filled: str) -> None:
    do(filled, "select spanmq.pause('orders')")
    [paused, no_worker] = records("why", "orders", 1, dsn=filled)
    assert (paused["code"], paused["call"]) == ("paused", "select spanmq.resume('orders')")
    assert no_worker["sentence"] == "No worker receives from the queue."
    assert "The queue is paused" in spanmq("why", "orders", 1, dsn=filled).out


def test_retry_says_that_the_queue_delivers_nothing(filled: str) -> None:
    lease_id = records("receive", "orders", "-n", 2, "--lease", 600, dsn=filled)[0]["lease_id"]
    records("nack", "orders", lease_id, 1, 2, "--retry-in", 600, dsn=filled)
    do(filled, breaker_report("orders", worker="worker-7"))
    one = spanmq("queue retry-failing", "orders", "--id", 1, dsn=filled).out
    assert one.startswith("retried 1 message now, but the queue delivers nothing: A worker stopped")
    rest = [spanmq("queue retry-failing", "orders", dsn=filled).out for _ in range(2)]
    assert [line.partition(" now")[0] for line in rest] == ["retried 1 message", "retried 0 messages"]


def test_state_of_a_failing_message_has_its_error_and_its_next_attempt(filled: str) -> None:
    lease_id = records("receive", "orders", "-n", 1, "--lease", 600, dsn=filled)[0]["lease_id"]
    records("nack", "orders", lease_id, 1, "--error", "bank is down", "--retry-in", 600, dsn=filled)
    [state] = records("message state", "orders", 1, dsn=filled)
    assert (state["state"], state["attempts"], state["because"]) == ("failed", 1, "bank is down")
    assert state["retry_at"] > records("queue failing-messages", "orders", dsn=filled)[0]["last_failed_at"]


def test_problems_stand_before_warnings(filled: str) -> None:
    do(filled, "select pgmq.create('zeal')")
    do(filled, breaker_report("zeal", worker="worker-7"))
    levels = [record["level"] for record in records("queue attention", dsn=filled)]
    assert levels == ["problem", "warning"]
