"""Failing, holding and asking, from the command line."""

import pytest
from tests.cli.program import ask, do, records, spanmq


@pytest.fixture
def filled(orders: str) -> str:
    """A queue with five messages, 1 to 5."""
    do(orders, "select pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(1, 5) n))")
    return orders


def test_received_messages_are_given_back_through_pipes(filled: str) -> None:
    received = spanmq("receive", "orders", "-n", 2, "--json", dsn=filled).out
    reason = ("--error", "refused", "--category", "DEPENDENCY", "--worker", "w1")
    assert records("nack", "--retry-in", 600, *reason, stdin=received, dsn=filled) == [
        {"message_id": 1, "outcome": "retrying"},
        {"message_id": 2, "outcome": "retrying"},
    ]
    assert records("nack", stdin=received, dsn=filled)[0]["outcome"] == "stale"
    assert records("message state", "orders", 1, dsn=filled) == [{"message_id": 1, "state": "failed"}]
    (failure,) = records("message failures", "orders", 1, dsn=filled)
    assert (failure["attempt"], failure["error"], failure["worker"]) == (1, "refused", "w1")
    received = spanmq("receive", "orders", "-n", 1, "--json", dsn=filled).out
    assert records("message release", stdin=received, dsn=filled) == [
        {"message_id": 3, "outcome": "released"}
    ]
    received = spanmq("receive", "orders", "-n", 1, "--json", dsn=filled).out
    assert records("message reject", "--error", "bad", stdin=received, dsn=filled) == [
        {"message_id": 3, "outcome": "dead"}
    ]
    assert spanmq("message failures", "orders", 5, dsn=filled).out == "it never failed\n"


def test_lease_is_named_and_held(filled: str) -> None:
    lease_id = records("receive", "orders", "-n", 5, "--lease", 600, dsn=filled)[0]["lease_id"]
    assert records("message extend", "orders", lease_id, 600, dsn=filled) == [{"held": 5}]
    assert records("nack", "orders", lease_id, 1, "--category", "PERMANENT", dsn=filled) == [
        {"message_id": 1, "outcome": "dead"}
    ]
    assert records("message reject", "orders", lease_id, 2, 9, dsn=filled) == [
        {"message_id": 2, "outcome": "dead"},
        {"message_id": 9, "outcome": "stale"},
    ]
    assert records("message release", "orders", lease_id, 3, dsn=filled)[0]["outcome"] == "released"
    assert records("message extend", "orders", lease_id, 600, dsn=filled) == [{"held": 2}]


def test_bad_words_are_refused(filled: str) -> None:
    lease_id = records("receive", "orders", "--lease", 600, dsn=filled)[0]["lease_id"]
    done = spanmq("nack", "orders", lease_id, 1, "--category", "BAD", dsn=filled)
    assert (done.code, "there is no category" in done.err) == (1, True)
    assert spanmq("message extend", "orders", lease_id, "--", -5, dsn=filled).code != 0
    assert records("message state", "orders", 1, dsn=filled)[0]["state"] == "processing"


def test_pause_and_resume(filled: str) -> None:
    assert "paused" not in spanmq("queue list", dsn=filled).out.lower()
    assert records("queue pause", "orders", dsn=filled) == [{"queue": "orders", "is_paused": True}]
    do(filled, "select spanmq.report_breaker('orders', 'worker-7', 600)")
    for verb in ("list", "health", "metrics", "count", "latest-statistics"):
        assert "  paused, breaker open" in spanmq("queue", verb, dsn=filled).out.splitlines()[1], verb
        assert records("queue", verb, dsn=filled)[0]["is_paused"] is True, verb
    assert records("receive", "orders", dsn=filled) == []
    assert spanmq("receive", "orders", dsn=filled).out == "no messages: the queue is paused\n"
    assert spanmq("message read", "orders", dsn=filled).out == "no messages: the queue is paused\n"
    assert spanmq("queue resume", "orders", dsn=filled).out == "receivers get messages of orders again\n"
    assert len(records("receive", "orders", dsn=filled)) == 1
    assert ask(filled, "select (spanmq.get_policy('orders')->>'paused')::boolean") is False
