"""Policies: what is set, what is refused, and that a refusal changes nothing."""

import json
from dataclasses import asdict
from typing import Any

import psycopg
import pytest
from tests.sql.queue import Queue

from spanmq.model import Policy, PolicyChange

DEFAULTS = asdict(Policy())


def policy(orders: Queue) -> Any:
    return orders.value("select spanmq.get_policy('orders')")


def test_queue_without_a_policy_has_the_defaults(orders: Queue) -> None:
    assert policy(orders) == DEFAULTS, "the table's columns and model/policy.py have the same defaults"
    assert list(PolicyChange.__annotations__) == list(DEFAULTS)


def test_only_what_is_named_changes_and_null_gives_the_default_back(orders: Queue) -> None:
    orders.policy('{"max_attempts": 5, "archive_on_ack": true}')
    orders.policy('{"backoff_max": 60, "archive_retention": "3 days"}')
    orders.policy("{}")
    changed = {"max_attempts": 5, "archive_on_ack": True, "backoff_max": 60, "archive_retention": "3 days"}
    assert policy(orders) == DEFAULTS | changed
    orders.policy(json.dumps(dict.fromkeys(changed)))
    assert policy(orders) == DEFAULTS


@pytest.mark.parametrize(
    ("settings", "message", "hint"),
    [
        (
            '{"lease": 60, "max_attempts": -1}',
            "max_attempts must be a whole number from 1 to 1000, or 0 for no limit, got: -1",
            "null sets the default again: 25.",
        ),
        (
            '{"backoff_max": "soon"}',
            'backoff_max must be a number of seconds, 0 or more, got: "soon"',
            "604800",
        ),
        ('{"jitter": 2.5}', "jitter must be true or false, got: 2.5", "true"),
        (
            '{"dead_letter_retention": "0"}',
            'dead_letter_retention must be an interval above 0, such as "30 days", got: "0"',
            "null sets the default again.",
        ),
    ],
)
def test_refusal_names_the_setting_its_range_and_the_value(
    orders: Queue, settings: str, message: str, hint: str
) -> None:
    with pytest.raises(psycopg.errors.Error) as error, orders.connection.transaction():
        orders.policy(settings)
    assert error.value.diag.message_primary == message
    assert hint in (error.value.diag.message_hint or "")


def test_each_setting_has_a_range_that_errors_name(orders: Queue) -> None:
    ranges = {name: orders.value("select spanmq_core.range_of(%s)", name) for name in DEFAULTS}
    switches = {name for name, value in DEFAULTS.items() if isinstance(value, bool)}
    unnamed = {name for name, text in ranges.items() if text == "true or false"} - switches
    assert unnamed == set(), "range_of() of functions/queue/policy.sql names them"


@pytest.mark.parametrize(
    "settings",
    [
        '{"backoff_base": 1e15, "backoff_max": 1e15}',
        '{"rate_limit": 1, "rate_burst": 1e300}',
        '{"rate_limit": 1e-300}',
        '{"rate_limit": 1e300}',
    ],
)
def test_largest_numbers_of_a_policy_break_no_call(orders: Queue, settings: str) -> None:
    orders.policy(settings)
    ids = orders.send(2)
    lease, received = orders.receive(1)
    assert received == ids[:1]
    assert orders.settle("nack", lease, received) == {ids[0]: "retrying"}
    orders.receive(1)


def test_smallest_numbers_of_a_policy_break_no_call(orders: Queue) -> None:
    orders.policy(
        '{"priority_aging": 1e-300, "backoff_base": 1e-320, "backoff_factor": 1e308, "backoff_max": 1e308}'
    )
    ids = orders.rows("select spanmq.send_messages('orders', array['1', '2']::jsonb[], priority => 5)")
    for _ in range(4):
        lease, received = orders.receive(2)
        assert received == [row[0] for row in ids]
        assert set(orders.settle("nack", lease, received).values()) == {"retrying"}
        orders.show(received)


def test_log_may_be_kept_for_longer_than_there_are_times(orders: Queue) -> None:
    orders.policy('{"keep": "170000000 years"}')
    orders.value("select setval('pgmq.q_orders_msg_id_seq', 20000)")
    orders.send(1)
    orders.rows("select spanmq.maintain(100)")
    assert orders.rows("select trouble from spanmq_core.upkeep where trouble is not null") == []
