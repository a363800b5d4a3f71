"""Names of queues: the long ones of SQS, and odd ones that were made elsewhere."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from service.tests.running import Running
from service.tests.sqs.conftest import Make, attributes, client_of, redrive
from service.tests.sqs.test_signature import query, signed, texts
from tests.cli.program import ask, do, records, wait_until

LONG = "a-name-of-eighty-characters-" + "x" * 52
LONG_FIFO = "a-fifo-name-of-eighty-characters-" + "y" * 42 + ".fifo"


def test_queue_with_a_name_of_eighty_characters_is_like_any_other(
    sqs: Any, keyed: Running, key: dict[str, str], service_database: str
) -> None:
    assert len(LONG) == len(LONG_FIFO) == 80
    url = sqs.create_queue(QueueName=LONG)["QueueUrl"]
    assert url.endswith(f"/{LONG}")
    assert sqs.create_queue(QueueName=LONG)["QueueUrl"] == url
    assert sqs.get_queue_url(QueueName=LONG)["QueueUrl"] == url
    assert sqs.list_queues(QueueNamePrefix=LONG[:60])["QueueUrls"] == [url]
    assert attributes(sqs, url)["QueueArn"].endswith(f":{LONG}")
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert texts(query(keyed.address, key, "GetQueueUrl", QueueName=LONG), "QueueUrl") == [url]
    # It begins with the same characters, and is another queue.
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName=LONG[:-1] + "z")
    [name] = ask(
        service_database,
        f"select jsonb_agg(queue_name) from pgmq.list_queues() where queue_name like '{LONG[:20]}%'",
    )
    assert len(name) <= 47
    # In SQS a queue has one name.
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName=name)
    sqs.delete_queue(QueueUrl=url)
    assert not sqs.list_queues(QueueNamePrefix=LONG).get("QueueUrls")


def test_key_is_checked_for_the_begin_of_a_long_name(keyed: Running, sqs: Any, service_database: str) -> None:
    name = "narrow-long-" + "x" * 68
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    [narrow] = records("key create", "-q", "narrow-long-*", dsn=service_database)
    [foreign] = records("key create", "-q", "narrow-other-*", dsn=service_database)
    client_of(keyed.address, narrow).send_message(QueueUrl=url, MessageBody="x")
    with pytest.raises(ClientError, match="AccessDenied"):
        client_of(keyed.address, foreign).send_message(QueueUrl=url, MessageBody="x")


def test_dead_letters_of_queues_with_long_names_go_and_return(sqs: Any) -> None:
    dead = sqs.create_queue(QueueName="dead-" + LONG_FIFO[5:], Attributes={"FifoQueue": "true"})["QueueUrl"]
    arn = attributes(sqs, dead)["QueueArn"]
    url = sqs.create_queue(QueueName=LONG_FIFO, Attributes={"FifoQueue": "true", **redrive(arn, 1)})[
        "QueueUrl"
    ]
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="1")
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    [letter] = sqs.receive_message(QueueUrl=dead, AttributeNames=["All"], VisibilityTimeout=0)["Messages"]
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == attributes(sqs, url)["QueueArn"]
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    sqs.start_message_move_task(SourceArn=arn)
    wait_until(lambda: sqs.list_message_move_tasks(SourceArn=arn)["Results"][0]["Status"] != "RUNNING")
    [again] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert again["Body"] == "x"
    task = sqs.start_message_move_task(SourceArn=arn, DestinationArn=attributes(sqs, url)["QueueArn"])
    assert task["TaskHandle"]


@pytest.mark.parametrize("name", ["odd b?c#d%20", "odd/slash", "odd&<é>"])
def test_queue_with_an_odd_name_has_a_url_that_works(
    sqs: Any, keyed: Running, key: dict[str, str], service_database: str, name: str
) -> None:
    do(service_database, f"select pgmq.create('{name}')")
    urls = sqs.list_queues(QueueNamePrefix=name)["QueueUrls"]
    assert len(urls) == 1
    sqs.send_message(QueueUrl=urls[0], MessageBody="x")
    assert texts(query(keyed.address, key, "ReceiveMessage", urls[0]), "Body") == ["x"]
    # The older protocol has the queue in the path, too, which is signed as it is sent.
    path = urls[0].removeprefix(keyed.address)
    answer = signed(keyed.address, key, "Action=PurgeQueue&Version=2012-11-05", path=path)
    assert answer.status_code == 200, answer.text
    assert ask(service_database, f"select queue_length from pgmq.metrics('{name}')") == 0


def test_attributes_that_templates_set_are_taken(sqs: Any, make: Make) -> None:
    url = make(SqsManagedSseEnabled="true", Policy="", KmsMasterKeyId="")
    assert attributes(sqs, url)["SqsManagedSseEnabled"] == "true"
    assert "Policy" not in attributes(sqs, url)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"SqsManagedSseEnabled": "false", "Policy": ""})
    assert attributes(sqs, url)["SqsManagedSseEnabled"] == "false"
