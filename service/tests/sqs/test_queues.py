"""Queues through boto3: attributes, tags, lists, and every action that SQS has."""

import json
from typing import Any

from service.tests.sqs.conftest import Make, attributes, redrive, refused
from tests.cli.program import ask, do

from spanmq_service.sqs import protocol
from spanmq_service.sqs.endpoint import ACTIONS


def test_every_action_of_sqs_is_answered() -> None:
    assert set(ACTIONS) == set(protocol.actions())


def test_attributes_have_sqs_s_defaults_and_change(sqs: Any, make: Make, service_database: str) -> None:
    url = make(VisibilityTimeout="77")
    name = url.rpartition("/")[2]
    found = attributes(sqs, url)
    assert (found["VisibilityTimeout"], found["DelaySeconds"]) == ("77", "0")
    assert (found["MaximumMessageSize"], found["MessageRetentionPeriod"]) == ("1048576", "345600")
    assert found["QueueArn"] == f"arn:aws:sqs:eu-central-1:000000000000:{name}"
    assert "FifoQueue" not in found
    # Receivers that don't come by SQS hold messages as long.
    assert ask(service_database, f"select (spanmq.get_policy('{name}') ->> 'lease')::float") == 77
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "5", "VisibilityTimeout": "8"})
    changed = attributes(sqs, url)
    assert (changed["DelaySeconds"], changed["VisibilityTimeout"]) == ("5", "8")
    assert changed["LastModifiedTimestamp"] >= changed["CreatedTimestamp"]


def test_a_queue_is_created_again_only_as_it_is(sqs: Any, make: Make) -> None:
    url = make(DelaySeconds="5")
    name = url.rpartition("/")[2]
    assert sqs.create_queue(QueueName=name)["QueueUrl"] == url
    assert sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "5"})["QueueUrl"] == url
    assert refused(sqs.create_queue, QueueName=name, Attributes={"DelaySeconds": "6"}) in (
        "QueueAlreadyExists",
        "QueueNameExists",
    )
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url


def test_name_that_differs_in_case_only_is_refused(sqs: Any) -> None:
    sqs.create_queue(QueueName="CaseOnly", Attributes={"DelaySeconds": "5"})
    assert refused(sqs.create_queue, QueueName="caseonly") in ("QueueNameExists", "QueueAlreadyExists")
    assert sqs.create_queue(QueueName="CaseOnly")["QueueUrl"].endswith("/CaseOnly")
    url = sqs.get_queue_url(QueueName="CaseOnly")["QueueUrl"]
    assert attributes(sqs, url)["DelaySeconds"] == "5"


def test_queues_are_listed_by_prefix_in_pages(sqs: Any, make: Make) -> None:
    urls = sorted(make(f"-{letter}") for letter in "abc")
    stem = urls[0].rpartition("/")[2].partition("-")[0]
    assert sqs.list_queues(QueueNamePrefix=stem)["QueueUrls"] == urls
    first = sqs.list_queues(QueueNamePrefix=stem, MaxResults=2)
    assert first["QueueUrls"] == urls[:2]
    rest = sqs.list_queues(QueueNamePrefix=stem, MaxResults=2, NextToken=first["NextToken"])
    assert (rest["QueueUrls"], "NextToken" in rest) == (urls[2:], False)


def test_dead_letters_go_where_they_are_allowed(sqs: Any, make: Make) -> None:
    dead = make("dead", RedriveAllowPolicy='{"redrivePermission": "denyAll"}')
    arn = attributes(sqs, dead)["QueueArn"]
    url = make()
    policy = redrive(arn, 3)
    assert refused(sqs.set_queue_attributes, QueueUrl=url, Attributes=policy).endswith(
        "InvalidAttributeValue"
    )
    allow = {"redrivePermission": "byQueue", "sourceQueueArns": [attributes(sqs, url)["QueueArn"]]}
    sqs.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": json.dumps(allow)})
    sqs.set_queue_attributes(QueueUrl=url, Attributes=policy)
    assert json.loads(attributes(sqs, url)["RedrivePolicy"])["maxReceiveCount"] == 3
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in attributes(sqs, url)


def test_messages_of_other_senders_are_seen_as_json(sqs: Any, make: Make, service_database: str) -> None:
    url = make()
    name = url.rpartition("/")[2]
    ask(service_database, f"select pgmq.send('{name}', '{{\"order\": 17}}')")
    sqs.send_message(QueueUrl=url, MessageBody="text")
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [json.loads(found[0]["Body"]), found[1]["Body"]] == [{"order": 17}, "text"]
    assert ask(service_database, f"select message #>> '{{}}' from pgmq.q_{name} where msg_id = 2") == "text"


def test_counts_of_a_large_queue_are_those_of_its_last_sample(
    sqs: Any, make: Make, service_database: str
) -> None:
    url = make()
    name = url.rpartition("/")[2]
    sample = (
        "insert into spanmq_core.statistics"
        " select queue_id, clock_timestamp() + interval '1 hour', 60, 1, 1, 1, 1, 1,"
        f" 1777, 1555, 111, null from spanmq_core.queue where name = '{name}'"
    )
    do(service_database, sample)
    # A few are counted.
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert attributes(sqs, url)["ApproximateNumberOfMessages"] == "1"
    do(
        service_database,
        "insert into spanmq_core.state (queue_id, msg_id, vt) select q.queue_id, n, clock_timestamp()"
        f" from spanmq_core.queue q, generate_series(10, 10100) n where q.name = '{name}'",
    )
    found = attributes(sqs, url)
    assert found["ApproximateNumberOfMessages"] == "1555"
    assert found["ApproximateNumberOfMessagesNotVisible"] == "111"
    assert found["ApproximateNumberOfMessagesDelayed"] == "111"
    sqs.delete_queue(QueueUrl=url)
