"""The older protocol: every action that SQS has, asked in forms and answered in XML."""

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from service.tests.running import Running
from service.tests.sqs.test_signature import query, texts
from tests.cli.program import wait_until

from spanmq_service.sqs.endpoint import ACTIONS


class Asking:
    """Asks, and remembers which actions."""

    def __init__(self, address: str, key: dict[str, str]) -> None:
        self.address = address
        self.key = key
        self.asked: set[str] = set()

    def __call__(self, action: str, url: str | None = None, **fields: Any) -> ElementTree.Element:
        self.asked.add(action)
        given = {name.replace("_", "."): str(value) for name, value in fields.items()}
        if url is not None:
            given["QueueUrl"] = url
        return query(self.address, self.key, action, **given)

    def one(self, name: str, action: str, url: str | None = None, **fields: Any) -> str:
        """Return the only text of an element of the answer."""
        answer = self(action, url, **fields)
        [found] = texts(answer, name)
        return str(found)


def batch(action: str, *entries: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a batch: its entries are numbered."""
    return {
        f"{action}RequestEntry_{number}_{name}": value
        for number, values in enumerate(entries, start=1)
        for name, value in values.items()
    }


@pytest.fixture
def asking(keyed: Running, key: dict[str, str]) -> Asking:
    return Asking(keyed.address, key)


def test_every_action_is_answered_in_xml(asking: Asking, sqs: Any) -> None:
    dead = asking.one("QueueUrl", "CreateQueue", QueueName="xml-dead")
    arn = asking.one("Value", "GetQueueAttributes", dead, AttributeName_1="QueueArn")
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "5"}}'
    attribute = {"Attribute_1_Name": "RedrivePolicy", "Attribute_1_Value": policy}
    url = asking.one("QueueUrl", "CreateQueue", QueueName="xml", **attribute)
    assert asking.one("QueueUrl", "GetQueueUrl", QueueName="xml") == url
    assert asking.one("QueueUrl", "ListDeadLetterSourceQueues", dead) == url
    assert texts(asking("ListQueues", QueueNamePrefix="xml"), "QueueUrl") == [url, dead]

    asking("SetQueueAttributes", url, Attribute_1_Name="VisibilityTimeout", Attribute_1_Value=77)
    assert asking.one("Value", "GetQueueAttributes", url, AttributeName_1="VisibilityTimeout") == "77"
    asking("TagQueue", url, Tag_1_Key="team", Tag_1_Value="blue", Tag_2_Key="cost", Tag_2_Value="7")
    asking("UntagQueue", url, TagKey_1="cost")
    tags = asking("ListQueueTags", url)
    assert (texts(tags, "Key"), texts(tags, "Value")) == (["team"], ["blue"])

    held = list(receipts(asking, url))
    for handle in held[:1]:
        asking("ChangeMessageVisibility", url, ReceiptHandle=handle, VisibilityTimeout=0)
    shown = {"Id": "a", "ReceiptHandle": held[1], "VisibilityTimeout": 0}
    changed = asking("ChangeMessageVisibilityBatch", url, **batch("ChangeMessageVisibilityBatch", shown))
    assert texts(changed, "Id") == ["a"]
    gone = ({"Id": "d1", "ReceiptHandle": held[2]}, {"Id": "d2", "ReceiptHandle": "none"})
    deleted = asking("DeleteMessageBatch", url, **batch("DeleteMessageBatch", *gone))
    assert texts(deleted, "Id") == ["d1", "d2"]
    assert texts(deleted, "Code") == ["ReceiptHandleIsInvalid"]
    # Without a wait it may find nothing: a receiver passes over what housekeeping holds at that instant.
    [again] = texts(asking("ReceiveMessage", url, WaitTimeSeconds=20), "ReceiptHandle")
    asking("DeleteMessage", url, ReceiptHandle=again)
    counted = {"AttributeName_1": "ApproximateNumberOfMessages"}
    assert asking.one("Value", "GetQueueAttributes", url, **counted) == "1"
    asking("PurgeQueue", url)
    assert asking.one("Value", "GetQueueAttributes", url, **counted) == "0"

    # What is moved comes back at the pace of one a second: the task is there to be cancelled.
    asking("SendMessage", dead, MessageBody="moved")
    ten = batch("SendMessageBatch", *({"Id": number, "MessageBody": "moved"} for number in range(10)))
    for _ in range(30):
        asking("SendMessageBatch", dead, **ten)
    moving: dict[str, Any] = {
        "DestinationArn": arn.replace("xml-dead", "xml"),
        "MaxNumberOfMessagesPerSecond": 1,
    }
    task = asking.one("TaskHandle", "StartMessageMoveTask", SourceArn=arn, **moving)
    listed = asking("ListMessageMoveTasks", SourceArn=arn, MaxResults=3)
    assert texts(listed, "TaskHandle") == [task]
    wait_until(lambda: bool(sqs.receive_message(QueueUrl=url).get("Messages")))
    moved = asking.one("ApproximateNumberOfMessagesMoved", "CancelMessageMoveTask", TaskHandle=task)
    assert 1 <= int(moved) <= 301

    for action, more in (
        ("AddPermission", {"AWSAccountId_1": "1", "ActionName_1": "*"}),
        ("RemovePermission", {}),
    ):
        code = asking.one("Code", action, url, Label="x", **more)
        assert code == "AWS.SimpleQueueService.UnsupportedOperation"
    for each in (url, dead):
        asking("DeleteQueue", each)
    assert texts(asking("ListQueues", QueueNamePrefix="xml"), "QueueUrl") == []
    assert asking.asked == ACTIONS.keys()


def test_texts_attributes_and_errors_are_those_of_the_newer_protocol(asking: Asking, sqs: Any) -> None:
    tags = {"Tag_1_Key": "team", "Tag_1_Value": "blue"}
    url = asking.one("QueueUrl", "CreateQueue", QueueName="older", **tags)
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "blue"}
    attribute = {
        "MessageAttribute_1_Name": "kind",
        "MessageAttribute_1_Value_DataType": "String",
        "MessageAttribute_1_Value_StringValue": "<&>",
    }
    sent = asking.one("MessageId", "SendMessage", url, MessageBody="a & <b>", **attribute)
    two = batch("SendMessageBatch", {"Id": 1, "MessageBody": "second"}, {"Id": 2, "MessageBody": "\x01"})
    assert texts(asking("SendMessageBatch", url, **two), "Code") == ["InvalidMessageContents"]
    every = {"AttributeName_1": "All", "MessageAttributeName_1": "All"}
    found = asking("ReceiveMessage", url, MaxNumberOfMessages=10, **every)
    assert texts(found, "Body") == ["a & <b>", "second"]
    assert texts(found, "MessageId")[0] == sent
    assert texts(found, "StringValue") == ["<&>"]
    shown = asking("GetQueueAttributes", url, AttributeName_1="All")
    pairs = dict(zip(texts(shown, "Name"), texts(shown, "Value"), strict=True))
    assert pairs["ApproximateNumberOfMessagesNotVisible"] == "2"
    assert asking.one("Code", "GetQueueUrl", QueueName="none") == "AWS.SimpleQueueService.NonExistentQueue"
    assert asking.one("Code", "Odd") == "InvalidAction"
    assert asking.one("Code", "ListQueues", Odd=1) == "InvalidParameterValue"


def receipts(asking: Asking, url: str) -> Iterator[str]:
    """Send three messages in a batch, and receive them."""
    three = batch("SendMessageBatch", *({"Id": f"s{n}", "MessageBody": f"body {n}"} for n in (1, 2, 3)))
    assert texts(asking("SendMessageBatch", url, **three), "Id") == ["s1", "s2", "s3"]
    received = asking("ReceiveMessage", url, MaxNumberOfMessages=10)
    assert texts(received, "Body") == ["body 1", "body 2", "body 3"]
    yield from map(str, texts(received, "ReceiptHandle"))
