"""Every function of the interface, each of its arguments wrong in turn: an error that says so, or no harm.

An error of PostgreSQL's own from the depths (a syntax error in a statement of ours, a null in a column, a
cast) is none that a caller can act on, and a sign that what was given went further than it should have.
"""

from typing import Any

import psycopg
import pytest
from tests.sql.queue import Connection
from tests.sql.rights import BY_NAME, BY_TYPE, functions

from spanmq.errors import ServerError, from_driver

HOSTILE = """'x"''); drop table pgmq.a_orders; --'"""
WRONG = {
    "text": ("null", "''", HOSTILE, "'nope'", "repeat('é', 40)", r"E'\\'"),
    "integer": ("null", "-1", "0", "2147483647", "-2147483648"),
    "bigint": ("null", "-1", "0", "9223372036854775807", "-9223372036854775808"),
    "double precision": ("null", "-1", "'nan'", "'infinity'", "'-infinity'", "1e300"),
    "jsonb": ("null", "'null'", "'{}'", "'[]'", "'1'", '\'{"a": {"b": []}}\''),
    "boolean": ("null",),
    "timestamp with time zone": ("null", "'infinity'", "'-infinity'", "'4713-01-01 BC'", "'294276-01-01'"),
    "uuid": ("null", "'00000000-0000-0000-0000-000000000001'"),
    "int8multirange": ("null", "'{}'", "'{(,)}'"),
}
# Where another value than in other tests is the right one.
RIGHT = {
    "time_zone": "'UTC'",
    "cron": "'0 0 1 1 *'",
    "category": "'BUSINESS'",
    "of_table": "'archive'",
    "here": "(select here from spanmq.archive_position('orders'))",
    "base": "(select here from spanmq.archive_position('orders'))",
    "role": "current_user::text",
    "lease_id": "(select max(lease_id) from spanmq_core.unsettled)",
    "run_id": "1",
    "receiver": "'00000000-0000-0000-0000-000000000001'",
}
# So that workers can share the four thousand calls out.
PARTS = 12
LONGEST = {"max_poll_seconds": "0", "poll_interval_ms": "1"}


def right_value(name: str, kind: str) -> str:
    return (RIGHT.get(name) or BY_NAME.get(name) or BY_TYPE[kind]).format(queue="orders")


def wrong_values(name: str, kind: str) -> list[str]:
    if name in LONGEST:
        return ["null", "-1"]
    if not kind.endswith("[]"):
        return list(WRONG[kind])
    one = kind.removesuffix("[]")
    among = f"array[{right_value('', one)}, null, {right_value('', one)}]"
    return ["null", "'{}'", "'{null}'", among, *(f"array[{each}]" for each in WRONG[one] if each != "null")]


def wrong_calls(schema: str, function: str, names: list[str], kinds: list[str]) -> list[str]:
    given = list(zip(names, kinds, strict=True))
    right = [right_value(*each) for each in given]
    every = []
    for place, each in enumerate(given):
        for wrong in wrong_values(*each):
            values = [*right[:place], wrong, *right[place + 1 :]]
            typed = ", ".join(f"({value})::{kind}" for value, kind in zip(values, kinds, strict=True))
            every.append(f"select * from {schema}.{function}({typed})")
    return every


@pytest.fixture
def orders(database: str) -> Any:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pgmq.create('orders')")
        connection.execute(
            "select pgmq.send_batch('orders', array_fill('1'::jsonb, array[9]),"
            ' array_fill(\'{"x-pgmq-group": "a"}\'::jsonb, array[9]))'
        )
        connection.execute("select spanmq.receive('orders', 3, 600), pgmq.archive('orders', 9)")
        connection.execute("set statement_timeout = '20s'")
        yield connection


@pytest.mark.parametrize("part", range(PARTS))
def test_every_wrong_argument_is_a_typed_error_or_harmless(orders: Connection, part: int) -> None:
    every = functions(orders)
    assert len(every) > 150
    problems = []
    for call in [each for function in every[part::PARTS] for each in wrong_calls(*function)]:
        try:
            with orders.transaction(force_rollback=True):
                orders.execute(call.encode())
        except psycopg.Error as error:
            sqlstate = error.sqlstate or ""
            if type(from_driver(error)) is ServerError:
                problems.append(f"{call}: {sqlstate} {error.diag.message_primary}")
    assert not problems, "\n".join(problems)
