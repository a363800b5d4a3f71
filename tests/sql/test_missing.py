"""Messages whose rows are gone from the log: a claim settles and records them, and gives what is there."""

from typing import Any

import pytest
from tests.sql.queue import Connection, column, one, rows

CLAIMS = {
    "read": "pgmq.read('orders', 60, %s)",
    "receive": "spanmq.receive('orders', %s, 60)",
    "receive in slots": "spanmq.receive('orders', %s, 60, 2)",
    "pop": "pgmq.pop('orders', %s)",
    "read_grouped": "pgmq.read_grouped('orders', 60, %s)",
    "read_grouped_rr": "pgmq.read_grouped_rr('orders', 60, %s)",
    "read_grouped_head": "pgmq.read_grouped_head('orders', 60, %s)",
}
KINDS = {
    "plain": "select pgmq.create('orders')",
    "limited": "select pgmq.create('orders'), spanmq.set_policy('orders', '{\"max_attempts\": 3}')",
    "ordered": "select pgmq.create('orders'), spanmq.set_policy('orders', '{\"ordered\": true}')",
}
MANY = 3_000
MOST = 2_147_483_647


def send(connection: Connection, n: int) -> None:
    """Send messages one by one, each of a group of its own."""
    connection.execute(
        "select count(id) from generate_series(1, %s) i,"
        " pgmq.send('orders', to_jsonb(i), jsonb_build_object('x-pgmq-group', i::text)) id",
        [n],
    )


def lose(connection: Connection, *ranges: tuple[int, int]) -> None:
    for first, last in ranges:
        log = one(connection, "select log_name from spanmq_core.segment order by lo limit 1")
        rows(connection, f"delete from spanmq_core.{log} where msg_id between %s and %s", first, last)


def claim(connection: Connection, name: str, n: int) -> list[Any]:
    return column(connection, f"select msg_id from {CLAIMS[name]}", n)


def missing(connection: Connection) -> list[Any]:
    return column(connection, "select msg_id from spanmq_core.missing order by 1")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CLAIMS)
def test_claim_gives_what_is_there_and_settles_what_is_lost(
    connection: Connection, name: str, kind: str
) -> None:
    connection.execute(KINDS[kind].encode())
    send(connection, 6)
    lose(connection, (1, 1), (3, 3))
    # Groups may be taken from any of them on.
    assert sorted(claim(connection, name, 9)) == [2, 4, 5, 6]
    left = {"pop": 0}.get(name, 4)
    assert connection.execute("select queue_length from pgmq.metrics('orders')").fetchone() == (left,)
    assert missing(connection) == [1, 3]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", CLAIMS)
def test_claim_gets_past_thousands_that_are_lost(connection: Connection, name: str, n: int) -> None:
    connection.execute(KINDS["plain"].encode())
    send(connection, MANY + 3)
    lose(connection, (1, MANY))
    assert claim(connection, name, n) == [MANY + 1 + i for i in range(n)]
    assert missing(connection) == list(range(1, MANY + 1))
    assert claim(connection, name, 9) == [MANY + 1 + i for i in range(n, 3)]


def test_what_another_holds_is_not_settled(connection: Connection) -> None:
    connection.execute(KINDS["plain"].encode())
    send(connection, 6)
    connection.execute("select pgmq.set_vt('orders', array[1, 2, 4, 5], 60)")
    assert claim(connection, "receive", 1) == [3]
    connection.execute("select pgmq.set_vt('orders', array[1, 2, 5], 0)")
    lose(connection, (1, 6))
    send(connection, 1)
    assert claim(connection, "receive", 1) == [7]
    # One is leased and one is hidden: their turn comes.
    assert missing(connection) == [1, 2, 5, 6]


def test_queue_that_is_dropped_leaves_no_missing_message(connection: Connection) -> None:
    connection.execute("select pgmq.create_unlogged('orders')")
    send(connection, 3)
    lose(connection, (1, 1))
    assert claim(connection, "read", 9) == [2, 3]
    assert missing(connection) == [1]
    connection.execute("select pgmq.drop_queue('orders')")
    assert missing(connection) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CLAIMS)
def test_claim_of_as_many_as_a_number_can_say(connection: Connection, name: str, kind: str) -> None:
    connection.execute(KINDS[kind].encode())
    send(connection, 3)
    assert sorted(claim(connection, name, MOST)) == [1, 2, 3]
    assert rows(connection, "select count(*) from spanmq.peek('orders', %s)", MOST) == [
        (0 if name == "pop" else 3,)
    ]
