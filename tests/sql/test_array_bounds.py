"""Arrays that don't begin at 1, as loops in PL/pgSQL make them, or have two dimensions, are lists too."""

import json

import psycopg
import pytest
from tests.sql.queue import Connection, column, one, rows

NUMBERS = list(range(10))
BODIES = "select message from pgmq.q_jobs order by msg_id"
SHAPES = {
    "from 0": "[0:9]={{{},{},{},{},{},{},{},{},{},{}}}",
    "from 7": "[7:16]={{{},{},{},{},{},{},{},{},{},{}}}",
    "two dimensions": "{{{{{},{},{},{},{}}},{{{},{},{},{},{}}}}}",
}


def shaped(shape: str, elements: list[str]) -> str:
    """Return the array as PostgreSQL reads it."""
    return SHAPES[shape].format(*(json.dumps(element) for element in elements))


@pytest.fixture
def queue(connection: Connection) -> Connection:
    connection.execute("select pgmq.create('jobs')")
    # The last ids of the first segment: a batch goes on in the next.
    connection.execute("select setval('pgmq.q_jobs_msg_id_seq', 16380)")
    return connection


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_headers", [True, False])
def test_batch_is_stored_whole(queue: Connection, shape: str, has_headers: bool) -> None:
    headers = shaped(shape, [f'{{"h": {n}}}' for n in NUMBERS]) if has_headers else None
    queue.execute(
        "select pgmq.send_batch('jobs', %s::jsonb[], %s::jsonb[])",
        [shaped(shape, [str(n) for n in NUMBERS]), headers],
    )
    found = rows(queue, "select message, headers from pgmq.q_jobs order by msg_id")
    assert found == [(n, {"h": n} if has_headers else None) for n in NUMBERS]


@pytest.mark.parametrize("shape", SHAPES)
def test_deduplication_goes_by_the_place_in_the_list(queue: Connection, shape: str) -> None:
    def send() -> list[int]:
        call = "select spanmq.send_messages('jobs', %s::jsonb[], dedup_ids => %s::text[])"
        bodies, ids = [str(n) for n in NUMBERS], [f"d{n}" for n in NUMBERS]
        return column(queue, call, shaped(shape, bodies), shaped(shape, ids))

    first = send()
    assert column(queue, BODIES) == NUMBERS
    assert send() == first
    again = "select spanmq.send_messages('jobs', array['1']::jsonb[], dedup_ids => array['d3'])"
    assert one(queue, again) == first[3]


@pytest.mark.parametrize("shape", SHAPES)
def test_schema_is_checked_on_every_body_in_the_list(queue: Connection, shape: str) -> None:
    queue.execute("""select spanmq.set_schema('jobs', '{"type": ["integer", "null"]}', checked => true)""")
    good = [str(n) for n in NUMBERS]
    for call in ("pgmq.send_batch('jobs', %s::jsonb[])", "spanmq.send_messages('jobs', %s::jsonb[])"):
        queue.execute(f"select {call}".encode(), [shaped(shape, good)])
        for place in (0, 9):
            bad = [*good[:place], '"x"', *good[place + 1 :]]
            with (
                pytest.raises(psycopg.Error, match=f"body {place + 1} of 10 does not fit"),
                queue.transaction(),
            ):
                queue.execute(f"select {call}".encode(), [shaped(shape, bad)])
    assert queue.execute("select count(*) from pgmq.q_jobs where message = '\"x\"'").fetchone() == (0,)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shape_of_ids", SHAPES)
def test_new_bodies_go_by_the_place_in_the_list(queue: Connection, shape: str, shape_of_ids: str) -> None:
    queue.execute("select pgmq.send_batch('jobs', array_fill('0'::jsonb, array[10]))")
    queue.execute(
        "select spanmq.reject('jobs', lease_id, array_agg(msg_id)) from spanmq.receive('jobs', 10) group by lease_id"
    )
    ids = column(queue, "select dead_letter_id::text from spanmq.dead_letters('jobs')")
    queue.execute(
        "select spanmq.redrive('jobs', dead_letter_ids => %s::bigint[], new_messages => %s::jsonb[])",
        [shaped(shape_of_ids, ids), shaped(shape, [str(n) for n in NUMBERS])],
    )
    assert column(queue, BODIES) == NUMBERS


@pytest.mark.parametrize("ids", ["[0:0]={{{}}}", "[7:7]={{{}}}", "{{{{{}}}}}"])
@pytest.mark.parametrize("archives", ["true", "false"])
def test_one_message_is_acked(queue: Connection, ids: str, archives: str) -> None:
    queue.execute("select spanmq.set_policy('jobs', %s)", [f'{{"archive_on_ack": {archives}}}'])
    queue.execute("select pgmq.send('jobs', '1')")
    [(msg_id, lease)] = rows(queue, "select msg_id, lease_id from spanmq.receive('jobs')")
    acked = rows(queue, "select * from spanmq.ack('jobs', %s, %s)", lease, ids.format(msg_id))
    assert acked == [(msg_id, "acked")]
    assert column(queue, "select msg_id from pgmq.a_jobs") == ([msg_id] if archives == "true" else [])
