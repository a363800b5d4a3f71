"""The function of examples/migrate for SQS, against moto."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from spanmq.errors import PipelineError

pytest.importorskip("moto.server")
EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples/migrate/to_sqs.py"))


def row(n: int, **changed: Any) -> Row:
    columns = {"queue": "orders", "message_id": n, "group": f"g{n % 3}", "body": str(n), "headers": None}
    return Row(**(columns | changed))


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    yield boto3.client("sqs")
    server.stop()


@pytest.fixture
def url(sqs: Any) -> str:
    created: str = sqs.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    return created


def taken(sqs: Any, url: str) -> list[Any]:
    messages: list[Any] = []
    options = {"MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"], "AttributeNames": ["All"]}
    while more := sqs.receive_message(QueueUrl=url, **options).get("Messages"):
        messages += more
        for message in more:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return messages


def test_sqs_gets_each_message_in_order_with_its_id_and_drops_duplicates(sqs: Any, url: str) -> None:
    large = "x" * 300_000
    EXAMPLE["publish"](url, iter([row(n, headers='{"trace": "a"}') for n in range(25)]))
    EXAMPLE["publish"](url, iter([row(n) for n in range(20, 25)]))
    EXAMPLE["publish"](
        url, iter([row(25, group=None, body=None), *[row(n, body=large) for n in range(26, 34)]])
    )
    messages = taken(sqs, url)
    assert [message["Body"] for message in messages] == [*map(str, range(25)), "null", *[large] * 8]
    values = {name: value["StringValue"] for name, value in messages[3]["MessageAttributes"].items()}
    assert values == {"x-spanmq-message-id": "orders:3", "x-spanmq-headers": '{"trace": "a"}'}
    assert [message["Attributes"]["MessageGroupId"] for message in messages[24:27]] == [
        "g0",
        "orders:25",
        "g2",
    ]


def test_message_that_sqs_refuses_is_named(url: str) -> None:
    with pytest.raises(PipelineError, match=r"messages 2 to 2 were not sent: .*longer than"):
        EXAMPLE["publish"](url, iter([row(1), row(2, body="x" * 1_100_000)]))
    with pytest.raises(PipelineError, match=r"messages 1 to 1 were not sent: .*NonExistentQueue"):
        EXAMPLE["publish"](f"{url}2", iter([row(1)]))
