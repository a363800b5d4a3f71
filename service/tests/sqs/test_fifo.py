"""FIFO queues: a receive takes what one group has first, and a handle ends with its visibility timeout."""

from typing import Any

import pytest
from service.tests.sqs.conftest import Make, attributes, bodies, codes_of, error_of
from tests.cli.program import wait_until


@pytest.fixture
def url(make: Make) -> str:
    return str(make(fifo=True, ContentBasedDeduplication="true"))


def send(sqs: Any, url: str, *bodies: str) -> None:
    """Send messages, each to the group of its first letter."""
    for body in bodies:
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[0])


def received(sqs: Any, url: str, quantity: int = 10, **values: Any) -> list[dict[str, Any]]:
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=quantity, **values)
    return list(answer.get("Messages", []))


def count(sqs: Any, url: str, which: str) -> int:
    return int(attributes(sqs, url)[f"ApproximateNumberOfMessages{which}"])


def test_receive_takes_one_group_before_the_next(sqs: Any, url: str) -> None:
    send(sqs, url, "a0", "b0", "a1", "b1", "a2", "c0", "b2")
    first = received(sqs, url, 3)
    assert [message["Body"] for message in first] == ["a0", "a1", "a2"]
    # Group a waits for its messages in flight; what is left of b is not delivered beside b0 and b1.
    send(sqs, url, "a3")
    assert bodies(sqs, url, 2) == ["b0", "b1"]
    assert bodies(sqs, url) == ["c0"]
    for message in first:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert bodies(sqs, url) == ["a3"]


def test_messages_of_a_receive_are_group_by_group(sqs: Any, url: str) -> None:
    send(sqs, url, "b0", "a0", "b1", "c0", "a1", "b2")
    assert bodies(sqs, url) == ["b0", "b1", "b2", "a0", "a1", "c0"]


def test_handle_does_not_delete_after_its_visibility_timeout(sqs: Any, url: str) -> None:
    send(sqs, url, "a0", "a1")
    first, second = (message["ReceiptHandle"] for message in received(sqs, url, VisibilityTimeout=1))
    wait_until(lambda: count(sqs, url, "NotVisible") == 0)
    error = error_of(sqs.delete_message, QueueUrl=url, ReceiptHandle=first)
    assert codes_of(error) == ("InvalidParameterValue", "InvalidParameterValueException")
    expired = f"Value {first} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    assert error["Message"] == expired
    entries = [{"Id": "first", "ReceiptHandle": first}, {"Id": "second", "ReceiptHandle": second}]
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=entries)
    assert "Successful" not in answer
    assert [(each["Id"], each["Code"]) for each in answer["Failed"]] == [
        ("first", "InvalidParameterValue"),
        ("second", "InvalidParameterValue"),
    ]
    again = received(sqs, url)
    assert [message["Body"] for message in again] == ["a0", "a1"]
    # Another receiver's messages stay, too.
    assert error_of(sqs.delete_message, QueueUrl=url, ReceiptHandle=first)["Message"] == expired
    for message in again:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert count(sqs, url, "") + count(sqs, url, "NotVisible") == 0


def test_deleting_twice_is_not_an_error(sqs: Any, url: str) -> None:
    send(sqs, url, "a0")
    [message] = received(sqs, url)
    for handle in (message["ReceiptHandle"], message["ReceiptHandle"].partition(".")[0] + ".0"):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)


def test_handle_of_an_extended_visibility_timeout_deletes(sqs: Any, url: str) -> None:
    send(sqs, url, "a0")
    [message] = received(sqs, url, VisibilityTimeout=1)
    handle = message["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=600)
    # As after a second: the time in the handle is over.
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle.partition(".")[0] + ".1")
    assert count(sqs, url, "") + count(sqs, url, "NotVisible") == 0


def test_message_that_was_made_visible_is_not_deleted_by_its_handle(sqs: Any, url: str) -> None:
    send(sqs, url, "a0")
    [message] = received(sqs, url)
    handle = message["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
    error = error_of(sqs.delete_message, QueueUrl=url, ReceiptHandle=handle)
    assert error["Message"].endswith("Reason: The receipt handle has expired.")
    assert bodies(sqs, url) == ["a0"]


def test_standard_queue_deletes_after_the_visibility_timeout(sqs: Any, make: Make) -> None:
    url = make()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [message] = received(sqs, url, VisibilityTimeout=1)
    wait_until(lambda: count(sqs, url, "NotVisible") == 0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert count(sqs, url, "") == 0
