"""Whatever would have no effect here is refused, in either protocol, and nothing of it happens."""

import json
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from service.tests.sqs.conftest import Make, refused
from service.tests.sqs.test_queues import attributes

ARN = "arn:aws:sqs:x:000000000000:dead"
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    "text",
    [
        '{"maxReceiveCount": 3.7, "deadLetterTargetArn": ARN}',
        '{"maxReceiveCount": true, "deadLetterTargetArn": ARN}',
        '{"maxReceiveCount": [], "deadLetterTargetArn": ARN}',
        '{"maxReceiveCount": "three", "deadLetterTargetArn": ARN}',
        '{"maxReceiveCount": 0, "deadLetterTargetArn": ARN}',
        '{"maxReceiveCount": 1001, "deadLetterTargetArn": ARN}',
        '{"maxReceiveCount": 1e999, "deadLetterTargetArn": ARN}',
        '{"maxReceiveCount": 3, "deadLetterTargetArn": [ARN]}',
        '{"maxReceiveCount": 3, "deadLetterTargetArn": ARN, "odd": 1}',
        '{"maxReceiveCount": 3}',
        "[3, ARN]",
        "{",
        "[" * 100_000,
    ],
    ids=lambda text: text[:60],
)
def test_redrive_policy_that_means_nothing_is_refused(sqs: Any, make: Make, text: str) -> None:
    # A queue that is there: nothing but the policy's form is wrong.
    arn = json.dumps(attributes(sqs, make("dead"))["QueueArn"])
    url = make()
    given = {"RedrivePolicy": text.replace("ARN", arn)}
    code = refused(sqs.set_queue_attributes, QueueUrl=url, Attributes=given)
    assert code.endswith("InvalidAttributeValue")
    assert "RedrivePolicy" not in attributes(sqs, url)
    for count in ("3", '"3"'):
        means = f'{{"maxReceiveCount": {count}, "deadLetterTargetArn": {arn}}}'
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": means})
        assert attributes(sqs, url)["RedrivePolicy"] == means


@pytest.mark.parametrize(
    "policy",
    [
        {"redrivePermission": "byQueue"},
        {"redrivePermission": "byQueue", "sourceQueueArns": []},
        {"redrivePermission": "byQueue", "sourceQueueArns": 5},
        {"redrivePermission": "byQueue", "sourceQueueArns": ["x"]},
        {"redrivePermission": "byQueue", "sourceQueueArns": [ARN] * 11},
        {"redrivePermission": "allowAll", "sourceQueueArns": [ARN]},
        {"redrivePermission": "denyAll", "odd": 1},
        {"redrivePermission": ["denyAll"]},
    ],
    ids=str,
)
def test_redrive_allow_policy_that_means_nothing_is_refused(
    sqs: Any, make: Make, policy: dict[str, Any]
) -> None:
    url = make()
    given = {"RedriveAllowPolicy": json.dumps(policy)}
    code = refused(sqs.set_queue_attributes, QueueUrl=url, Attributes=given)
    assert code.endswith("InvalidAttributeValue")
    assert "RedriveAllowPolicy" not in attributes(sqs, url)


def test_queue_is_not_its_own_dead_letter_queue(sqs: Any, make: Make) -> None:
    url = make()
    policy = {"maxReceiveCount": 3, "deadLetterTargetArn": attributes(sqs, url)["QueueArn"]}
    given = {"RedrivePolicy": json.dumps(policy)}
    code = refused(sqs.set_queue_attributes, QueueUrl=url, Attributes=given)
    assert code.endswith("InvalidAttributeValue")
    assert "RedrivePolicy" not in attributes(sqs, url)


def test_queue_has_as_many_tags_when_it_is_created_as_later(sqs: Any) -> None:
    tags = {str(number): "x" for number in range(51)}
    assert refused(sqs.create_queue, QueueName="tagged", tags=tags) == "InvalidParameterValue"
    del tags["0"]
    url = sqs.create_queue(QueueName="tagged", tags=tags)["QueueUrl"]
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == tags


def test_queue_of_another_account_is_not_there(sqs: Any, make: Make) -> None:
    name = make().rpartition("/")[2]
    assert sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId="000000000000")["QueueUrl"]
    code = refused(sqs.get_queue_url, QueueName=name, QueueOwnerAWSAccountId="123456789012")
    assert code.endswith(("QueueDoesNotExist", "NonExistentQueue"))


def test_limit_of_groups_wants_their_own_deduplication(sqs: Any, make: Make) -> None:
    url = make(fifo=True)
    by_group = {"FifoThroughputLimit": "perMessageGroupId"}
    code = refused(sqs.set_queue_attributes, QueueUrl=url, Attributes=by_group)
    assert code.endswith("InvalidAttributeValue")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={**by_group, "DeduplicationScope": "messageGroup"})
    assert attributes(sqs, url)["FifoThroughputLimit"] == "perMessageGroupId"


@pytest.mark.parametrize("entries", [5, {"a": 1}, "x", [5], None, True], ids=str)
def test_entries_that_are_none_are_refused(http: httpx.Client, queue: str, entries: object) -> None:
    values = {"QueueUrl": f"/{queue}", "Entries": entries}
    answer = http.post("/", json=values, headers={"x-amz-target": "AmazonSQS.SendMessageBatch"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["__type"].startswith("com.amazonaws.sqs#")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000], ids=["list", "object"])
def test_body_that_is_too_deep_is_refused(http: httpx.Client, text: str) -> None:
    answer = http.post("/", content=text, headers={"x-amz-target": "AmazonSQS.ListQueues"})
    assert (answer.status_code, answer.json()["__type"]) == (400, "com.amazonaws.sqs#SerializationException")


@pytest.mark.parametrize("number", ["\u00b2", "9" * 5_000, ""], ids=["superscript", "long", "none"])
def test_field_whose_number_is_none_is_refused(http: httpx.Client, number: str) -> None:
    fields = {"Action": "UntagQueue", "QueueUrl": "/x", f"TagKey.{number}": "a"}
    answer = http.post("/", content=urlencode(fields), headers=FORM)
    assert (answer.status_code, "InvalidParameterValue" in answer.text) == (400, True), answer.text


def test_field_that_comes_twice_is_refused(http: httpx.Client, queue: str) -> None:
    fields = [("Action", "SendMessage"), ("QueueUrl", f"/{queue}"), ("MessageBody", "1")]
    answer = http.post("/", content=urlencode([*fields, ("MessageBody", "2")]), headers=FORM)
    assert (answer.status_code, "MessageBody" in answer.text) == (400, True)
    # What stands in the URL is of the form, too.
    form = urlencode([*fields, ("DelaySeconds", "0")])
    answer = http.post("/?DelaySeconds=1", content=form, headers=FORM)
    assert (answer.status_code, "DelaySeconds" in answer.text) == (400, True)
    answer = http.post(f"/?{urlencode(fields[:1])}", content=urlencode(fields[1:]), headers=FORM)
    assert answer.status_code == 200, answer.text
