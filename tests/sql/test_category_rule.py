"""Rules: what kind of failure an error is, whose rule it is, and that no pattern can hurt."""

from typing import Any

import pytest
from tests.sql.queue import Connection, one, sqlstate_of


@pytest.fixture
def orders(connection: Connection) -> Connection:
    connection.execute("select pgmq.create('orders'), pgmq.create('other')")
    return connection


def classify(
    connection: Connection, error: str | None, error_class: str | None = None, queue: str | None = None
) -> Any:
    call = "select spanmq.classify(error => %s, error_class => %s, queue => %s)"
    return one(connection, call, error, error_class, queue)


def set_rule(connection: Connection, name: str, category: str, **more: Any) -> None:
    arguments = {"name": name, "category": category} | more
    call = ", ".join(f"{key} => %({key})s" for key in arguments)
    connection.execute(f"select spanmq.set_category_rule({call})".encode(), arguments)


def rules(connection: Connection, queue: str | None = None) -> list[tuple[Any, ...]]:
    return connection.execute("select * from spanmq.list_category_rules(%s)", [queue]).fetchall()


@pytest.mark.parametrize(
    ("error", "error_class", "category"),
    [
        # The three of the first text on dead letters, in its order, then what the design adds to them.
        ("Read TIMEOUT after 30 s", None, "TRANSIENT"),
        ("Invalid date", None, "PERMANENT"),
        ("could not connect: Connection refused", None, "DEPENDENCY"),
        ("timeout: invalid answer, connection refused", None, "TRANSIENT"),
        ("no such thing", None, "UNKNOWN"),
        ("", "TimeoutError", "TRANSIENT"),
        (None, "psycopg.errors.SerializationFailure", "TRANSIENT"),
        ("canceling statement: deadlock detected", None, "TRANSIENT"),
        ("Expecting value: line 1", "json.JSONDecodeError", "PERMANENT"),
        (None, "builtins.ConnectionResetError", "DEPENDENCY"),
        ("HTTP status 503", None, "DEPENDENCY"),
        ("HTTP/1.1 answered with status code 500", None, "DEPENDENCY"),
        ("502 Bad Gateway", None, "DEPENDENCY"),
        ("order 500 has no lines", "KeyError", "UNKNOWN"),
        ("not allowed", "shop.BusinessError", "BUSINESS"),
        (None, None, "UNKNOWN"),
    ],
)
def test_shipped_rules(orders: Connection, error: str | None, error_class: str | None, category: str) -> None:
    assert classify(orders, error, error_class) == category
    assert classify(orders, error, error_class, "orders") == category


def test_rule_of_a_queue_comes_first_and_is_its_own(orders: Connection) -> None:
    set_rule(orders, "late", "BUSINESS", error="timeout", place=1000, queue="Orders")
    assert classify(orders, "timeout", queue="orders") == "BUSINESS"
    assert classify(orders, "timeout", queue="other") == "TRANSIENT"
    assert classify(orders, "timeout") == "TRANSIENT"
    assert rules(orders, "orders")[0] == ("late", "BUSINESS", "timeout", None, 1000, "orders")
    assert [row for row in rules(orders) if row[0] == "late"] == []


def test_lower_place_is_asked_first_then_the_name(orders: Connection) -> None:
    set_rule(orders, "b", "BUSINESS", error="boom", place=5)
    set_rule(orders, "c", "PERMANENT", error="boom", place=4)
    assert classify(orders, "boom") == "PERMANENT"
    set_rule(orders, "a", "DEPENDENCY", error="boom", place=4)
    assert classify(orders, "boom") == "DEPENDENCY"


def test_rule_of_both_wants_both(orders: Connection) -> None:
    set_rule(orders, "both", "BUSINESS", error="^limit", error_class="^shop[.]", place=1)
    assert classify(orders, "limit reached", "shop.Limit") == "BUSINESS"
    assert classify(orders, "limit reached", "bank.Limit") == "UNKNOWN"
    assert classify(orders, "a limit", "shop.Limit") == "UNKNOWN"
    assert classify(orders, None, "shop.Limit") == "UNKNOWN"


def test_setting_a_rule_again_changes_all_of_it(orders: Connection) -> None:
    before = len(rules(orders))
    set_rule(orders, "mine", "BUSINESS", error="boom", place=1)
    set_rule(orders, "mine", "TRANSIENT", error_class="Boom")
    assert [row for row in rules(orders) if row[0] == "mine"] == [
        ("mine", "TRANSIENT", None, "Boom", 100, None)
    ]
    assert len(rules(orders)) == before + 1


def test_shipped_rules_may_be_changed_and_dropped(orders: Connection) -> None:
    set_rule(orders, "timeout", "DEPENDENCY", error="timeout", place=10)
    assert classify(orders, "timeout") == "DEPENDENCY"
    dropped = orders.execute(
        "select spanmq.drop_category_rule('timeout'), spanmq.drop_category_rule('timeout'),"
        " spanmq.drop_category_rule('invalid', 'orders')"
    ).fetchone()
    assert dropped == (True, False, False)
    assert classify(orders, "timeout") == "UNKNOWN"


@pytest.mark.parametrize(
    "pattern",
    [
        r"(\d{1,3}\.){3}\d{1,3}",
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "timed out after .{1,200} seconds, .{0,100} left",
        r"(?:\w+\s+){1,20}failed",
        "a{3,}",
    ],
)
def test_usual_repeats_are_a_rule(orders: Connection, pattern: str) -> None:
    set_rule(orders, "x", "BUSINESS", error=pattern)


def test_only_the_beginning_of_a_long_error_is_looked_at(orders: Connection) -> None:
    assert classify(orders, " " * 1990 + "timeout") == "TRANSIENT"
    assert classify(orders, " " * 1999 + "timeout") == "UNKNOWN"
    assert classify(orders, None, " " * 195 + "timeout") == "UNKNOWN"
    assert classify(orders, "x" * 10_000_000) == "UNKNOWN"


def test_rules_for_all_queues_need_the_right_to_manage_all(orders: Connection) -> None:
    orders.execute("create role clerk; select spanmq.grant_queue('clerk', 'orders', 'manage')")
    orders.execute("set local role clerk")
    for call in ("set_category_rule('mine', 'BUSINESS', error => 'a')", "drop_category_rule('timeout')"):
        assert sqlstate_of(orders, f"select spanmq.{call}") == "42501"
