"""Arrays that don't begin at 1, as loops in PL/pgSQL make them, or have two dimensions, are lists too."""

import json

import pytest
from tests.sql.queue import Connection

NUMBERS = list(range(10))
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
    found = queue.execute("select message, headers from pgmq.q_jobs order by msg_id").fetchall()
    assert found == [(n, {"h": n} if has_headers else None) for n in NUMBERS]


@pytest.mark.parametrize("shape", SHAPES)
def test_deduplication_goes_by_the_place_in_the_list(queue: Connection, shape: str) -> None:
    def send() -> list[int]:
        rows = queue.execute(
            "select spanmq.send_messages('jobs', %s::jsonb[], dedup_ids => %s::text[])",
            [shaped(shape, [str(n) for n in NUMBERS]), shaped(shape, [f"d{n}" for n in NUMBERS])],
        )
        return [row[0] for row in rows]

    first = send()
    found = queue.execute("select message from pgmq.q_jobs order by msg_id").fetchall()
    assert found == [(n,) for n in NUMBERS]
    assert send() == first
    again = "select spanmq.send_messages('jobs', array['1']::jsonb[], dedup_ids => array['d3'])"
    assert queue.execute(again.encode()).fetchone() == (first[3],)
