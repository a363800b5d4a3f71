"""What SQS refuses, or would have no effect here: it is refused in either protocol, and nothing of it happens."""

import json
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from botocore.exceptions import ClientError
from service.tests.sqs.conftest import Make, arn_of, attributes

FORM = {"content-type": "application/x-www-form-urlencoded"}
URL = "/000000000000/refusing"
ARN = "arn:aws:sqs:eu-central-1:000000000000:refusing"
QUEUES = ("refusing", "refusing-dead", "refusing.fifo")
ONE = {"Id": "a", "MessageBody": "x"}
LARGE = "x" * 200_000


def text(value: str, kind: str = "String") -> dict[str, str]:
    return {"DataType": kind, "StringValue": value}


# Of a queue that is created, and of one that is changed.
WRONG_VALUES: list[dict[str, str]] = [
    *({"VisibilityTimeout": "43201"}, {"VisibilityTimeout": "-1"}, {"DelaySeconds": "x"}),
    {"RedrivePolicy": f'{{"maxReceiveCount": 3, "deadLetterTargetArn": "{ARN}-none"}}'},
]
WRONG_NAMES: list[dict[str, str]] = [{"ContentBasedDeduplication": "true"}, {"Odd": "1"}]
NOT_SUPPORTED: list[dict[str, str]] = [
    *({"Policy": "{}"}, {"KmsMasterKeyId": "alias/x"}, {"SqsManagedSseEnabled": "maybe"}),
]
NAMES = ["a b", "x;y", "a.fifo", "ü", "x" * 81, "x" * 76 + ".fifo"]
# ARN is that of a queue that exists: nothing but the form of the policy is wrong.
REDRIVE_POLICIES = [
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
]
ALLOW_POLICIES: list[dict[str, Any]] = [
    {"redrivePermission": "byQueue"},
    {"redrivePermission": "byQueue", "sourceQueueArns": []},
    {"redrivePermission": "byQueue", "sourceQueueArns": 5},
    {"redrivePermission": "byQueue", "sourceQueueArns": ["x"]},
    {"redrivePermission": "byQueue", "sourceQueueArns": [ARN] * 11},
    {"redrivePermission": "allowAll", "sourceQueueArns": [ARN]},
    {"redrivePermission": "denyAll", "odd": 1},
    {"redrivePermission": ["denyAll"]},
]
POLICIES: list[dict[str, str]] = [
    # A queue is not its own dead-letter queue.
    {"RedrivePolicy": json.dumps({"maxReceiveCount": 3, "deadLetterTargetArn": ARN})},
    *({"RedrivePolicy": policy.replace("ARN", f'"{ARN}-dead"')} for policy in REDRIVE_POLICIES),
    *({"RedriveAllowPolicy": json.dumps(policy)} for policy in ALLOW_POLICIES),
]
FIFO = f"{URL}.fifo"
TAGS = dict.fromkeys(map(str, range(51)), "x")
Action = tuple[str, dict[str, Any]]


def created(attributes: list[dict[str, str]]) -> list[Action]:
    return [("create_queue", {"QueueName": "refused", "Attributes": each}) for each in attributes]


def changed(attributes: list[dict[str, str]]) -> list[Action]:
    return [("set_queue_attributes", {"Attributes": each}) for each in attributes]


# By the code of the error: actions, and their values beside the queue `refusing`.
REFUSED: dict[str, list[Action]] = {
    "InvalidMessageContents": [("send_message", {"MessageBody": "\x01"})],
    "InvalidParameterValue": [
        ("send_message", {"MessageBody": "x" * 1_048_577}),
        ("send_message", {"MessageBody": "x", "DelaySeconds": -1}),
        ("send_message", {"MessageBody": "x", "MessageDeduplicationId": "a"}),
        ("send_message", {"MessageBody": "x", "MessageAttributes": {"a": text("1", "Odd")}}),
        ("send_message", {"MessageBody": "x", "MessageAttributes": {"a": text("x", "Number")}}),
        ("send_message", {"MessageBody": "x", "MessageAttributes": {"AWS.a": text("x")}}),
        ("receive_message", {"ReceiveRequestAttemptId": "once"}),
        ("receive_message", {"QueueUrl": FIFO, "ReceiveRequestAttemptId": "x" * 129}),
        ("receive_message", {"QueueUrl": FIFO, "ReceiveRequestAttemptId": "a b"}),
        *(("create_queue", {"QueueName": name}) for name in NAMES),
        ("create_queue", {"QueueName": "refused", "Attributes": {"FifoQueue": "true"}}),
        ("create_queue", {"QueueName": "refused", "tags": TAGS}),
    ],
    "BatchEntryIdsNotDistinct": [("send_message_batch", {"Entries": [ONE, ONE]})],
    "InvalidBatchEntryId": [("send_message_batch", {"Entries": [ONE | {"Id": "a b"}]})],
    "TooManyEntriesInBatchRequest": [
        ("send_message_batch", {"Entries": [ONE | {"Id": str(n)} for n in range(11)]}),
    ],
    "BatchRequestTooLong": [
        ("send_message_batch", {"Entries": [ONE | {"Id": str(n)} | each for n in range(6)]})
        for each in ({"MessageBody": LARGE}, {"MessageAttributes": {"a": text(LARGE)}})
    ],
    "EmptyBatchRequest": [("send_message_batch", {"Entries": []})],
    "InvalidAttributeValue": [
        *(*created(WRONG_VALUES), *changed(WRONG_VALUES), *changed(POLICIES)),
        # A limit of groups wants their own deduplication.
        (
            "set_queue_attributes",
            {"QueueUrl": FIFO, "Attributes": {"FifoThroughputLimit": "perMessageGroupId"}},
        ),
    ],
    "InvalidAttributeName": [*created(WRONG_NAMES), *changed(WRONG_NAMES)],
    "UnsupportedOperation": [
        *(*created(NOT_SUPPORTED), *changed(NOT_SUPPORTED)),
        ("remove_permission", {"Label": "x"}),
    ],
    "NonExistentQueue": [
        ("get_queue_url", {"QueueName": "refusing", "QueueOwnerAWSAccountId": "123456789012"}),
    ],
}


def test_what_means_nothing_is_refused(sqs: Any) -> None:
    for name in QUEUES:
        sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"} if "." in name else {})

    def state() -> list[dict[str, str]]:
        return [attributes(sqs, url) for url in sqs.list_queues(QueueNamePrefix="refus")["QueueUrls"]]

    before = state()
    assert len(before) == len(QUEUES)
    wrong = {}
    for code, actions in REFUSED.items():
        for action, values in actions:
            of_queue = {} if "QueueName" in values else {"QueueUrl": URL}
            try:
                getattr(sqs, action)(**(of_queue | values))
                wrong[action, str(values)[:80]] = "it was not refused"
            except ClientError as error:
                if not (found := error.response["Error"]["Code"]).endswith(code):
                    wrong[action, str(values)[:80]] = found
    assert wrong == {}
    assert state() == before


def test_permissions_of_accounts_are_refused_with_what_to_do_instead(sqs: Any) -> None:
    given = {"QueueUrl": URL, "Label": "x", "AWSAccountIds": ["1"], "Actions": ["*"]}
    with pytest.raises(ClientError, match=r"UnsupportedOperation.*create a key with a scope"):
        sqs.add_permission(**given)


def test_what_means_something_is_taken(sqs: Any, make: Make) -> None:
    url, fifo, arn = make(), make(fifo=True), arn_of(sqs, make("dead"))
    for count in ("3", '"3"'):
        policy = f'{{"maxReceiveCount": {count}, "deadLetterTargetArn": "{arn}"}}'
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
        assert attributes(sqs, url)["RedrivePolicy"] == policy
    by_group = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
    sqs.set_queue_attributes(QueueUrl=fifo, Attributes=by_group)
    assert attributes(sqs, fifo)["FifoThroughputLimit"] == "perMessageGroupId"
    tags = dict.fromkeys(map(str, range(50)), "x")
    tagged = sqs.create_queue(QueueName="tagged", tags=tags)["QueueUrl"]
    assert sqs.list_queue_tags(QueueUrl=tagged)["Tags"] == tags
    assert sqs.get_queue_url(QueueName="tagged", QueueOwnerAWSAccountId="000000000000")["QueueUrl"] == tagged


# What boto3 does not send: an action, its body, and the code.
SERIALIZATION = "com.amazonaws.sqs#SerializationException"
BINARY = {"a": {"DataType": "Binary", "BinaryValue": "\u00df"}}
ENTRIES = [5, {"a": 1}, "x", [5], None, True]
REQUESTS = [
    (
        "SendMessage",
        json.dumps({"QueueUrl": "/q", "MessageBody": "x", "MessageAttributes": BINARY}),
        SERIALIZATION,
    ),
    ("ListQueues", "[" * 100_000, SERIALIZATION),
    ("ListQueues", '{"a":' * 100_000, SERIALIZATION),
    *(
        ("SendMessageBatch", json.dumps({"QueueUrl": URL, "Entries": each}), "com.amazonaws.sqs#")
        for each in ENTRIES
    ),
]


@pytest.mark.parametrize(("action", "text", "code"), REQUESTS, ids=lambda value: value[:60])
def test_request_that_no_sdk_makes_is_refused(http: httpx.Client, action: str, text: str, code: str) -> None:
    answer = http.post("/", content=text, headers={"x-amz-target": f"AmazonSQS.{action}"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["__type"].startswith(code)


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
