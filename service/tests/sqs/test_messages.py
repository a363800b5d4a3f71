"""Messages through boto3: what SQS programs do with them."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from service.tests.sqs.conftest import Make, arn_of, attributes, bodies, redrive, refused
from tests.patience import WAIT_SECONDS

ATTRIBUTES: dict[str, Any] = {
    "kind": {"DataType": "String", "StringValue": "größer"},
    "count": {"DataType": "Number", "StringValue": "12.5"},
    "raw": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff\x01"},
}


def test_a_message_comes_as_it_was_sent_and_is_gone_when_it_is_deleted(sqs: Any, make: Make) -> None:
    url = make()
    text = 'a "quoted" \\ text\twith ünïcode 🙂 and {"json": 1}'
    sent = sqs.send_message(QueueUrl=url, MessageBody=text, MessageAttributes=ATTRIBUTES)
    assert sent["MD5OfMessageBody"] == hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    [message] = sqs.receive_message(
        QueueUrl=url, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]
    )["Messages"]
    # boto3 compares the digest of the body by itself, and raises.
    assert (message["Body"], message["MessageAttributes"]) == (text, ATTRIBUTES)
    assert message["MessageId"] == sent["MessageId"]
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert message["Attributes"]["SenderId"] == "000000000000"
    assert bodies(sqs, url) == []
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    counts = attributes(sqs, url)
    assert counts["ApproximateNumberOfMessages"] == counts["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_md5_of_attributes_is_that_of_amazon(sqs: Any, make: Make) -> None:
    sent = sqs.send_message(QueueUrl=make(), MessageBody="x", MessageAttributes=ATTRIBUTES)
    # By name: length and name, length and type, 1 or 2 for text or binary, length and value.
    packed = (
        b"\0\0\0\5count\0\0\0\6Number\1\0\0\0\00412.5"
        b"\0\0\0\4kind\0\0\0\6String\1\0\0\0\x08gr\xc3\xb6\xc3\x9fer"
        b"\0\0\0\3raw\0\0\0\nBinary.png\2\0\0\0\3\0\xff\1"
    )
    assert sent["MD5OfMessageAttributes"] == hashlib.md5(packed, usedforsecurity=False).hexdigest()


def test_batches_have_a_result_for_each(sqs: Any, make: Make) -> None:
    url = make()
    entries: list[dict[str, Any]] = [{"Id": str(n), "MessageBody": f"m{n}"} for n in range(9)]
    entries.append({"Id": "bad", "MessageBody": "x", "DelaySeconds": 901})
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == [str(number) for number in range(9)]
    assert [(each["Id"], each["Code"], each["SenderFault"]) for each in answer["Failed"]] == [
        ("bad", "InvalidParameterValue", True)
    ]
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in messages] == [f"m{number}" for number in range(9)]
    shown = [
        {"Id": f"v{n}", "ReceiptHandle": m["ReceiptHandle"], "VisibilityTimeout": 0}
        for n, m in enumerate(messages[:3])
    ]
    assert len(sqs.change_message_visibility_batch(QueueUrl=url, Entries=shown)["Successful"]) == 3
    gone = [{"Id": f"d{n}", "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages[3:])]
    gone.append({"Id": "bad", "ReceiptHandle": "nonsense"})
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=gone)
    assert len(answer["Successful"]) == 6
    assert [each["Code"] for each in answer["Failed"]] == ["ReceiptHandleIsInvalid"]
    assert sorted(bodies(sqs, url)) == ["m0", "m1", "m2"]


def test_visibility_of_one_message_is_changed_alone(sqs: Any, make: Make) -> None:
    url = make()
    for text in ("a", "b"):
        sqs.send_message(QueueUrl=url, MessageBody=text)
    first, second = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=2)["Messages"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    [again] = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["ApproximateReceiveCount"]
    )["Messages"]
    assert (again["Body"], again["Attributes"]["ApproximateReceiveCount"]) == ("a", "2")
    code = refused(
        sqs.change_message_visibility,
        QueueUrl=url,
        ReceiptHandle=first["ReceiptHandle"],
        VisibilityTimeout=10,
    )
    assert code == "InvalidParameterValue"
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=600)
    # An old receipt deletes nothing, and is no error.
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert attributes(sqs, url)["ApproximateNumberOfMessagesNotVisible"] == "2"


def test_delayed_messages_come_later(sqs: Any, make: Make) -> None:
    url = make(DelaySeconds="900")
    sqs.send_message(QueueUrl=url, MessageBody="later")
    sqs.send_message(QueueUrl=url, MessageBody="now", DelaySeconds=0)
    assert bodies(sqs, url) == ["now"]
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesDelayed"])
    assert counts["Attributes"] == {"ApproximateNumberOfMessagesDelayed": "1"}


def test_a_long_poll_ends_with_the_message(sqs: Any, make: Make) -> None:
    url = make()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bodies, sqs, url, WaitTimeSeconds=20)
        sqs.send_message(QueueUrl=url, MessageBody="awaited")
        assert waiting.result(WAIT_SECONDS) == ["awaited"]
    assert bodies(sqs, url, WaitTimeSeconds=1) == []


def test_fifo_keeps_the_order_of_groups_and_knows_messages_again(sqs: Any, make: Make) -> None:
    url = make(fifo=True)
    sent = [
        sqs.send_message(
            QueueUrl=url,
            MessageBody=f"{group}{number}",
            MessageGroupId=group,
            MessageDeduplicationId=f"{group}{number}",
        )
        for number in range(3)
        for group in ("a", "b")
    ]
    again = sqs.send_message(
        QueueUrl=url, MessageBody="other", MessageGroupId="a", MessageDeduplicationId="a0"
    )
    assert again["MessageId"] == sent[0]["MessageId"]
    assert again["SequenceNumber"] == sent[0]["SequenceNumber"] < sent[1]["SequenceNumber"]
    order: list[str] = []
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"]).get(
        "Messages"
    ):
        groups = [message["Attributes"]["MessageGroupId"] for message in messages]
        assert len(messages) == 1 or len(groups) > len(set(groups)), "the head of a group comes as a whole"
        for message in messages:
            order.append(message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert [each for each in order if each[0] == "a"] == ["a0", "a1", "a2"]
    assert [each for each in order if each[0] == "b"] == ["b0", "b1", "b2"]


def test_content_based_deduplication_goes_by_the_body(sqs: Any, make: Make) -> None:
    url = make(fifo=True, ContentBasedDeduplication="true")
    for text in ("same", "same", "other"):
        sqs.send_message(QueueUrl=url, MessageBody=text, MessageGroupId="g")
    assert attributes(sqs, url)["ApproximateNumberOfMessages"] == "2"


def test_a_message_received_too_often_goes_to_the_dead_letters_and_back(sqs: Any, make: Make) -> None:
    dead = make("dead")
    arn = arn_of(sqs, dead)
    url = make(**redrive(arn))
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison", MessageAttributes=ATTRIBUTES)
    for _ in range(2):
        [message] = sqs.receive_message(QueueUrl=url)["Messages"]
        receipt = message["ReceiptHandle"]
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=0)
    assert bodies(sqs, url) == []
    [letter] = sqs.receive_message(
        QueueUrl=dead, AttributeNames=["All"], MessageAttributeNames=["All"], VisibilityTimeout=0
    )["Messages"]
    assert (letter["Body"], letter["MessageId"]) == ("poison", sent["MessageId"])
    assert letter["MessageAttributes"] == ATTRIBUTES
    assert letter["Attributes"]["DeadLetterQueueSourceArn"].endswith(url.rpartition("/")[2])
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    sqs.start_message_move_task(SourceArn=arn)
    assert bodies(sqs, url, WaitTimeSeconds=20) == ["poison"]
    [task] = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
    assert task["ApproximateNumberOfMessagesMoved"] == 1


def test_receive_attempt_id_changes_nothing(sqs: Any, make: Make) -> None:
    url = make(fifo=True, ContentBasedDeduplication="true")
    for number in (1, 2):
        sqs.send_message(QueueUrl=url, MessageBody=f"a{number}", MessageGroupId="a")
    [first] = sqs.receive_message(QueueUrl=url, ReceiveRequestAttemptId="once")["Messages"]
    # A repeated receive gives nothing of the group of the first answer, which waits.
    assert (first["Body"], bodies(sqs, url, ReceiveRequestAttemptId="once")) == ("a1", [])
    handle = first["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
    assert bodies(sqs, url, 1, ReceiveRequestAttemptId="once", WaitTimeSeconds=20) == ["a1"]
