"""A queue that holds as many messages as its policy allows: senders are told to come back later."""

from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from service.tests.running import Running
from service.tests.sqs.conftest import client_of
from tests.cli.program import ask, do


@pytest.fixture
def full(service_database: str, queue: str) -> str:
    """A queue with room for two, in which two are."""
    do(service_database, f"select spanmq.set_policy('{queue}', '{{\"max_backlog\": 2}}')")
    do(service_database, f"select pgmq.send('{queue}', '1'), pgmq.send('{queue}', '2')")
    return queue


def test_send_is_told_to_come_back(http: httpx.Client, service_database: str, full: str) -> None:
    path = f"/v1/queues/{full}/messages"
    for where, given in ((path, {"body": 3}), (f"{path}/batch", {"messages": [{"body": 3}, {"body": 4}]})):
        refused = http.post(where, json=given)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) >= 1
    assert ask(service_database, f"select count(*) from pgmq.q_{full}") == 2
    assert len(http.post(f"/v1/queues/{full}/pop", json={}).json()["messages"]) == 1
    # A queue that was found full is believed to be for a moment.
    while (sent := http.post(path, json={"body": 3})).status_code == 429:
        assert int(sent.headers["retry-after"]) >= 1
    assert sent.status_code == 201


def test_sqs_client_is_throttled(shared: Running, service_database: str, full: str) -> None:
    sqs: Any = client_of(shared.address)
    url = sqs.get_queue_url(QueueName=full)["QueueUrl"]
    with pytest.raises(ClientError) as refused:
        sqs.send_message(QueueUrl=url, MessageBody="3")
    assert refused.value.response["Error"]["Code"] == "RequestThrottled"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    assert refused.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "1"
    assert ask(service_database, f"select count(*) from pgmq.q_{full}") == 2
