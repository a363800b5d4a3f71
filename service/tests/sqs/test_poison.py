"""Bodies and attributes that SQL wrote: no message harms its neighbours or passes for another."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from service.tests.running import Running, patient, service
from service.tests.sqs.conftest import Make, arn_of, bodies, client_of, redrive, refused
from service.tests.sqs.test_signature import query, texts
from service.tests.test_waiting import DEEP, ON_THE_SERVICE
from tests.cli.program import ask, do, wait_until
from tests.patience import WAIT_SECONDS


def retried_late(queue: str) -> str:
    """Return a statement after which what fails comes back only after the test."""
    return f"""select spanmq.set_policy('{queue}', '{{"backoff_base": 3600, "jitter": false}}')"""


def test_body_that_xml_cannot_hold_is_received_as_json(
    keyed: Running, key: dict[str, str], sqs: Any, make: Make, service_database: str
) -> None:
    url = make()
    name = url.rpartition("/")[2]
    sent = ['"a\\u0001b"', '"\\uffff"', '{"a": "\\u001f \\uffff"}', '"plain"']
    sends = ", ".join(f"pgmq.send('{name}', '{body}')" for body in sent)
    do(service_database, f"select {sends}")
    shown = {"QueueUrl": url, "MaxNumberOfMessages": "10", "VisibilityTimeout": "0"}
    older = texts(query(keyed.address, key, "ReceiveMessage", **shown), "Body")
    newer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert older == [message["Body"] for message in newer]
    assert [json.loads(str(text)) for text in older[:3]] == [json.loads(body) for body in sent[:3]]
    assert older[3] == "plain"


def test_message_does_not_pass_for_another(sqs: Any, make: Make, service_database: str) -> None:
    url = make()
    name = url.rpartition("/")[2]
    own = sqs.send_message(QueueUrl=url, MessageBody="x")["MessageId"]
    forged = {
        "x-sqs-message-id": own,
        "x-sqs-sent": "1",
        "x-sqs-sender": "SPANMQTHEADMIN",
        "x-sqs-source": "secret",
        "x-sqs-moved": True,
    }
    do(service_database, f"select pgmq.send('{name}', '1', '{json.dumps(forged)}'::jsonb)")
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"])
    first, second = found["Messages"]
    assert first["MessageId"] == own != second["MessageId"]
    assert second["Attributes"]["SentTimestamp"] != "1"
    assert "DeadLetterQueueSourceArn" not in second["Attributes"]
    assert second["Attributes"]["SenderId"] == first["Attributes"]["SenderId"] == "000000000000"


@pytest.mark.parametrize("written", [json.dumps, dict])
def test_attributes_that_sql_wrote_wrongly_stop_no_queue(
    sqs: Any, make: Make, service_database: str, written: Callable[[Any], Any]
) -> None:
    dead, odd = make("dead"), make("odd")
    arn = arn_of(sqs, dead)
    url = make(**redrive(arn))
    name = odd.rpartition("/")[2]
    wrong = {
        "VisibilityTimeout": "soon",
        "DelaySeconds": "-1",
        "DeduplicationScope": "odd",
        "QueueName": url.rpartition("/")[2],
        # It names a queue, but not how often a message may be received.
        "RedrivePolicy": written({"deadLetterTargetArn": arn}),
    }
    do(service_database, f"select spanmq.set_sqs_queue('{name}', '{json.dumps(wrong)}')")
    sqs.send_message(QueueUrl=odd, MessageBody="x")
    assert bodies(sqs, odd) == ["x"]
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    assert sqs.start_message_move_task(SourceArn=arn, DestinationArn=arn.removesuffix("dead"))["TaskHandle"]
    assert odd in sqs.list_queues()["QueueUrls"]


@pytest.mark.parametrize("fault", ["dropped", "full", "schema"])
def test_message_that_cannot_become_a_dead_letter_is_received_once_more(
    sqs: Any, make: Make, service_database: str, fault: str
) -> None:
    dead = make("dead")
    arn = arn_of(sqs, dead)
    url = make(**redrive(arn, 1))
    name = url.rpartition("/")[2]
    sqs.send_message(QueueUrl=url, MessageBody="spent")
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)
    sqs.send_message(QueueUrl=url, MessageBody="fresh")
    if fault == "dropped":
        sqs.delete_queue(QueueUrl=dead)
    elif fault == "schema":
        do(
            service_database,
            f"""select spanmq.set_schema('{name}dead', '{{"type": "object"}}', checked => true)""",
        )
    else:
        sqs.send_message(QueueUrl=dead, MessageBody="first")
        do(service_database, f"""select spanmq.set_policy('{name}dead', '{{"max_backlog": 1}}')""")
    assert sorted(bodies(sqs, url)) == ["fresh", "spent"]


def test_message_that_cannot_be_read_blocks_no_queue_with_a_redrive_policy(
    sqs: Any, make: Make, service_database: str
) -> None:
    url = make(**redrive(arn_of(sqs, make("dead")), 9))
    name = url.rpartition("/")[2]
    do(service_database, retried_late(name), f"select pgmq.send('{name}', '1', {DEEP})")
    sqs.send_message(QueueUrl=url, MessageBody="readable")
    assert refused(sqs.receive_message, QueueUrl=url) == "InvalidParameterValue"
    assert bodies(sqs, url) == ["readable"]


def test_move_task_leaves_what_cannot_be_read_and_moves_the_rest(
    sqs: Any, make: Make, service_database: str
) -> None:
    dead, back = make("dead"), make("back")
    arn = arn_of(sqs, dead)
    sqs.set_queue_attributes(QueueUrl=back, Attributes=redrive(arn, 9))
    name = dead.rpartition("/")[2]
    # More than one step takes.
    sends = f"select pgmq.send('{name}', '1', {DEEP}) from generate_series(1, 11)"
    do(service_database, retried_late(name), sends)
    sqs.send_message(QueueUrl=dead, MessageBody="readable")
    sqs.start_message_move_task(SourceArn=arn, DestinationArn=arn_of(sqs, back))

    def task() -> dict[str, Any]:
        return dict(sqs.list_message_move_tasks(SourceArn=arn)["Results"][0])

    wait_until(lambda: task()["Status"] != "RUNNING")
    assert (task()["Status"], task()["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 1)
    assert bodies(sqs, back) == ["readable"]
    assert ask(service_database, f"select count(*) from pgmq.q_{name}") == 11


def test_message_that_is_not_hidden_comes_once_beside_one_that_becomes_a_dead_letter(
    sqs: Any, make: Make
) -> None:
    dead = make("dead")
    url = make(**redrive(arn_of(sqs, dead)))
    sqs.send_message(QueueUrl=url, MessageBody="spent")
    for _ in range(2):
        sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)
    sqs.send_message(QueueUrl=url, MessageBody="fresh")
    assert bodies(sqs, url, VisibilityTimeout=0) == ["fresh"]
    assert bodies(sqs, dead) == ["spent"]


def test_error_after_a_claim_costs_no_attempt(database: str, tmp_path: Path) -> None:
    do(database, "select pgmq.create('q')")
    hint = '{"x-sqs-moved": true}'
    do(database, f"select pgmq.send('q', '1', '{hint}'::jsonb), pgmq.send('q', '2')")
    with (
        service(patient(database), tmp_path) as running,
        running.client() as http,
        ThreadPoolExecutor(1) as threads,
    ):
        form = urlencode({"Action": "ReceiveMessage", "QueueUrl": "/q", "MaxNumberOfMessages": "10"})
        kind = {"content-type": "application/x-www-form-urlencoded"}
        with psycopg.connect(database) as blocker:
            blocker.execute("lock table spanmq_core.sqs_moved in access exclusive mode")
            asked = threads.submit(http.post, "/", content=form, headers=kind)
            stuck = f"{ON_THE_SERVICE} and wait_event_type = 'Lock' and query ~ 'list_sqs_moved'"
            # Once: a second one could meet the release of what was claimed.
            wait_until(lambda: ask(database, f"select bool_or(pg_cancel_backend(pid)) {stuck}"))
            assert asked.result(WAIT_SECONDS).status_code == 503
        sqs = client_of(running.address)
        url = sqs.get_queue_url(QueueName="q")["QueueUrl"]
        found = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20, AttributeNames=["All"]
        )
        counts = [each["Attributes"]["ApproximateReceiveCount"] for each in found["Messages"]]
        assert counts == ["1", "1"]
