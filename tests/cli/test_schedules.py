"""Schedules on the command line."""

from tests.cli.program import records, spanmq


def test_schedule_is_created_listed_paused_resumed_and_deleted(orders: str) -> None:
    create = ("schedule", "create", "nightly", "orders")
    options = "--time-zone", "Europe/Berlin", "--catch-up", "--headers", '{"b": 2}'
    records(*create, "0 3 * * *", '{"a": 1}', *options, dsn=orders)
    [shown] = records("schedule list", dsn=orders)
    assert (shown["name"], shown["body"], shown["headers"]) == ("nightly", {"a": 1}, {"b": 2})
    for verb, is_paused in (("pause", True), ("resume", False)):
        records("schedule", verb, "nightly", dsn=orders)
        assert records("schedule list", dsn=orders)[0]["is_paused"] is is_paused
    assert records("schedule delete", "nightly", dsn=orders) == [{"name": "nightly", "existed": True}]
    assert spanmq(*create, "nonsense", "1", dsn=orders).code == 1
    assert spanmq(*create, "0 3 * * *", "{", dsn=orders).code == 2
