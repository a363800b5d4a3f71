"""Migration by a function (those of examples/migrate, into a real RabbitMQ and a sink), and by a format of Spark."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest
from spark.tests.process.rabbit import MESSAGE_BYTES, Rabbit, declare, drained
from tests.patience import WAIT_SECONDS
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, PipelineError, QueueNotFoundError
from spanmq_spark.jobs.migrate import MigrateReport, SparkFormat, migrate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples/migrate"
Run = Callable[..., MigrateReport]


@pytest.fixture
def run(spark: SparkSession, database: str, tmp_path: Path) -> Run:
    def with_options(send: Any, queue: str = "orders", **options: Any) -> MigrateReport:
        return migrate(spark, database, queue, send, tmp_path / "checkpoint", **options)

    return with_options


@pytest.fixture
def example(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Import a module of the examples, here and on executors."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def imported(name: str) -> Any:
        spark.sparkContext.addPyFile(str(EXAMPLES / f"{name}.py"))
        return importlib.import_module(name)

    return imported


@dataclass(frozen=True)
class RabbitQueue:
    """A queue of RabbitMQ, and the environment in which the example finds it."""

    url: str
    name: str

    @property
    def environment(self) -> dict[str, str]:
        return {"AMQP_URL": self.url, "AMQP_QUEUE": self.name}

    def taken(self) -> list[tuple[str, Any, Any]]:
        """Take everything out: id, body and properties."""
        return drained(self.url, self.name)


@pytest.fixture
def target(rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch) -> Iterator[RabbitQueue]:
    import pika

    queue = RabbitQueue(rabbit.url, declare(rabbit.url, f"orders-{uuid.uuid4().hex[:8]}"))
    for name, value in queue.environment.items():
        monkeypatch.setenv(name, value)
    yield queue
    with pika.BlockingConnection(pika.URLParameters(rabbit.url)) as connection:
        connection.channel().queue_delete(queue.name)


def test_function_gets_a_group_in_one_partition_in_its_order_and_a_failed_batch_again(
    client: Client, run: Run
) -> None:
    client.send_batch("orders", range(300), group=[f"g{i % 7}" for i in range(300)])
    client.send_batch("orders", range(300, 320))
    batches: list[tuple[int, list[list[tuple[Any, ...]]]]] = []

    def send(messages: DataFrame, batch: int) -> None:
        # A second read of the batch; each message counts once.
        assert messages.count() <= 100
        parts = messages.select("message_id", "group", "body").rdd.glom().collect()
        batches.append((batch, [[tuple(row) for row in part] for part in parts]))
        # The first one is empty: Spark notes the receiver.
        if len(batches) == 3:
            raise PipelineError("the target is full", hint="Empty it.")

    with pytest.raises(PipelineError, match="the target is full") as caught:
        run(send, batch=100, tasks=3)
    assert caught.value.hint == "Empty it."
    done = run(send, batch=100, tasks=3)
    assert (done.sent, done.left) == (220, 0)
    assert done.to.endswith("send")
    assert [batch for batch, _ in batches] == [0, 1, 2, 2, 3, 4]
    assert batches[3] == batches[2]
    del batches[2]
    rows = [row for _, parts in batches for part in parts for row in part]
    assert sorted(rows) == [(i + 1, f"g{i % 7}" if i < 300 else None, str(i)) for i in range(320)]
    for _, parts in batches[1:]:
        assert len(parts) == 3
        for part in parts:
            assert part == sorted(part, key=lambda row: row[0])
        groups = [{row[1] for row in part if row[1]} for part in parts]
        assert sum(map(len, groups)) == len(set().union(*groups))


def test_messages_that_are_sent_meanwhile_and_those_in_work_are_told_apart(
    client: Client, run: Run, database: str
) -> None:
    client.send_batch("orders", range(40))
    held = client.receive("orders", 10, lease=3600)
    client.send("orders", "later", delay=3600)
    client.reject(client.receive("orders", 5), "bad")
    bodies: list[int] = []

    def send(messages: DataFrame, _: int) -> None:
        bodies.extend(json.loads(row.body) for row in messages.collect())

    def load() -> None:
        with Client(database) as sender:
            for i in range(100, 600, 25):
                sender.send_batch("orders", range(i, i + 25))

    sender = threading.Thread(target=load)
    sender.start()
    first = run(send, batch=50)
    sender.join()
    second = run(send)
    assert first.sent + second.sent == 525
    assert (second.left, second.dead_letters) == (11, 5)
    assert sorted(bodies) == [*range(15, 40), *range(100, 600)]
    client.ack(held)


def test_dry_run_counts_and_calls_nothing(client: Client, run: Run, tmp_path: Path) -> None:
    client.send_batch("orders", range(10))
    done = run(lambda *_: pytest.fail("called"), dry_run=True)
    assert (done.sent, done.left, done.is_dry_run) == (10, 10, True)
    assert client.admin.receivers.list("orders") == []
    assert not (tmp_path / "checkpoint").exists()


def test_checkpoint_of_another_queue_and_a_queue_that_does_not_exist_are_refused(
    client: Client, run: Run
) -> None:
    def send(messages: DataFrame, _: int) -> None:
        messages.count()

    client.queues.create("others")
    client.send("orders", 1)
    client.send("others", 1)
    run(send)
    with pytest.raises(PipelineError, match="the checkpoint is of queue orders"):
        run(send, "others")
    with pytest.raises(QueueNotFoundError, match="Did you mean orders"):
        run(send, "order")


def test_rabbitmq_gets_each_message_once_in_the_order_of_its_group(
    client: Client, run: Run, target: RabbitQueue, example: Callable[[str], Any]
) -> None:
    client.send_batch("orders", [{"n": i} for i in range(300)], group=[f"g{i % 7}" for i in range(300)])
    client.send_batch("orders", [None, "text"], headers={"trace": "a", "deep": {"list": [1, None]}})
    done = run(example("to_rabbitmq").send, batch=100)
    assert (done.sent, done.left, done.to) == (302, 0, "to_rabbitmq:send")
    messages = target.taken()
    expected = {f"orders:{i + 1}": {"n": i} for i in range(300)} | {"orders:301": None, "orders:302": "text"}
    assert len(messages) == len(expected)
    assert {mark: body for mark, body, _ in messages} == expected
    for group in range(7):
        places = [body["n"] for _, body, _ in messages if isinstance(body, dict) and body["n"] % 7 == group]
        assert places == sorted(places)
    properties = next(each for mark, _, each in messages if mark == "orders:302")
    assert (properties.delivery_mode, properties.headers) == (2, {"trace": "a", "deep": {"list": [1, None]}})


def test_rabbitmq_that_is_killed_loses_nothing_and_gets_the_same_ids_again(
    client: Client, run: Run, rabbit: Rabbit, example: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of its own: the fixture's would be deleted over a connection that the kill ends.
    queue = RabbitQueue(rabbit.url, declare(rabbit.url, f"killed-{uuid.uuid4().hex[:8]}"))
    rabbit.sync()
    for name, value in queue.environment.items():
        monkeypatch.setenv(name, value)
    client.send_batch("orders", range(600))
    sender = example("to_rabbitmq")

    def send(messages: DataFrame, batch: int) -> None:
        if batch == 2:
            # Half of it is confirmed.
            sender.send(messages.where("message_id <= 300"), batch)
            rabbit.kill()
        sender.send(messages, batch)

    with pytest.raises(PipelineError):
        run(send, batch=200)
    rabbit.start()
    done = run(sender.send, batch=200)
    assert (done.sent, done.left) == (400, 0)
    messages = queue.taken()
    assert len(messages) == 700
    assert {mark: body for mark, body, _ in messages} == {f"orders:{i + 1}": i for i in range(600)}


def test_message_that_rabbitmq_refuses_stops_with_its_id_and_stays(
    client: Client,
    run: Run,
    target: RabbitQueue,
    example: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender = example("to_rabbitmq")
    client.send_batch("orders", [1, MESSAGE_BYTES * "x"], group="a")
    with pytest.raises(PipelineError, match=r"message 2 was not sent: .*message size") as caught:
        run(sender.send)
    command = "spanmq receiver reject orders migrate 2 --error"
    assert command in str(caught.value.hint)
    assert client.queues.metrics("orders").length == 2
    monkeypatch.setenv("AMQP_QUEUE", "nowhere")
    with pytest.raises(PipelineError, match="message 1 was not sent: Unroutable"):
        run(sender.send)
    monkeypatch.setenv("AMQP_QUEUE", target.name)
    client.admin.receivers.reject("orders", "migrate", 2, "too large")
    done = run(sender.send)
    assert (done.left, done.dead_letters) == (0, 1)
    assert {mark for mark, _, _ in target.taken()} == {"orders:1"}


def test_kafka_sink_gets_keys_values_and_headers(
    client: Client, spark: SparkSession, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.tests.process.kafka_sink import KafkaSink

    spark.dataSource.register(KafkaSink)
    # Spark has the name for its own package.
    program = (EXAMPLES / "to_kafka.py").read_text()
    assert program.count('format("kafka")') == 1
    scope: dict[str, Any] = {"__name__": "to_kafka"}
    exec(program.replace('format("kafka")', 'format("kafka_test")'), scope)
    monkeypatch.setenv("KAFKA_SERVERS", "localhost:9092")
    monkeypatch.setenv("KAFKA_TOPIC", str(tmp_path))
    client.send_batch("orders", range(30), group=[f"g{i % 3}" for i in range(30)], headers={"trace": "a"})
    assert run(scope["send"]).sent == 30
    parts = [[json.loads(line) for line in path.read_text().splitlines()] for path in tmp_path.glob("*.part")]
    rows = [row for part in parts for row in part]
    assert sorted(int(row["value"]) for row in rows) == list(range(30))
    for row in rows:
        number = int(row["value"])
        assert row["key"] == f"g{number % 3}"
        assert row["headers"] == {
            "x-spanmq-message-id": f"orders:{number + 1}",
            "x-spanmq-headers": f'{{"trace": "a", "x-pgmq-group": "g{number % 3}"}}',
        }
    for part in parts:
        assert part == sorted(part, key=lambda row: int(row["value"]))


def test_command_migrates_by_a_function_of_the_current_folder(
    client: Client, target: RabbitQueue, database: str, tmp_path: Path
) -> None:
    client.send_batch("orders", range(5))
    command = ["pipeline", "migrate", "orders", "--to", "to_rabbitmq:send", "--dsn", database, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "spanmq.cli", *command, "--checkpoint", str(tmp_path / "checkpoint")],
        cwd=EXAMPLES,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (json.loads(done.stdout)["sent"], json.loads(done.stdout)["to"]) == (5, "to_rabbitmq:send")
    assert sorted(body for _, body, _ in target.taken()) == list(range(5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "nowhere:send"], "module 'nowhere' does not exist"),
        (["--to", "json:dumps", "--select", "body"], "are for a format"),
        (["--to", "parquet", "--setting", "path"], "'path' is not of the form NAME=VALUE"),
    ],
)
def test_command_refuses_a_target(database: str, tmp_path: Path, arguments: list[str], message: str) -> None:
    fixed = ["--dsn", database, "--checkpoint", str(tmp_path / "checkpoint")]
    done = CliRunner().invoke(app, ["pipeline", "migrate", "orders", *arguments, *fixed])
    assert done.exit_code != 0
    assert message in done.stderr


def test_mirror_gets_every_message_while_workers_take_theirs(
    client: Client, run: Run, tmp_path: Path
) -> None:
    client.subscriptions.create("mirror", "orders")
    client.send_batch("orders", range(200), group=[f"g{i % 3}" for i in range(200)])
    client.ack(client.receive("orders", 150))
    lake = tmp_path / "lake"
    columns = ("message_id", "`group` as key", "body as value")
    target = SparkFormat(name="parquet", settings={"path": str(lake)}, columns=columns)
    done = run(target, "mirror")
    assert (done.sent, done.left, done.to) == (200, 0, f"format parquet {lake}")
    files = [pyarrow.parquet.ParquetFile(path).read().to_pylist() for path in lake.glob("*.parquet")]
    found = [row for rows in files for row in rows]
    assert sorted(json.loads(row["value"]) for row in found) == list(range(200))
    # As they were sent, in each file; with their groups.
    for rows in files:
        assert rows == sorted(rows, key=lambda row: row["message_id"])
    assert all(row["key"] == f"g{json.loads(row['value']) % 3}" for row in found)
    assert client.queues.metrics("orders").length == 50


def test_what_was_sent_is_counted_over_more_batches_than_spark_remembers(
    client: Client, spark: SparkSession, run: Run
) -> None:
    client.send_batch("orders", range(60))
    told: list[int] = []
    name = "spark.sql.streaming.numRecentProgressUpdates"
    spark.conf.set(name, "1")
    try:
        done = run(SparkFormat(name="noop"), batch=5, progress=told.append)
    finally:
        spark.conf.unset(name)
    assert (done.sent, done.left) == (60, 0)
    assert told == sorted(told)
    assert told[-1] == 60


def test_format_that_there_is_not_moves_nothing(client: Client, run: Run) -> None:
    client.send("orders", 1)
    with pytest.raises(PipelineError, match="nothing_like_it"):
        run(SparkFormat(name="nothing_like_it"))
    with pytest.raises(InvalidArgumentError, match="needs a name"):
        run(SparkFormat(name=""))
    assert client.queues.metrics("orders").visible_length == 1


def test_command_names_a_format(client: Client, spark: SparkSession, database: str, tmp_path: Path) -> None:
    client.send_batch("orders", range(3))
    fixed = ["--checkpoint", str(tmp_path / "checkpoint"), "--dsn", database, "--json"]
    to = ["--to", "json", "--setting", f"path={tmp_path / 'out'}", "--select", "body as value"]
    done = CliRunner().invoke(app, ["pipeline", "migrate", "orders", *to, *fixed])
    assert (done.exit_code, json.loads(done.stdout)["sent"]) == (0, 3)
    texts = [path.read_text() for path in (tmp_path / "out").glob("*.json")]
    assert sorted(line for text in texts for line in text.splitlines()) == [
        f'{{"value":"{i}"}}' for i in range(3)
    ]
