"""Headers that SQL wrote, in the HTTP interface: no message harms those that are received with it."""

import re
from collections.abc import Iterator

import httpx
import pytest
from service.tests.running import Running
from service.tests.sqs.test_poison import HEADERS
from tests.cli.program import ask, do


@pytest.fixture
def http(shared: Running) -> Iterator[httpx.Client]:
    """A client for headers that are no objects, which the description does not expect."""
    with shared.client(checked=False) as client:
        yield client


def bodies(answer: httpx.Response) -> list[int]:
    # By hand: Python reads neither numbers nor lists of such a size.
    return [int(body) for body in re.findall(r'"body":(\d+)}', answer.text)]


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS.keys())
def test_message_with_odd_headers_is_received_with_its_neighbours(
    http: httpx.Client, queue: str, service_database: str, headers: str
) -> None:
    do(
        service_database,
        f"select pgmq.send('{queue}', '0'), pgmq.send('{queue}', '1', ({headers})::jsonb),"
        f" pgmq.send('{queue}', '2')",
    )
    answer = http.post(f"/v1/queues/{queue}/receive", json={"quantity": 10})
    assert answer.status_code == 200, answer.text
    assert bodies(answer) == [0, 1, 2]


def test_headers_of_any_depth_stop_no_receive(http: httpx.Client, queue: str, service_database: str) -> None:
    """Headers near the depth that Python can read, some below what it can write, some above either."""
    headers = "('{\"a\":' || repeat('[', n) || repeat(']', n) || '}')::jsonb"
    deep = f"select pgmq.send('{queue}', to_jsonb(n), {headers}) from generate_series(880, 1010) n"
    do(service_database, f"select pgmq.send('{queue}', '0')", deep)
    received: set[int] = set()
    for _ in range(20):
        answer = http.post(f"/v1/queues/{queue}/receive", json={"quantity": 10})
        if answer.status_code == 422:
            # No message of this batch can be read: each was given back with its failure.
            assert answer.json()["error"]["code"] == "invalid_body"
            continue
        assert answer.status_code == 200, answer.text
        received |= set(bodies(answer))
    failed = ask(
        service_database,
        f"select coalesce(jsonb_agg(body), '[]') from (select message as body from pgmq.q_{queue} q"
        f" where exists (select from spanmq.failures('{queue}', q.msg_id))"
        f" union all select message from spanmq.dead_letters('{queue}')) b",
    )
    assert received.isdisjoint(failed)
    assert received | set(failed) == {0, *range(880, 1011)}
