"""Positions outside of the database: known by their tokens, whatever ids and transactions it has assigned since."""

import json
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sql.queue import Connection, one, rows, sqlstate_of

NOTE = "select spanmq.note_position('orders', %s, %s)"
KNOWN = "select spanmq.known_positions('orders', %s)"
HERE = "select here from spanmq.archive_position('orders', %s)"


@pytest.fixture
def orders(connection: Connection) -> Connection:
    connection.execute("select pgmq.create('orders'), pgmq.create('others')")
    return connection


def note(connection: Connection, follows: object = None, witnesses: list[Any] | None = None) -> uuid.UUID:
    token: uuid.UUID = one(connection, NOTE, follows, witnesses or [])
    return token


def noted(connection: Connection) -> dict[str, Any]:
    """Return the position of an archive as of now, noted."""
    here: dict[str, Any] = one(connection, HERE, None)
    return here | {"token": str(note(connection))}


def refuses(connection: Connection, position: object) -> None:
    """Expect that an archive's position is refused."""
    assert sqlstate_of(connection, lambda: rows(connection, HERE, json.dumps(position))) == "MQ055"


def test_position_is_known_by_its_token_and_another_is_refused(orders: Connection) -> None:
    here = noted(orders)
    assert one(orders, HERE, json.dumps(here))["seen"]
    for other in ({**here, "token": str(uuid.uuid4())}, {n: v for n, v in here.items() if n != "token"}):
        refuses(orders, other)
    others = one(orders, "select spanmq.note_position('others')")
    refuses(orders, {**here, "token": str(others)})
    assert sqlstate_of(orders, lambda: note(orders, others)) == "MQ055"
    assert sqlstate_of(orders, lambda: note(orders, None, [others])) == "MQ055"


def test_position_ahead_of_the_server_is_refused(orders: Connection) -> None:
    here = noted(orders)
    newest = int(here["seen"].split(":")[1])
    refuses(orders, {**here, "seen": f"{newest}:{newest + 10**12}:"})


def test_position_is_refused_where_a_dump_was_restored(orders: Connection) -> None:
    """A dump that is restored on the same server has the tokens, but other transactions have written its rows."""
    with orders.transaction(), orders.transaction():  # with a savepoint
        here = noted(orders)
    assert one(orders, HERE, json.dumps(here)) is not None
    orders.execute("create temp table dumped as table spanmq_core.position")
    orders.execute("truncate spanmq_core.position")
    orders.execute("insert into spanmq_core.position overriding system value table dumped")
    refuses(orders, here)
    # Positions of 0.1.0 have no such mark.
    orders.execute("update spanmq_core.position set written_by = null")
    assert one(orders, HERE, json.dumps(here)) is not None


@given(st.data())
def test_lost_tokens_stay_unknown_after_new_ones(lend: Callable[[], Connection], data: st.DataObject) -> None:
    # What a rollback undoes is as what a database lost that went back in time.
    connection = lend()
    with connection.transaction(force_rollback=True):
        connection.execute("select pgmq.create('orders')")
        newest: uuid.UUID | None = None
        kept: list[uuid.UUID] = []
        lost: list[uuid.UUID] = []
        for _ in range(data.draw(st.integers(1, 4))):
            for _ in range(data.draw(st.integers(0, 5))):
                newest = note(connection, newest)
                kept.append(newest)
            connection.execute("savepoint backup")
            gone = newest
            for _ in range(data.draw(st.integers(0, 5))):
                gone = note(connection, gone)
                lost.append(gone)
            connection.execute("rollback to savepoint backup")
            if gone not in (newest, None):
                assert sqlstate_of(connection, lambda: note(connection, gone)) == "MQ055"  # noqa: B023
        assert one(connection, KNOWN, [*kept, *lost]) == sorted(kept)


def test_number_of_tokens_is_bounded_by_the_position_in_use(orders: Connection) -> None:
    first = note(orders)
    # A lake whose exports are all killed before they use the position goes on to follow the same.
    unused = [note(orders, first) for _ in range(150)]
    assert len(one(orders, KNOWN, [first, *unused])) == 151
    newest = unused[-1]
    tokens = [newest]
    for _ in range(150):
        tokens.append(note(orders, tokens[-1]))
    assert one(orders, KNOWN, [first, *unused, *tokens]) == sorted(tokens[-102:])


def test_witnesses_are_dropped_when_what_they_saw_is_noted(orders: Connection) -> None:
    first = note(orders)
    witnesses = [note(orders) for _ in range(3)]
    assert one(orders, KNOWN, [note(orders, first, witnesses), *witnesses]) != []
    assert one(orders, KNOWN, witnesses) == []


def test_refused_lake_holds_retention_until_it_is_exported_into_again(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as orders:

        def maintained() -> int:
            while rows(orders, "select * from spanmq.maintain()"):
                pass
            return int(one(orders, "select count(*) from pgmq.a_orders"))

        orders.execute("select pgmq.create('orders')")
        orders.execute("select pgmq.send_batch('orders', array_fill('1'::jsonb, array[10]))")
        orders.execute("select pgmq.archive('orders', array(select generate_series(1, 10)))")
        orders.execute("select spanmq.note_export('orders', 'lake', '{[1,11)}')")
        orders.execute("select spanmq.refuse_export('orders', 'lake')")
        orders.execute("""select spanmq.set_policy('orders', '{"archive_retention": "1 microsecond"}')""")
        assert maintained() == 10
        orders.execute("select spanmq.note_export('orders', 'lake', '{[1,6)}')")
        assert maintained() == 5


def test_export_notes_the_ids_of_some_blocks_and_keeps_the_others(orders: Connection) -> None:
    def noted() -> Any:
        return one(orders, "select array_agg(ids::text order by block) from spanmq_core.archive_export_ids")

    orders.execute("select spanmq.note_export('orders', 'lake', '{[1,70001)}')")
    assert noted() == ["{[1,32768)}", "{[32768,65536)}", "{[65536,70001)}"]
    orders.execute(
        "select spanmq.note_export('orders', 'lake', '{[5,8),[70000,70009)}', blocks => array[0, 2])"
    )
    assert noted() == ["{[5,8)}", "{[32768,65536)}", "{[70000,70009)}"]
    for ids in ("{(,5)}", "{[1,9000000000000000000)}"):
        with pytest.raises(psycopg.Error, match="ids must be in at most"), orders.transaction():
            orders.execute("select spanmq.note_export('orders', 'lake', %s)", [ids])
    orders.execute("select spanmq.note_export('orders', 'lake', '{[1,3)}')")
    assert noted() == ["{[1,3)}"]
    orders.execute("select spanmq.forget_export('orders', 'lake')")
    assert noted() is None
