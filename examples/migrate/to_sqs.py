"""Sends messages to a FIFO queue of SQS: needs `pip install boto3`, also on executors, and AWS's usual variables.

SQS_URL=https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo \
    spanmq pipeline migrate orders --to to_sqs:send --checkpoint orders-to-sqs
"""

import os
from collections.abc import Iterator
from typing import Any

import boto3
from botocore.exceptions import ClientError
from pyspark.sql import DataFrame, Row

from spanmq.errors import PipelineError

# What SQS accepts in one call.
CALL_MESSAGES = 10
CALL_BYTES = 1 << 20


def send(messages: DataFrame, _: int) -> None:
    """Send a batch, with one client for each partition."""
    url = os.environ["SQS_URL"]
    messages.foreachPartition(lambda rows: publish(url, rows))


def publish(url: str, rows: Iterator[Row]) -> None:
    """Send these in order, in calls of up to ten."""
    sqs = boto3.client("sqs")
    for call in calls(entry(row) for row in rows):
        first, last = call[0]["Id"], call[-1]["Id"]
        try:
            refused = sqs.send_message_batch(QueueUrl=url, Entries=call).get("Failed", [])
        except ClientError as error:
            raise PipelineError(f"messages {first} to {last} were not sent: {error}") from error
        if refused:
            raise PipelineError(f"message {refused[0]['Id']} was not sent: {refused[0].get('Message')}")


def entry(row: Row) -> dict[str, Any]:
    """Return a message as SQS takes it: the second one with the same id within five minutes is dropped."""
    mark = f"{row.queue}:{row.message_id}"
    attributes = {"x-spanmq-message-id": mark, "x-spanmq-headers": row.headers}
    return {
        "Id": str(row.message_id),
        "MessageBody": row.body or "null",
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items() if value
        },
        "MessageGroupId": row.group or mark,
        "MessageDeduplicationId": mark,
    }


def calls(entries: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Cut entries into calls."""
    call: list[dict[str, Any]] = []
    size = 0
    for message in entries:
        length = len(str(message).encode())
        if call and (len(call) == CALL_MESSAGES or size + length > CALL_BYTES):
            yield call
            call, size = [], 0
        call.append(message)
        size += length
    if call:
        yield call
