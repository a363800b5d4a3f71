"""Move tasks: they outlive the service that began them, and one service at a time is at each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.cli.program import ask, do, wait_until
from tests.service.running import Running, service
from tests.service.sqs.conftest import client_of

ANYBODY = {"access_key_id": "ANYBODY", "secret_access_key": "none"}
MESSAGES = 60


@pytest.fixture
def first(database: str, tmp_path: Path) -> Iterator[Running]:
    with service(database, tmp_path) as started:
        yield started


def stage(sqs: Any, count: int = MESSAGES) -> tuple[str, str, str]:
    """Make a queue of dead letters with messages, and one that they may go to; give their URLs and an ARN."""
    urls = [sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("dead", "back")]
    [arn, _] = [
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        for url in urls
    ]
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "2"}}'
    sqs.create_queue(QueueName="source", Attributes={"RedrivePolicy": policy})
    for start in range(0, count, 10):
        entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(start, min(start + 10, count))]
        sqs.send_message_batch(QueueUrl=urls[0], Entries=entries)
    return urls[0], urls[1], arn


def start(sqs: Any, arn: str, **more: Any) -> str:
    target = arn.replace(":dead", ":back")
    return str(sqs.start_message_move_task(SourceArn=arn, DestinationArn=target, **more)["TaskHandle"])


def task(sqs: Any, arn: str) -> dict[str, Any]:
    [found] = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
    return dict(found)


def bodies(dsn: str, queue: str) -> Counter[str]:
    found = ask(dsn, f"select coalesce(jsonb_agg(message), '[]') from pgmq.q_{queue}")
    return Counter(found)


def test_task_of_a_service_that_was_killed_is_gone_on_with(
    first: Running, database: str, tmp_path: Path
) -> None:
    sqs = client_of(first.address, ANYBODY)
    _, _, arn = stage(sqs)
    start(sqs, arn, MaxNumberOfMessagesPerSecond=1)
    wait_until(lambda: len(bodies(database, "back")) >= 1)
    first.kill()
    moved = len(bodies(database, "back"))
    assert moved < MESSAGES
    do(database, "update spanmq.sqs_move set rate = null")
    folder = tmp_path / "second"
    folder.mkdir()
    with service(database, folder) as second:
        again = client_of(second.address, ANYBODY)
        wait_until(lambda: task(again, arn)["Status"] == "COMPLETED")
        assert task(again, arn)["ApproximateNumberOfMessagesMoved"] == MESSAGES
    assert bodies(database, "back") == Counter(str(n) for n in range(MESSAGES))
    assert bodies(database, "dead") == Counter()


def test_two_services_share_a_task_and_move_each_message_once(
    first: Running, database: str, tmp_path: Path
) -> None:
    sqs = client_of(first.address, ANYBODY)
    folder = tmp_path / "second"
    folder.mkdir()
    with service(database, folder):
        _, _, arn = stage(sqs, 200)
        start(sqs, arn)
        wait_until(lambda: task(sqs, arn)["Status"] == "COMPLETED")
    assert task(sqs, arn)["ApproximateNumberOfMessagesMoved"] == 200
    assert bodies(database, "back") == Counter(str(n) for n in range(200))


def test_task_that_is_cancelled_leaves_the_rest(first: Running, database: str) -> None:
    sqs = client_of(first.address, ANYBODY)
    _, _, arn = stage(sqs)
    handle = start(sqs, arn, MaxNumberOfMessagesPerSecond=1)
    with pytest.raises(ClientError, match="UnsupportedOperation"):
        start(sqs, arn)
    wait_until(lambda: len(bodies(database, "back")) >= 1)
    moved = sqs.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    assert moved == len(bodies(database, "back"))
    assert moved + len(bodies(database, "dead")) == MESSAGES
    assert task(sqs, arn)["Status"] == "CANCELLED"
    for unknown in (handle, "none"):
        with pytest.raises(ClientError, match="ResourceNotFoundException"):
            sqs.cancel_message_move_task(TaskHandle=unknown)


def test_task_whose_destination_is_gone_fails_and_loses_nothing(first: Running, database: str) -> None:
    sqs = client_of(first.address, ANYBODY)
    _, back, arn = stage(sqs)
    with_rate = {"MaxNumberOfMessagesPerSecond": 1}
    start(sqs, arn, **with_rate)
    wait_until(lambda: len(bodies(database, "back")) >= 1)
    sqs.delete_queue(QueueUrl=back)
    wait_until(lambda: task(sqs, arn)["Status"] == "FAILED")
    assert task(sqs, arn)["FailureReason"] == "QueueNotFoundError"
    assert len(bodies(database, "dead")) == MESSAGES - task(sqs, arn)["ApproximateNumberOfMessagesMoved"]


def test_task_whose_destination_is_full_keeps_no_other_waiting(first: Running, database: str) -> None:
    sqs = client_of(first.address, ANYBODY)
    _, _, arn = stage(sqs, 20)
    do(database, """select pgmq.set_policy('back', '{"max_backlog": 5}')""")
    other = sqs.create_queue(QueueName="other")["QueueUrl"]
    sqs.create_queue(QueueName="elsewhere")
    policy = f'{{"deadLetterTargetArn": "{arn[:-4]}other", "maxReceiveCount": "2"}}'
    sqs.create_queue(QueueName="source2", Attributes={"RedrivePolicy": policy})
    for number in range(12):
        sqs.send_message(QueueUrl=other, MessageBody=str(number))
    start(sqs, arn)
    wait_until(lambda: ask(database, "select next_at > started_at from spanmq.sqs_move"))
    sqs.start_message_move_task(SourceArn=f"{arn[:-4]}other", DestinationArn=f"{arn[:-4]}elsewhere")
    wait_until(lambda: len(bodies(database, "elsewhere")) == 12)
    assert task(sqs, arn)["Status"] == "RUNNING"
    assert len(bodies(database, "dead")) == 20
    do(database, """select pgmq.set_policy('back', '{"max_backlog": null}')""")
    wait_until(lambda: task(sqs, arn)["Status"] == "COMPLETED")
    assert bodies(database, "back") == Counter(str(n) for n in range(20))
