"""Schedules on the command line."""

from tests.cli.program import spanmq


def test_schedule_of_a_text_that_is_no_cron_or_no_json_is_refused(orders: str) -> None:
    create = ("schedule", "create", "nightly", "orders")
    assert spanmq(*create, "nonsense", "1", dsn=orders).code == 1
    assert spanmq(*create, "0 3 * * *", "{", dsn=orders).code == 2
