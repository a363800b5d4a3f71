"""Policies: what is set, what is refused, and that a refusal changes nothing."""

import json
from typing import Any

import psycopg
import pytest
from psycopg import Connection

DEFAULTS = {
    "max_attempts": 25,
    "lease": 30,
    "backoff_base": 1,
    "backoff_factor": 2,
    "backoff_max": 604800,
    "jitter": True,
    "archive_on_ack": False,
    "archive_retention": None,
    "dead_letter_retention": None,
    "ordered": False,
    "dead_letter_blocks_group": False,
    "paused": False,
    "drop_expired": False,
    "max_in_flight": None,
    "max_in_flight_per_group": None,
    "rate_limit": None,
    "rate_burst": None,
    "priority_aging": 60,
    "max_backlog": None,
    "keep": None,
}


@pytest.fixture
def orders(connection: Connection[Any]) -> Connection[Any]:
    connection.execute("select pgmq.create('orders')")
    return connection


def policy(connection: Connection[Any]) -> Any:
    row = connection.execute("select spanmq.get_policy('orders')").fetchone()
    return None if row is None else row[0]


def change(connection: Connection[Any], settings: str) -> None:
    connection.execute("select spanmq.set_policy('orders', %s::jsonb)", [settings])


def test_queue_without_a_policy_has_the_defaults(orders: Connection[Any]) -> None:
    assert policy(orders) == DEFAULTS


def test_only_what_is_named_changes(orders: Connection[Any]) -> None:
    change(orders, '{"max_attempts": 5, "archive_on_ack": true}')
    change(orders, '{"backoff_max": 60, "archive_retention": "3 days"}')
    change(orders, "{}")
    changed = {"max_attempts": 5, "archive_on_ack": True, "backoff_max": 60, "archive_retention": "3 days"}
    assert policy(orders) == DEFAULTS | changed


def test_null_gives_the_default_back(orders: Connection[Any]) -> None:
    changed = {"max_attempts": 5, "backoff_max": 60, "archive_on_ack": True, "archive_retention": "3 days"}
    change(orders, json.dumps(changed))
    change(orders, json.dumps(dict.fromkeys(changed)))
    assert policy(orders) == DEFAULTS


@pytest.mark.parametrize(
    "settings",
    [
        '{"max_attempts": -1}',
        '{"max_attempts": 1001}',
        '{"max_attempts": 1.5}',
        '{"max_attempts": "many"}',
        '{"lease": 0}',
        '{"lease": -1}',
        '{"lease": "NaN"}',
        '{"lease": "infinity"}',
        '{"backoff_base": -1}',
        '{"backoff_factor": 0.5}',
        '{"jitter": "sometimes"}',
        '{"dead_letter_retention": "-1 day"}',
        '{"dead_letter_retention": "soon"}',
        '{"archive_retention": "soon"}',
        '{"archive_retention": "-1 day"}',
        '{"archive_on_ack": "sometimes"}',
        '{"max_backlog": 0}',
        '{"keep": "0"}',
        '{"rate_limit": 0}',
        '{"rate_burst": 0}',
        '{"max_in_flight": 0}',
        '{"attempts": 3}',
        '{"queue_id": 3}',
        '{"max_attempts": 3, "attempts": 3}',
        "[]",
        "null",
        "3",
    ],
)
def test_what_is_no_policy_is_refused_and_changes_nothing(orders: Connection[Any], settings: str) -> None:
    with pytest.raises(psycopg.errors.Error) as error, orders.transaction():
        change(orders, settings)
    assert error.value.sqlstate == "MQ008"
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
    orders: Connection[Any], settings: str, message: str, hint: str
) -> None:
    with pytest.raises(psycopg.errors.Error) as error, orders.transaction():
        change(orders, settings)
    assert error.value.diag.message_primary == message
    assert hint in (error.value.diag.message_hint or "")


def test_each_setting_has_a_range_that_errors_name(orders: Connection[Any]) -> None:
    ranges = {name: orders.execute("select spanmq_core.range_of(%s)", [name]).fetchone() for name in DEFAULTS}
    switches = {name for name, value in DEFAULTS.items() if isinstance(value, bool)}
    assert {name for name, text in ranges.items() if text == ("true or false",)} == switches


def test_policy_of_no_queue(connection: Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable), connection.transaction():
        connection.execute("select spanmq.get_policy('nothing')")
    with pytest.raises(psycopg.errors.UndefinedTable), connection.transaction():
        connection.execute("select spanmq.set_policy('nothing', '{}')")


def test_policy_goes_with_its_queue(orders: Connection[Any]) -> None:
    change(orders, '{"max_attempts": 5}')
    orders.execute("select pgmq.drop_queue('orders')")
    orders.execute("select pgmq.create('orders')")
    assert policy(orders) == DEFAULTS
