"""The other brokers: Kafka against the cluster that its client library carries, SQS against moto."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow
import pytest
from tests.spark.conftest import Streams
from tests.spark.protocol import sink_to

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq_spark.brokers.amqp import AmqpBroker, properties_of
from spanmq_spark.brokers.kafka import KafkaBroker
from spanmq_spark.brokers.outgoing import BrokerWriter, Outgoing, sink_of
from spanmq_spark.brokers.sqs import BATCH_BYTES, SqsBroker, batches

# For what a server on this machine does, however busy that is.
SECONDS = 100


def message(n: int, **changed: Any) -> Outgoing:
    fields = {"body": f'{{"n": {n}}}', "headers": '{"trace": "a", "list": [1]}', "group": f"g{n % 3}"}
    return Outgoing(
        **{
            "queue": "orders",
            "message_id": n,
            "attempt": 1,
            "enqueued_at": datetime.now(UTC),
            **fields,
            **changed,
        }
    )


@pytest.fixture
def servers() -> Iterator[str]:
    """A cluster within this process that speaks Kafka's protocol on loopback."""
    kafka = pytest.importorskip("confluent_kafka")
    settings = {"test.mock.num.brokers": "1", "bootstrap.servers": "none", "log_level": "0"}
    cluster = kafka.Producer(settings)
    found = cluster.list_topics(timeout=SECONDS).brokers.values()
    yield ",".join(f"{each.host}:{each.port}" for each in found)
    del cluster


def consumed(servers: str, topic: str, n: int) -> list[Any]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "test"})
    # Not by joining the group, which takes three seconds.
    partitions = consumer.list_topics(topic, SECONDS).topics[topic].partitions
    first = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, each, first) for each in partitions])
    found: list[Any] = []
    while len(found) < n:
        more = consumer.consume(n - len(found), SECONDS)
        assert more, f"{len(found)} of {n} arrived"
        found += more
    consumer.close()
    return found


def test_queue_is_drained_into_kafka_and_a_replay_has_the_same_marks(
    client: Client, stream: Streams, servers: str
) -> None:
    client.send_batch("orders", range(300), group=[f"g{i % 7}" for i in range(300)])
    sink = sink_to(sink_of(KafkaBroker(servers=servers, topic="orders", patience=SECONDS))({}))
    drained = stream(includeHeaders="true", maxOffsetsPerTrigger=100, sink=sink)
    drained.run(kill="written")
    assert drained.run() == [100, 100, 100]
    assert client.queues.metrics("orders").length == 0
    found = consumed(servers, "orders", 400)
    assert Counter(int(each.value()) for each in found) == Counter([*range(100), *range(300)])
    for each in found:
        labels = dict(each.headers())
        assert labels["x-spanmq-message-id"].decode() == str(int(each.value()) + 1)
        assert each.key().decode() == f"g{int(each.value()) % 7}"
    for group in range(7):
        places = [int(each.value()) for each in found if each.key() == f"g{group}".encode()]
        replayed = [place for place in places if place < 100]
        assert places[len(replayed) // 2 :] == sorted(places[len(replayed) // 2 :])


def test_task_hands_a_broker_messages_in_order_and_in_portions_of_bounded_size() -> None:
    class Kept:
        def __init__(self) -> None:
            self.portions: list[Sequence[Outgoing]] = []

        def publish(self, messages: Sequence[Outgoing]) -> None:
            self.portions.append(messages)

    kept: Any = Kept()
    sent = [message(n, body='"' + 6_000_000 * "x" + '"') for n in (3, 1, 2, 5, 4)]
    rows = [{name: getattr(each, name) for name in Outgoing.__slots__} for each in sent]
    batches = [pyarrow.RecordBatch.from_pylist(each) for each in (rows[:2], [], rows[2:]) if each]
    BrokerWriter(kept).write(iter(batches))
    assert [[each.message_id for each in portion] for portion in kept.portions] == [[1, 2, 3], [4, 5]]
    assert kept.portions[0][0] == sent[1]


@pytest.mark.parametrize("kind", ["amqp", "kafka", "sqs"])
def test_message_that_a_broker_can_not_carry_stops_with_its_id(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    broker: Any = {
        "amqp": AmqpBroker(url="amqp://127.0.0.1:1", routing_key="orders"),
        "kafka": KafkaBroker(servers="127.0.0.1:1", topic="orders"),
        "sqs": SqsBroker(url="http://127.0.0.1:1/queue"),
    }[kind]
    pytest.importorskip({"amqp": "pika", "kafka": "confluent_kafka", "sqs": "boto3"}[kind])
    bad = ["5", "[1]"]
    if kind != "kafka":
        bad.append('{"' + 300 * "x" + '": 1}')
    for headers in bad:
        # Nothing listens there: no connection was tried.
        with pytest.raises(PipelineError, match="message orders:2 can't be sent: ") as caught:
            broker.publish([message(2, headers=headers)])
        assert "spanmq receiver reject orders migrate 2" in str(caught.value.hint)


def test_numbers_in_headers_keep_their_digits() -> None:
    pytest.importorskip("pika")
    exact = message(1, headers='{"h": 12345678901234567890.123456789, "z": [1.10, 7], "n": -7, "b": 9e99}')
    headers = properties_of(exact).headers
    assert {name: headers[name] for name in "hznb"} == {
        "h": "12345678901234567890.123456789",
        "z": ["1.10", 7],
        "n": -7,
        "b": "9e99",
    }
    labels = exact.labels()
    assert [labels[name] for name in "hzn"] == ["12345678901234567890.123456789", "[1.10,7]", "-7"]


def test_kafka_that_does_not_confirm_is_an_error() -> None:
    pytest.importorskip("confluent_kafka")
    away = KafkaBroker(servers="127.0.0.1:1", topic="orders", patience=1)
    with pytest.raises(PipelineError, match=r"kafka 127\.0\.0\.1:1 topic orders"):
        away.publish([message(1)])
    with pytest.raises(InvalidArgumentError, match=r"nothing\.like\.it"):
        KafkaBroker(servers="127.0.0.1:1", topic="orders", settings={"nothing.like.it": "1"}).publish(
            [message(1)]
        )
    away.publish([])


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of a stand-in for SQS on loopback."""
    pytest.importorskip("moto.server")
    import boto3
    from moto.server import ThreadedMotoServer

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield boto3.client("sqs", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    server.stop()


def taken(sqs: Any, url: str) -> list[Any]:
    found: list[Any] = []
    while True:
        more = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        if not more.get("Messages"):
            return found
        for each in more["Messages"]:
            found.append(each)
            sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])


def test_sqs_gets_each_message_with_its_mark_and_drops_duplicates(sqs: Any) -> None:
    attributes = {"FifoQueue": "true"}
    url = sqs.create_queue(QueueName="orders.fifo", Attributes=attributes)["QueueUrl"]
    broker = SqsBroker(url=url)
    broker.check()
    broker.publish([message(n) for n in range(25)])
    broker.publish([message(n) for n in range(20, 25)])
    found = taken(sqs, url)
    assert [each["Body"] for each in found] == [f'{{"n": {n}}}' for n in range(25)]
    labels = {name: each["StringValue"] for name, each in found[3]["MessageAttributes"].items()}
    assert labels == {
        "trace": "a",
        "list": "[1]",
        "x-spanmq-queue": "orders",
        "x-spanmq-message-id": "3",
        "x-spanmq-attempt": "1",
    }


def test_what_sqs_can_not_take_is_an_error(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    with pytest.raises(PipelineError, match=r"orders:1 can't be sent: .*longer than"):
        SqsBroker(url=url).publish([message(1, body='"' + 1_100_000 * "x" + '"')])
    headers = "{" + ",".join(f'"h{i}": 1' for i in range(10)) + "}"
    with pytest.raises(PipelineError, match="orders:1 can't be sent: it has 13 headers"):
        SqsBroker(url=url).publish([message(1, headers=headers)])
    with pytest.raises(PipelineError, match="does not exist"):
        SqsBroker(url=url + "-2").check()
    with pytest.raises(InvalidArgumentError, match="by its url"):
        SqsBroker(url="orders").check()


def test_batches_for_sqs_are_small_enough() -> None:
    large = message(1, body='"' + (BATCH_BYTES // 3) * "x" + '"')
    assert [len(each) for each in batches([large] * 5)] == [2, 2, 1]
    assert [len(each) for each in batches([message(n) for n in range(23)])] == [10, 10, 3]
    assert batches([]) == []
