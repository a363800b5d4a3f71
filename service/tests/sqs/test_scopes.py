"""Every action of SQS under every scope of a key: made of the table of actions, so that none is forgotten."""

import json
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from service.tests.running import Running
from tests.cli.program import ask, do, records

from spanmq_service import receipt
from spanmq_service.guard.caller import VERBS
from spanmq_service.sqs.endpoint import ACTIONS

MINE, THEIRS = "scoped", "scoped-theirs"
# Held by no lease: nothing is settled by it.
HANDLE: Final = {name: receipt.write(name, 1, 1) for name in (MINE, THEIRS)}
# What each wants of the queue; None: it answers everybody who has a key, of what he may look at.
VERB_OF: Final[dict[str, str | None]] = {
    "AddPermission": None,
    "CancelMessageMoveTask": "receive",
    "ChangeMessageVisibility": "receive",
    "ChangeMessageVisibilityBatch": "receive",
    "CreateQueue": "manage",
    "DeleteMessage": "receive",
    "DeleteMessageBatch": "receive",
    "DeleteQueue": "manage",
    "GetQueueAttributes": "look",
    "GetQueueUrl": "look",
    "ListDeadLetterSourceQueues": "look",
    "ListMessageMoveTasks": "look",
    "ListQueueTags": "look",
    "ListQueues": None,
    "PurgeQueue": "manage",
    "ReceiveMessage": "receive",
    "RemovePermission": None,
    "SendMessage": "send",
    "SendMessageBatch": "send",
    "SetQueueAttributes": "manage",
    "StartMessageMoveTask": "receive",
    "TagQueue": "manage",
    "UntagQueue": "manage",
}
# These would leave nothing for those that come later.
FINAL: Final = {"DeleteQueue", "CancelMessageMoveTask"}


def values_for(action: str, queue: str, task: str) -> dict[str, Any]:
    url, arn = {"QueueUrl": f"/000000000000/{queue}"}, f"arn:aws:sqs:x:000000000000:{queue}"
    held = {"ReceiptHandle": HANDLE[queue]}
    given: dict[str, dict[str, Any]] = {
        "AddPermission": {**url, "Label": "x", "AWSAccountIds": ["1"], "Actions": ["*"]},
        "CancelMessageMoveTask": {"TaskHandle": task},
        "ChangeMessageVisibility": {**url, **held, "VisibilityTimeout": 1},
        "ChangeMessageVisibilityBatch": {**url, "Entries": [{"Id": "a", **held, "VisibilityTimeout": 1}]},
        "CreateQueue": {"QueueName": queue},
        "DeleteMessage": {**url, **held},
        "DeleteMessageBatch": {**url, "Entries": [{"Id": "a", **held}]},
        "GetQueueUrl": {"QueueName": queue},
        "ListMessageMoveTasks": {"SourceArn": arn},
        "ListQueues": {},
        "RemovePermission": {**url, "Label": "x"},
        "SendMessage": {**url, "MessageBody": "x"},
        "SendMessageBatch": {**url, "Entries": [{"Id": "a", "MessageBody": "x"}]},
        "SetQueueAttributes": {**url, "Attributes": {"DelaySeconds": "0"}},
        "StartMessageMoveTask": {"SourceArn": arn},
        "TagQueue": {**url, "Tags": {"a": "b"}},
        "UntagQueue": {**url, "TagKeys": ["a"]},
    }
    return given.get(action, url)


@pytest.fixture(scope="module")
def keys(service_database: str) -> dict[tuple[str, str], dict[str, str]]:
    """A key for each verb, and for what: the queue that is mine, or all."""
    do(service_database, *(f"select pgmq.create('{name}')" for name in (MINE, THEIRS)))
    made: dict[tuple[str, str], dict[str, str]] = {}
    for verb in VERBS:
        for queues in (MINE, "*"):
            [made[verb, queues]] = records("key create", "-q", queues, "-v", verb, dsn=service_database)
    return made


@pytest.fixture(scope="module")
def tasks(service_database: str) -> dict[str, str]:
    """A move task of each queue, whose messages go to the other one."""
    for name, other in ((MINE, THEIRS), (THEIRS, MINE)):
        policy = {"deadLetterTargetArn": f"arn:aws:sqs:x:000000000000:{other}", "maxReceiveCount": 9}
        attributes = json.dumps({"RedrivePolicy": json.dumps(policy)})
        do(service_database, f"select spanmq.set_sqs_queue('{name}', '{attributes}')")
    made = {
        name: str(ask(service_database, f"select spanmq.start_sqs_move('{name}', null, 'arn', null, 0, 1)"))
        for name in (MINE, THEIRS)
    }
    # Without them StartMessageMoveTask has no destination, whose right it checks too.
    without = """spanmq.set_sqs_queue(name, '{"RedrivePolicy": null}')"""
    do(service_database, f"select {without} from unnest(array['{MINE}', '{THEIRS}']) name")
    return made


@pytest.fixture(scope="module")
def http(keyed: Running) -> Iterator[httpx.Client]:
    with keyed.client() as client:
        yield client


def signed(http: httpx.Client, key: dict[str, str], action: str, values: dict[str, Any]) -> httpx.Response:
    body, address = json.dumps(values), str(http.base_url)
    headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
    request = AWSRequest("POST", address, data=body, headers=headers)
    credentials = Credentials(key["access_key_id"], key["secret_access_key"])
    SigV4Auth(credentials, "sqs", "eu-central-1").add_auth(request)
    answer = http.post(address, content=body, headers=dict(request.headers.items()))
    assert answer.status_code < 500, answer.text
    return answer


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_action_takes_its_own_scope_only(
    http: httpx.Client, keys: dict[tuple[str, str], dict[str, str]], tasks: dict[str, str], action: str
) -> None:
    wanted = VERB_OF[action]
    for (verb, queues), key in keys.items():
        for queue in (MINE, THEIRS):
            is_allowed = wanted is None or (verb == wanted and queues in ("*", queue))
            if is_allowed and action in FINAL:
                continue
            answer = signed(http, key, action, values_for(action, queue, tasks[queue]))
            is_denied = "AccessDeniedException" in answer.text
            assert is_denied != is_allowed, (verb, queues, queue, answer.text)


def test_list_shows_what_the_key_may_look_at(
    http: httpx.Client, keys: dict[tuple[str, str], dict[str, str]]
) -> None:
    for (verb, queues), key in keys.items():
        answer = signed(http, key, "ListQueues", {"QueueNamePrefix": MINE})
        found = {url.rpartition("/")[2] for url in answer.json().get("QueueUrls", [])}
        assert found == (set() if verb != "look" else {MINE} if queues == MINE else {MINE, THEIRS})
