"""Move tasks: they outlive the service that began them, and one service at a time is at each."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from botocore.exceptions import ClientError
from service.tests.running import Running, service
from service.tests.sqs.conftest import arn_of, client_of, redrive
from tests.cli.program import ask, do, records, wait_until

# At one a second, more than a test has time for.
MESSAGES = 600


@pytest.fixture
def first(database: str, tmp_path: Path) -> Iterator[Running]:
    with service(database, tmp_path) as started:
        yield started


@pytest.fixture
def sqs(first: Running) -> Any:
    return client_of(first.address)


def stage(sqs: Any, count: int = MESSAGES) -> tuple[str, str, str]:
    """Make a dead-letter queue with messages, and one that they may go to; return their URLs and an ARN."""
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = arn_of(sqs, dead)
    back = sqs.create_queue(QueueName="back", Attributes=redrive(arn))["QueueUrl"]
    for start in range(0, count, 10):
        entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(start, min(start + 10, count))]
        sqs.send_message_batch(QueueUrl=dead, Entries=entries)
    return dead, back, arn


def start(sqs: Any, arn: str, **more: Any) -> str:
    target = arn.replace(":dead", ":back")
    return str(sqs.start_message_move_task(SourceArn=arn, DestinationArn=target, **more)["TaskHandle"])


def task(sqs: Any, arn: str) -> dict[str, Any]:
    [found] = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
    return dict(found)


def bodies(dsn: str, queue: str) -> Counter[str]:
    found = ask(dsn, f"select coalesce(jsonb_agg(message), '[]') from pgmq.q_{queue}")
    return Counter(found)


def test_two_services_share_a_task_and_move_each_message_once(
    sqs: Any, database: str, tmp_path: Path
) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    with service(database, folder):
        _, _, arn = stage(sqs, 200)
        start(sqs, arn)
        wait_until(lambda: task(sqs, arn)["Status"] == "COMPLETED")
    assert task(sqs, arn)["ApproximateNumberOfMessagesMoved"] == 200
    assert bodies(database, "back") == Counter(str(n) for n in range(200))


def test_task_that_is_cancelled_leaves_the_rest(sqs: Any, database: str) -> None:
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


def test_task_whose_destination_is_gone_fails_and_loses_nothing(sqs: Any, database: str) -> None:
    _, back, arn = stage(sqs)
    with_rate = {"MaxNumberOfMessagesPerSecond": 1}
    start(sqs, arn, **with_rate)
    wait_until(lambda: len(bodies(database, "back")) >= 1)
    sqs.delete_queue(QueueUrl=back)
    wait_until(lambda: task(sqs, arn)["Status"] == "FAILED")
    assert task(sqs, arn)["FailureReason"] == "QueueNotFoundError"
    assert len(bodies(database, "dead")) == MESSAGES - task(sqs, arn)["ApproximateNumberOfMessagesMoved"]


def test_task_whose_destination_is_full_keeps_no_other_waiting(sqs: Any, database: str) -> None:
    _, _, arn = stage(sqs, 20)
    do(database, """select spanmq.set_policy('back', '{"max_backlog": 5}')""")
    other = sqs.create_queue(QueueName="other")["QueueUrl"]
    sqs.create_queue(QueueName="elsewhere", Attributes=redrive(f"{arn[:-4]}other"))
    for number in range(12):
        sqs.send_message(QueueUrl=other, MessageBody=str(number))
    start(sqs, arn)
    wait_until(lambda: ask(database, "select next_at > started_at from spanmq_core.sqs_move"))
    sqs.start_message_move_task(SourceArn=f"{arn[:-4]}other", DestinationArn=f"{arn[:-4]}elsewhere")
    wait_until(lambda: len(bodies(database, "elsewhere")) == 12)
    assert task(sqs, arn)["Status"] == "RUNNING"
    assert len(bodies(database, "dead")) == 20
    do(database, """select spanmq.set_policy('back', '{"max_backlog": null}')""")
    wait_until(lambda: task(sqs, arn)["Status"] == "COMPLETED")
    assert bodies(database, "back") == Counter(str(n) for n in range(20))


def test_task_that_meets_a_bug_fails_and_the_others_go_on(sqs: Any, database: str) -> None:
    _, _, arn = stage(sqs)
    start(sqs, arn, MaxNumberOfMessagesPerSecond=1)
    wait_until(lambda: len(bodies(database, "back")) >= 1)
    broken = "from spanmq_core.queue q where q.name = 'back' and q.queue_id = s.queue_id"
    do(database, f"update spanmq_core.sqs_queue s set attributes = '[1]' {broken}")
    wait_until(lambda: task(sqs, arn)["Status"] == "FAILED")
    assert task(sqs, arn)["FailureReason"] == "AttributeError"
    assert len(bodies(database, "dead")) + len(bodies(database, "back")) == MESSAGES
    do(database, f"update spanmq_core.sqs_queue s set attributes = '{{}}' {broken}")
    sqs.set_queue_attributes(
        QueueUrl=sqs.get_queue_url(QueueName="back")["QueueUrl"], Attributes=redrive(arn)
    )
    start(sqs, arn)
    wait_until(lambda: task(sqs, arn)["Status"] == "COMPLETED")
    assert bodies(database, "back") == Counter(str(n) for n in range(MESSAGES))


def test_schema_that_lacks_what_a_task_needs_is_logged(first: Running, sqs: Any, database: str) -> None:
    _, _, arn = stage(sqs, 1)
    do(database, "alter type spanmq.sqs_move rename attribute moved to moved_before")
    start(sqs, arn)
    wait_until(lambda: "moves_failed error=SchemaVersionError" in first.log.read_text())


def test_task_goes_only_to_queues_that_name_its_source(sqs: Any, database: str) -> None:
    _, _, arn = stage(sqs, 1)
    sqs.create_queue(QueueName="stranger")
    with pytest.raises(ClientError, match="must have the source as its dead-letter queue"):
        sqs.start_message_move_task(SourceArn=arn, DestinationArn=arn.replace(":dead", ":stranger"))
    with pytest.raises(ClientError, match="not the dead-letter queue of any queue"):
        sqs.start_message_move_task(SourceArn=arn.replace(":dead", ":back"))
    assert bodies(database, "stranger") == Counter()


def test_source_that_a_header_names_means_nothing(sqs: Any, database: str) -> None:
    dead, back, arn = stage(sqs, 0)
    secret = sqs.create_queue(QueueName="secret", Attributes=redrive(arn))["QueueUrl"]
    sqs.send_message(QueueUrl=back, MessageBody="own")
    for _ in range(3):
        sqs.receive_message(QueueUrl=back, VisibilityTimeout=0)
    assert bodies(database, "dead") == Counter(["own"])
    forged = json.dumps({"x-sqs-source": "secret", "x-sqs-moved": True})
    do(database, f"select pgmq.send('dead', '\"forged\"', '{forged}'::jsonb)")
    sqs.start_message_move_task(SourceArn=arn)
    wait_until(lambda: task(sqs, arn)["Status"] == "FAILED")
    assert bodies(database, "secret") == Counter()
    # Without it, the task returns the message that was moved to the queue that it came from.
    sqs.delete_message(QueueUrl=dead, ReceiptHandle=handle_of(sqs, dead, "forged"))
    sqs.start_message_move_task(SourceArn=arn)
    wait_until(lambda: bodies(database, "back") == Counter(["own"]))
    assert sqs.receive_message(QueueUrl=secret).get("Messages", []) == []


def handle_of(sqs: Any, url: str, body: str) -> str:
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)["Messages"]
    return str(next(each["ReceiptHandle"] for each in found if each["Body"] == body))


@pytest.mark.parametrize("verb", ["receive", "send"])
def test_task_stops_when_its_key_loses_a_right(database: str, tmp_path: Path, verb: str) -> None:
    [admin] = records("key create", dsn=database)
    [mover] = records("key create", dsn=database)
    with service(database, tmp_path, tokens=True) as running:
        sqs = client_of(running.address, admin)
        _, _, arn = stage(sqs)
        start(client_of(running.address, mover), arn, MaxNumberOfMessagesPerSecond=1)
        wait_until(lambda: len(bodies(database, "back")) >= 1)
        others = sorted({"send", "receive", "look", "manage"} - {verb})
        narrow = f"update spanmq_core.access_key set verbs = array{others} where access_key_id = %s"
        with psycopg.connect(database) as connection:
            connection.execute(narrow.encode(), [mover["access_key_id"]])
            connection.execute("select pg_notify('spanmq.access', '')")
        wait_until(lambda: task(sqs, arn)["Status"] == "FAILED")
        assert task(sqs, arn)["FailureReason"] == "MissingPrivilegeError"
    assert len(bodies(database, "dead")) + len(bodies(database, "back")) == MESSAGES
