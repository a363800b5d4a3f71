"""Commands that only call a method of the client: how they pass what is missing, and tell what they did."""

from tests.cli.program import records, spanmq


def test_what_was_done_is_told_in_a_sentence_by_its_result(orders: str) -> None:
    def told(words: str) -> str:
        return spanmq(words, dsn=orders).out.strip()

    assert told("topic bind a.* orders") == "a.* goes to orders"
    assert told("topic unbind a.* orders") == "a.* no longer goes to orders"
    assert told("topic unbind a.* orders") == "a.* did not go to orders"
    assert told("queue close-breaker orders") == "closed the circuit breakers of 0 workers of orders"
    [record] = records("topic unbind", "a.*", "orders", dsn=orders)
    assert record == {"pattern": "a.*", "queue": "orders", "unbound": False}


def test_arguments_that_are_missing_mean_all(orders: str) -> None:
    assert [each["queue"] for each in records("queue count", dsn=orders)] == ["orders"]
    assert [each["queue"] for each in records("queue latest-statistics", dsn=orders)] == ["orders"]
    assert records("queue count", "none", dsn=orders) == []
