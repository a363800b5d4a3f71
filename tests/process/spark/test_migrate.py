"""Migration into a real RabbitMQ: nothing is lost, whoever is killed; what comes twice has the same mark."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.spark.faltering import BATCH, KILLS, FalteringBroker
from tests.process.spark.rabbit import MESSAGE_BYTES, Rabbit, declare, drained
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, PipelineError, QueueNotFoundError
from spanmq_spark.brokers.amqp import WINDOW, AmqpBroker
from spanmq_spark.brokers.outgoing import Outgoing
from spanmq_spark.jobs.migrate import TASKS, MigrateReport, broker_named, migrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pika")
Run = Callable[..., MigrateReport]


@pytest.fixture
def target(rabbit: Rabbit) -> Iterator[AmqpBroker]:
    import pika

    broker = AmqpBroker(url=rabbit.url, routing_key=declare(rabbit.url, f"orders-{uuid.uuid4().hex[:8]}"))
    yield broker
    with pika.BlockingConnection(pika.URLParameters(rabbit.url)) as connection:
        connection.channel().queue_delete(broker.routing_key)


@pytest.fixture
def run(spark: SparkSession, database: str, target: AmqpBroker, tmp_path: Path) -> Run:
    def with_options(queue: str = "orders", **options: Any) -> MigrateReport:
        broker = options.pop("broker", target)
        return migrate(spark, database, queue, broker, tmp_path / "checkpoint", **options)

    return with_options


def arrived(broker: AmqpBroker) -> list[tuple[str, Any, Any]]:
    """Take everything out of RabbitMQ: mark, body and properties."""
    return drained(broker.url, broker.routing_key)


def audit(found: list[tuple[str, Any, Any]], expected: dict[int, Any]) -> int:
    """Compare what arrived with what was sent; give how many came twice. A mark has one body."""
    marks: dict[str, Any] = {}
    for mark, body, _ in found:
        assert marks.setdefault(mark, body) == body
    assert marks == {f"orders:{id_}": body for id_, body in expected.items()}
    return len(found) - len(marks)


def test_drained_queue_arrives_once_and_in_the_order_of_its_groups(
    client: Client, run: Run, target: AmqpBroker
) -> None:
    client.send_batch("orders", [{"n": i} for i in range(300)], group=[f"g{i % 7}" for i in range(300)])
    headers = {"trace": "a", "deep": {"list": [1, 2.5, None, 10**30]}}
    client.send_batch("orders", [None, "text"], headers=headers)
    done = run(batch=100)
    assert (done.sent, done.left, done.dead_letters) == (302, 0, 0)
    assert client.queues.metrics("orders").length == 0
    found = arrived(target)
    expected = {i + 1: {"n": i} for i in range(300)} | {301: None, 302: "text"}
    assert audit(found, expected) == 0
    for group in range(7):
        places = [body["n"] for _, body, _ in found if isinstance(body, dict) and body["n"] % 7 == group]
        assert places == sorted(places)
    properties = next(each for mark, _, each in found if mark == "orders:302")
    assert properties.delivery_mode == 2
    assert properties.headers["deep"]["list"] == [1, "2.5", None, "1" + 30 * "0"]
    assert properties.headers["x-spanmq-message-id"] == 302
    assert properties.headers["x-spanmq-attempt"] == 1


def test_messages_that_are_sent_meanwhile_and_those_in_work_are_told_apart(
    client: Client, run: Run, target: AmqpBroker, database: str
) -> None:
    client.send_batch("orders", range(40))
    held = client.receive("orders", 10, lease=3600)
    client.send("orders", "later", delay=3600)
    client.reject(client.receive("orders", 5), "bad")
    ended = threading.Event()

    def load() -> None:
        with Client(database) as sender:
            for i in range(100, 600, 25):
                sender.send_batch("orders", range(i, i + 25))
        ended.set()

    sender = threading.Thread(target=load)
    sender.start()
    first = run(batch=50)
    sender.join()
    second = run()
    assert ended.is_set()
    assert first.sent + second.sent == 525
    assert (second.left, second.dead_letters) == (11, 5)
    bodies = sorted(body for _, body, _ in arrived(target))
    assert bodies == [*range(15, 40), *range(100, 600)]
    client.ack(held)


def test_broker_killed_in_mid_drain_is_waited_for(
    client: Client, run: Run, rabbit: Rabbit, tmp_path: Path
) -> None:
    # Of its own: the fixture's would be deleted over a connection that the kill ends.
    name = declare(rabbit.url, f"killed-{uuid.uuid4().hex[:8]}")
    rabbit.sync()
    # It may start slowly.
    broker = FalteringBroker(url=rabbit.url, routing_key=name, patience=400, folder=tmp_path)
    client.send_batch("orders", range(20_000))
    is_over = threading.Event()
    kills = 0

    def kill() -> None:
        nonlocal kills
        for number in range(len(KILLS)):
            while not (tmp_path / f"hit-{number}").exists():
                if is_over.wait(0.02):
                    return
            rabbit.kill()
            kills += 1
            (tmp_path / f"dead-{number}").touch()
            rabbit.start()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        done = run(broker=broker, batch=BATCH)
    finally:
        is_over.set()
        killer.join()
    assert kills == 2
    assert (done.sent, done.left) == (20_000, 0)
    doubled = audit(arrived(broker), {i + 1: i for i in range(20_000)})
    assert doubled <= TASKS * WINDOW * kills


def test_dry_run_counts_and_moves_nothing(
    client: Client, run: Run, target: AmqpBroker, tmp_path: Path
) -> None:
    client.send_batch("orders", range(10))
    done = run(dry_run=True)
    assert (done.sent, done.left, done.is_dry_run) == (10, 10, True)
    assert arrived(target) == []
    assert client.admin.receivers.list("orders") == []
    assert not (tmp_path / "checkpoint").exists()


def test_bad_target_is_refused_before_anything_moves(client: Client, run: Run, target: AmqpBroker) -> None:
    client.send("orders", 1)

    def refusal(**changed: Any) -> str:
        options: dict[str, Any] = {
            "url": target.url,
            "routing_key": target.routing_key,
            "patience": 1.0,
        } | changed
        with pytest.raises(PipelineError) as caught:
            run(broker=AmqpBroker(**options))
        text = str(caught.value)
        assert "secret" not in text
        return text

    assert "no queue 'nowhere'" in refusal(routing_key="nowhere")
    assert "no exchange 'nowhere'" in refusal(exchange="nowhere")
    wrong = target.url.replace("guest:guest", "guest:secret")
    assert "amqp://name:password@host" in refusal(url=wrong)
    assert "vhost nowhere not found" in refusal(url=target.url.replace("%2F", "nowhere"))
    assert "Connection refused" in refusal(url="amqp://guest:secret@127.0.0.1:1/")
    with pytest.raises(InvalidArgumentError, match="amqp://"):
        run(broker=AmqpBroker(url="http://127.0.0.1", routing_key="orders"))
    with pytest.raises(QueueNotFoundError, match="Did you mean orders"):
        run("order")
    with pytest.raises(InvalidArgumentError, match="Did you mean amqp"):
        broker_named("ampq", target.url, "orders")
    assert client.queues.metrics("orders").visible_length == 1


def test_message_that_the_broker_has_no_queue_for_stays(client: Client, run: Run, target: AmqpBroker) -> None:
    client.send("orders", 1)
    unbound = AmqpBroker(url=target.url, routing_key="nowhere", exchange="amq.direct")
    with pytest.raises(PipelineError, match="message orders:1 came back: NO_ROUTE") as caught:
        run(broker=unbound)
    assert "bound to the exchange" in str(caught.value)
    assert client.queues.metrics("orders").length == 1
    assert run().sent == 1
    assert [mark for mark, _, _ in arrived(target)] == ["orders:1"]


def test_message_that_is_too_large_for_the_broker_stops_with_its_id(target: AmqpBroker) -> None:
    small = Outgoing("orders", 1, "1", None, None, 1, datetime.now(UTC))
    large = replace(small, message_id=2, body=f'"{MESSAGE_BYTES * "x"}"')
    with pytest.raises(PipelineError, match=r"message orders:2 can't be sent: .*message size") as caught:
        target.publish([small, large, replace(small, message_id=3)])
    assert "spanmq receiver reject orders migrate 2" in str(caught.value.hint)


def test_checkpoint_of_another_queue_is_refused(client: Client, run: Run) -> None:
    client.queues.create("others")
    client.send("orders", 1)
    client.send("others", 1)
    run()
    with pytest.raises(PipelineError, match="the checkpoint is of queue orders"):
        run("others")


def test_command_migrates(
    client: Client, spark: SparkSession, target: AmqpBroker, database: str, tmp_path: Path
) -> None:
    client.send_batch("orders", range(5))
    runner = CliRunner()
    fixed = ["--dsn", database, "--url", target.url, "--target", target.routing_key]
    fixed += ["--checkpoint", str(tmp_path / "checkpoint")]

    def spanmq(*arguments: str) -> Any:
        return runner.invoke(app, ["pipeline", "migrate", "orders", *arguments, *fixed])

    assert spanmq("--to", "amqp", "--dry-run").stdout.startswith(
        "would send 5 messages of queue orders to amqp"
    )
    done = spanmq("--to", "amqp", "--json")
    assert (done.exit_code, json.loads(done.stdout)["sent"]) == (0, 5)
    assert sorted(body for _, body, _ in arrived(target)) == list(range(5))
    done = spanmq("--to", "ampq")
    assert (done.exit_code, "Did you mean amqp" in done.stderr) == (1, True)
