"""A queue in a transaction that is rolled back, and short forms of what tests ask a connection."""

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.schemas import qualified

Connection = psycopg.Connection[Any]


def rows(connection: Connection, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
    """Run a statement and return its rows, if any."""
    cursor = connection.execute(query.encode(), arguments or None)
    return cursor.fetchall() if cursor.description else []


def column(connection: Connection, query: str, *arguments: Any) -> list[Any]:
    """Return the first column of what a query returns."""
    return [row[0] for row in rows(connection, query, *arguments)]


def one(connection: Connection, query: str, *arguments: Any) -> Any:
    """Return the first column of the first row; None if there is none."""
    return next(iter(column(connection, query, *arguments)), None)


def send_groups(connection: Connection, queue: str, n: int, group: str = "null") -> list[int]:
    """Send n messages in one batch; `group` is an SQL expression over the number i of each, or null for none."""
    return column(
        connection,
        "select pgmq.send_batch(%s, array_fill('1'::jsonb, array[%s::int]),"
        f" array(select jsonb_build_object('x-pgmq-group', {group}) from generate_series(1, %s) i))",
        queue,
        n,
        n,
    )


def sqlstate_of(connection: Connection, act: str | Callable[[], object]) -> str:
    """Return the SQLSTATE with which a statement, or what calls one, fails; what it did is rolled back."""
    call = act if callable(act) else lambda: rows(connection, act)
    with pytest.raises(psycopg.Error) as raised, connection.transaction():
        call()
    return raised.value.sqlstate or ""


def kill(
    connection: Connection,
    ids: list[int],
    category: str = "PERMANENT",
    error: str | None = "boom",
    error_class: str | None = None,
    queue: str = "orders",
) -> None:
    """Dead-letter messages, as a reject does."""
    connection.execute(
        "select spanmq_core.bury(q, spanmq_core.lock_ids(q.queue_id, %s, null, '{}'), clock_timestamp(),"
        " (%s, %s, %s, 'Traceback', 'worker 1')::spanmq_core.reason, null)"
        " from spanmq_core.queue q where q.name = %s",
        [ids, category, error, error_class, queue],
    )


def change_state(connection: Connection, assignment: str, condition: str = "true", *arguments: Any) -> None:
    """Change the rows of messages, in whichever table they are; no time of theirs may go back behind the bound."""
    for table in ("state", "later"):
        rows(connection, f"update spanmq_core.{table} set {assignment} where {condition}", *arguments)


def expire_leases(connection: Connection, condition: str = "lease_id <> 0", *arguments: Any) -> None:
    """End leases, as when their receivers have died and the time is over."""
    change_state(connection, "vt = clock_timestamp()", condition, *arguments)


class Queue:
    """A queue `orders`."""

    def __init__(self, connection: Connection, kind: str = "create") -> None:
        self.connection = connection
        self.rows(f"select pgmq.{kind}('orders')")

    def rows(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        return rows(self.connection, query, *arguments)

    def value(self, query: str, *arguments: Any) -> Any:
        return one(self.connection, query, *arguments)

    def policy(self, settings: str) -> None:
        self.rows("select spanmq.set_policy('orders', %s::jsonb)", settings)

    def send(self, n: int, headers: str | None = None) -> list[int]:
        """Send the numbers from 1 to n."""
        return column(
            self.connection,
            "select pgmq.send_batch('orders', array(select to_jsonb(i) from generate_series(1, %s) i),"
            " array_fill(%s::jsonb, array[%s]))",
            n,
            headers,
            n,
        )

    def receive(self, n: int = 100, lease: float = 60) -> tuple[int, list[int]]:
        """Return the lease_id, 0 if nothing came, and the ids."""
        found = self.rows("select lease_id, msg_id from spanmq.receive('orders', %s, %s)", n, lease)
        return (found[0][0] if found else 0), [row[1] for row in found]

    def leased(self, n: int, lease: float = 60) -> tuple[int, list[int]]:
        """Send the numbers from 1 to n, and receive them; return the lease_id and the ids."""
        ids = self.send(n)
        lease_id, received = self.receive(n, lease)
        assert received == ids
        return lease_id, ids

    def settle(self, call: str, lease: int, ids: list[int], *more: Any) -> dict[int, str]:
        """Return the outcome for each id."""
        marks = ", %s" * len(more)
        found = self.rows(f"select * from {qualified(call)}('orders', %s, %s{marks})", lease, ids, *more)
        assert [row[0] for row in found] == sorted(set(ids))
        return dict(found)

    def show(self, ids: list[int]) -> None:
        """Make visible at once what waits for a retry."""
        self.rows("select pgmq.set_vt('orders', %s::bigint[], 0)", ids)

    def statuses(self, ids: list[int]) -> list[str]:
        return [self.value("select spanmq.state('orders', %s)", each) for each in ids]

    def left(self) -> list[int]:
        return column(self.connection, "select msg_id from pgmq.q_orders order by msg_id")

    def dead(self) -> list[int]:
        return column(self.connection, "select msg_id from spanmq_core.dead_letter order by msg_id")


def breaker_report(
    queue: str, open_for: float | None = 600, error: str = "no route", worker: str = "w"
) -> str:
    """Return the statement by which a worker reports its circuit breaker, open for seconds or (None) closed."""
    breaker = {"breaker": {"open_for": open_for, "opening": 1, "error": error}} if open_for else {}
    return f"select spanmq.report_worker('{{{queue}}}', '{worker}', 1, 1, '{json.dumps({queue: breaker})}')"
