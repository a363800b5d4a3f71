"""Positions of streams over archives are values that a caller gives: read as such, and never as SQL."""

import json

import pytest
from psycopg.errors import Error
from tests.sql.queue import Connection, sqlstate_of

CALLS = {
    "archive_piece": "select * from spanmq.archive_piece('orders', {base}, {here}, 0, 10)",
    "archive_ranges": "select * from spanmq.archive_ranges('orders', {base}, {here}, 0, 100, 10)",
}
# What of them says when something happened, as archive_position() gives it.
POSITION = {"seen": "10:12:10", "since": "2020-01-01", "at": "2020-01-02", "starts": [], "prepared": []}
REFUSED = ("MQ002", "22P02", "22007", "22023")


@pytest.fixture
def orders(connection: Connection) -> Connection:
    connection.execute("select pgmq.create('orders'), pgmq.send('orders', '1')")
    connection.execute("select pgmq.archive('orders', 1)")
    return connection


def literal(position: object) -> str:
    return "null" if position is None else f"$position${json.dumps(position)}$position$"


@pytest.mark.parametrize("call", CALLS)
def test_position_with_prepared_transactions_is_one(orders: Connection, call: str) -> None:
    here = POSITION | {"starts": None, "prepared": [[11, "2020-01-01 10:00:00+00"], [10, "2020-01-02"]]}
    for base in ("null", literal(here)):
        orders.execute(CALLS[call].format(base=base, here=literal(here)).encode())


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        [],
        7,
        "here",
        *({name: value for name, value in POSITION.items() if name != left_out} for left_out in POSITION),
        POSITION | {"seen": None},
        POSITION | {"seen": "nothing"},
        POSITION | {"since": "soon"},
        POSITION | {"at": None},
        POSITION | {"starts": {}},
        POSITION | {"starts": ["soon"]},
        POSITION | {"prepared": {}},
        POSITION | {"prepared": [7]},
        POSITION | {"prepared": [["7 or true", "2020-01-01"]]},
        POSITION | {"prepared": [[{}, "2020-01-01"]]},
        POSITION | {"prepared": [[7]]},
        POSITION | {"prepared": [[7, None]]},
        POSITION | {"prepared": [[7.5, "2020-01-01"]]},
    ],
    ids=str,
)
def test_position_that_is_none_is_refused(orders: Connection, call: str, wrong: object) -> None:
    places = [{"base": "null", "here": literal(wrong)}]
    if wrong is not None:
        places.append({"base": literal(wrong), "here": literal(POSITION)})
    for given in places:
        assert sqlstate_of(orders, CALLS[call].format(**given)) in REFUSED


@pytest.mark.parametrize("wrong", ["{}", '{"seen": "x"}', "[]", "1"])
def test_position_that_retention_is_asked_about_is_checked(orders: Connection, wrong: str) -> None:
    assert sqlstate_of(orders, f"select * from spanmq.archive_position('orders', '{wrong}')") in REFUSED


def test_ranges_have_at_least_one_message(orders: Connection) -> None:
    call = CALLS["archive_ranges"].format(base="null", here=literal(POSITION))
    assert sqlstate_of(orders, call.replace(", 10)", ", 0)")) == "MQ002"


# In JSON a quotation mark is escaped by a backslash: in SQL that ends a name whose last letter this is. What
# follows fits into the statement that the call makes: ends its condition, and hides the rest.
HIDDEN = {
    "archive_piece": 'mine".f())))) else 0 end from (select 0::bigint as last_id, 10::bigint as n) p -- ',
    "archive_ranges": 'mine".f())))) p group by p.part -- ',
}


@pytest.mark.parametrize("call", CALLS)
def test_position_is_no_sql(orders: Connection, call: str) -> None:
    orders.execute("create role spanmq_test_reader")
    orders.execute("select spanmq.grant_queue('spanmq_test_reader', 'orders', 'look')")
    orders.execute('create schema "mine\\" authorization spanmq_test_reader')
    orders.execute('grant usage on schema "mine\\" to public')
    orders.execute("create sequence public.ran")
    orders.execute("grant all on sequence public.ran to public")
    here = POSITION | {
        "seen": "10:2000000000:10",
        "at": "infinity",
        "prepared": [[HIDDEN[call], "2020-01-01"]],
    }
    query = CALLS[call].format(base="null", here=literal(here)).encode()
    orders.execute("set local role spanmq_test_reader")
    orders.execute(
        'create function "mine\\".f() returns bigint language sql volatile as'
        " $$ select nextval('public.ran') $$"
    )
    with pytest.raises(Error, match="not the position of a stream"), orders.transaction():
        orders.execute(query)
    assert orders.execute("select is_called from public.ran").fetchone() == (False,)
