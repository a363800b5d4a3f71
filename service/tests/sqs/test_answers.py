"""Details of answers that programs depend on: texts and codes are those of AWS."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from service.tests.running import Running, service
from service.tests.sqs.conftest import Make, arn_of, attributes, client_of, codes_of, error_of, redrive
from service.tests.sqs.test_signature import query, texts
from tests.cli.program import do, wait_until


def answer_of(sqs: Any, action: str, **values: Any) -> dict[str, Any]:
    answer = getattr(sqs, action)(**values)
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


def system_of(sqs: Any, url: str, name: str) -> list[str]:
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])
    return [message["Attributes"][name] for message in received["Messages"]]


def test_booleans_are_taken_in_any_case(sqs: Any) -> None:
    given = {"FifoQueue": "True", "ContentBasedDeduplication": "TRUE", "SqsManagedSseEnabled": "true"}
    url = sqs.create_queue(QueueName="booleans.fifo", Attributes=given)["QueueUrl"]
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(given))["Attributes"]
    assert shown == dict.fromkeys(given, "true")


def test_kind_of_a_queue_does_not_change(sqs: Any, make: Make) -> None:
    fifo, standard = make(fifo=True), make("plain")
    sqs.set_queue_attributes(QueueUrl=fifo, Attributes={"FifoQueue": "true"})
    error = error_of(sqs.set_queue_attributes, QueueUrl=fifo, Attributes={"FifoQueue": "false"})
    assert error["Code"] == "InvalidAttributeValue"
    assert "Modifying queue type is not supported" in error["Message"]
    for value in ("true", "false"):
        error = error_of(sqs.set_queue_attributes, QueueUrl=standard, Attributes={"FifoQueue": value})
        assert error["Message"] == "Unknown Attribute FifoQueue."


def test_delay_of_zero_is_the_delay_of_a_fifo_queue(sqs: Any, make: Make) -> None:
    url = make(fifo=True, ContentBasedDeduplication="true")
    sqs.send_message(QueueUrl=url, MessageBody="now", MessageGroupId="a", DelaySeconds=0)
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == "now"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "900"})
    sqs.send_message(QueueUrl=url, MessageBody="later", MessageGroupId="b", DelaySeconds=0)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    error = error_of(sqs.send_message, QueueUrl=url, MessageBody="x", MessageGroupId="a", DelaySeconds=2)
    assert error["Message"].startswith("Value 2 for parameter DelaySeconds is invalid. Reason: ")


def test_names_of_attributes_are_prefixes_before_a_dot_and_a_star(sqs: Any, make: Make) -> None:
    url = make(VisibilityTimeout="0")
    given = {name: {"DataType": "String", "StringValue": "x"} for name in ("Hello", "Hel.p", "He", "größe")}
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=given)

    def names(*wanted: str) -> set[str]:
        [message] = sqs.receive_message(QueueUrl=url, MessageAttributeNames=list(wanted))["Messages"]
        return set(message.get("MessageAttributes", {}))

    assert names("Hel.*") == {"Hello", "Hel.p"}
    assert names("grö.*", "He") == {"größe", "He"}
    assert names("Hel*") == set()


def test_empty_lists_are_left_out(sqs: Any, make: Make) -> None:
    url = make()
    entries = [{"Id": "a", "MessageBody": "x"}, {"Id": "b", "MessageBody": "x", "DelaySeconds": 901}]
    assert set(answer_of(sqs, "send_message_batch", QueueUrl=url, Entries=entries[:1])) == {"Successful"}
    assert set(answer_of(sqs, "send_message_batch", QueueUrl=url, Entries=entries[1:])) == {"Failed"}
    assert answer_of(sqs, "list_queues", QueueNamePrefix="there-is-none") == {}
    assert answer_of(sqs, "list_queue_tags", QueueUrl=url) == {}
    assert answer_of(sqs, "get_queue_attributes", QueueUrl=url) == {}
    assert answer_of(sqs, "get_queue_attributes", QueueUrl=url, AttributeNames=["RedrivePolicy"]) == {}


def test_empty_list_in_a_form(keyed: Running, key: dict[str, str], sqs: Any, make: Make) -> None:
    url = make()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    fields = {"QueueUrl": url, "AttributeNames": "", "MessageAttributeNames": ""}
    assert texts(query(keyed.address, key, "ReceiveMessage", **fields), "Body") == ["x"]
    answer = query(keyed.address, key, "SendMessageBatch", QueueUrl=url, Entries="")
    assert texts(answer, "Code") == ["AWS.SimpleQueueService.EmptyBatchRequest"]
    answer = query(keyed.address, key, "ReceiveMessage", QueueUrl=url, AttributeNames="x")
    assert texts(answer, "Code") == ["InvalidParameterValue"]


@pytest.mark.parametrize(
    ("lacking", "text"),
    [
        ("MessageGroupId", "The request must contain the parameter MessageGroupId."),
        ("MessageDeduplicationId", "The queue should either have ContentBasedDeduplication enabled"),
    ],
)
def test_batch_with_an_entry_without_ids_is_refused_whole(
    sqs: Any, make: Make, lacking: str, text: str
) -> None:
    url = make(fifo=True)
    entries: list[dict[str, str]] = [
        {"Id": each, "MessageBody": each, "MessageGroupId": "g", "MessageDeduplicationId": each}
        for each in "ab"
    ]
    del entries[1][lacking]
    error = error_of(sqs.send_message_batch, QueueUrl=url, Entries=entries)
    assert codes_of(error) == ("InvalidParameterValue", "InvalidParameterValueException")
    assert error["Message"].startswith(text)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


def test_errors_have_the_codes_of_both_protocols(sqs: Any, make: Make) -> None:
    url = make(fifo=True)
    error = error_of(sqs.send_message, QueueUrl=url, MessageBody="x", MessageDeduplicationId="x")
    assert codes_of(error) == ("MissingParameter", "MissingRequiredParameterException")
    error = error_of(sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=11)
    assert codes_of(error) == ("InvalidParameterValue", "InvalidParameterValueException")
    assert error["Message"].startswith("Value 11 for parameter MaxNumberOfMessages is invalid. Reason: ")
    error = error_of(sqs.delete_message, QueueUrl=url, ReceiptHandle="garbage")
    assert error["Message"] == 'The input receipt handle "garbage" is not a valid receipt handle.'


def test_visibility_of_a_deleted_message_names_the_handle(sqs: Any, make: Make) -> None:
    url = make()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    handle = message["ReceiptHandle"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    error = error_of(sqs.change_message_visibility, QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=9)
    assert error["Code"] == "InvalidParameterValue"
    assert error["Message"].startswith(f"Value {handle} for parameter ReceiptHandle is invalid. Reason: ")


def test_trace_of_the_request_is_that_of_the_message(keyed: Running, key: dict[str, str], make: Make) -> None:
    client = client_of(keyed.address, key)
    trace = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1"
    client.meta.events.register(
        "before-send.sqs.SendMessage",
        lambda request, **_: request.headers.__setitem__("X-Amzn-Trace-Id", trace),
    )
    url = make()
    client.send_message(QueueUrl=url, MessageBody="x")
    assert system_of(client, url, "AWSTraceHeader") == [trace]
    own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-own"}}
    client.send_message(QueueUrl=url, MessageBody="x", MessageSystemAttributes=own)
    assert system_of(client, url, "AWSTraceHeader") == ["Root=1-own"]


def test_receives_are_counted_on_in_the_dead_letter_queue(sqs: Any, make: Make) -> None:
    dead = make("dead", VisibilityTimeout="0")
    url = make(VisibilityTimeout="0", **redrive(arn_of(sqs, dead)))
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert [system_of(sqs, url, "ApproximateReceiveCount") for _ in range(2)] == [["1"], ["2"]]
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    assert [system_of(sqs, dead, "ApproximateReceiveCount") for _ in range(2)] == [["3"], ["4"]]


def test_call_asks_for_its_queue_once_until_it_is_told_of_a_change(database: str, tmp_path: Path) -> None:
    with service(database, tmp_path, "token-cache", 3600.0) as running:
        sqs = client_of(running.address)
        url = sqs.create_queue(QueueName="jobs")["QueueUrl"]

        def asks_no_more() -> bool:
            """Return whether calls need no answer about the queue, once one has had it."""
            sqs.send_message(QueueUrl=url, MessageBody="first")
            # A service that asks again gets an error.
            do(database, "alter function spanmq.list_sqs_queues(text) rename to hidden")
            try:
                sqs.send_message(QueueUrl=url, MessageBody="second")
                messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
                for message in messages:
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            except ClientError:
                return False
            finally:
                do(database, "alter function spanmq.hidden(text) rename to list_sqs_queues")
            return {message["Body"] for message in messages} == {"first", "second"}

        # It may hear of the new queue, and forget it, within the first of these.
        wait_until(asks_no_more)
        do(database, """select spanmq.set_sqs_queue('jobs', '{"DelaySeconds": "900"}')""")
        wait_until(lambda: attributes(sqs, url)["DelaySeconds"] == "900")


def test_purge_forgets_deduplication_ids(sqs: Any, make: Make) -> None:
    url = make(fifo=True)
    again = {"QueueUrl": url, "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    sqs.send_message(MessageBody="first", **again)
    sqs.purge_queue(QueueUrl=url)
    sqs.send_message(MessageBody="second", **again)
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == "second"
    sqs.send_message(MessageBody="third", **again)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
