"""Headers that SQL wrote, over HTTP and as SQS: no message harms those that are received with it."""

import re
from collections.abc import Iterator
from typing import Final

import httpx
import pytest
from service.tests.running import Running
from tests.cli.program import ask, do

# jsonb expressions: whatever a role may write that may send.
HEADERS: Final = {
    "attributes that are a string": """'{"x-sqs-attributes": "boom"}'""",
    "an attribute that is an object": """'{"x-sqs-attributes": {"a": {}}}'""",
    "an attribute that is a number": """'{"x-sqs-attributes": {"a": 5}}'""",
    "a value that is a number": """'{"x-sqs-attributes": {"a": {"DataType": "String", "String": 5}}}'""",
    "a type that does not exist": """'{"x-sqs-attributes": {"a": {"DataType": "Odd", "String": "x"}}}'""",
    "a value that is not base64": """'{"x-sqs-attributes": {"a": {"DataType": "Binary", "Binary": "ß"}}}'""",
    "ids that are objects": """'{"x-sqs-dedup": {"a": 1}, "x-sqs-trace": [1], "x-sqs-sent": "abc"}'""",
    "a group that is an object": """'{"x-pgmq-group": {"a": 1}}'""",
    "a group with a control character": """'{"x-pgmq-group": "a\\u0001b"}'""",
    "a list": "'[1]'",
    "a string": """'"x"'""",
    "a number": "5::text",
    "a number of 5,000 digits": """'{"a": 1' || repeat('0', 5000) || '}'""",
    "a hint without a fact": """'{"x-sqs-moved": {"a": 1}}'""",
}


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
    answer = http.post(f"/v1/queues/{queue}/receive", json={"quantity": 10, "lease": 0})
    assert answer.status_code == 200, answer.text
    assert bodies(answer) == [0, 1, 2]
    values = {"QueueUrl": f"/{queue}", "MaxNumberOfMessages": 10, "AttributeNames": ["All"]}
    values["MessageAttributeNames"] = ["All"]
    answer = http.post("/", json=values, headers={"x-amz-target": "AmazonSQS.ReceiveMessage"})
    assert answer.status_code == 200, answer.text
    messages = answer.json()["Messages"]
    assert [message["Body"] for message in messages] == ["0", "1", "2"]
    assert "MessageAttributes" not in messages[1]


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
