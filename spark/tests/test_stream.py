"""Streams over a queue: every message once, whatever happens between queue, checkpoint and sink."""

import json
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType
from spark.tests.conftest import Load, Streams
from spark.tests.protocol import FIRST_SEAMS, SEAMS, Batches, sink_to
from tests.cli.program import do
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client
from spanmq.errors import (
    InvalidBodyError,
    MessagesLostError,
    PipelineError,
    ReceiverInUseError,
    ServerReadOnlyError,
    SpanmqError,
)
from spanmq.model import Finding
from spanmq_spark import stream as stream_module
from spanmq_spark.options import read_options
from spanmq_spark.stream import Offset, Stream


def once(*bodies: range) -> Counter[int]:
    return Counter(n for each in bodies for n in each)


@pytest.mark.parametrize("table", ["queue", "archive"])
def test_stream_over_a_read_only_server_is_refused_with_the_reason(
    client: Client, database: str, stream: Streams, load: Load, table: str
) -> None:
    client.archive("orders", client.send_batch("orders", range(5)))
    client.send_batch("orders", range(5))
    standby = make_conninfo(
        database, options="-c default_transaction_read_only=on", target_session_attrs="any"
    )
    assert len(load(dsn=standby, table=table).rows()) == 5
    with pytest.raises(ServerReadOnlyError, match="stores its positions") as caught:
        stream(dsn=standby, table=table).run()
    assert "Batch reads can read a standby" in str(caught.value.hint)


def test_every_message_arrives_once_and_is_settled(client: Client, stream: Streams) -> None:
    client.send_batch("orders", range(700), group="a")
    lake = stream()
    assert lake.run(maxOffsetsPerTrigger=300, minPartitions=2) == [300, 300, 100]
    # The identity lay in the checkpoint before the first lease.
    first = json.loads(lake.logged("offsets")[0].read_text().splitlines()[-1])
    [receiver] = client.admin.receivers.list("orders")
    assert (first["receiver"], first["lease"]) == (str(receiver.receiver_id), 0)
    # Three bytes each, and the header with the group has 21.
    client.send_batch("orders", range(700, 1000), group="a")
    assert lake.run(maxBytesPerTrigger="2400") == [100, 100, 100]
    assert lake.bodies == once(range(1000))
    assert client.queues.metrics("orders").length == 0
    assert [each.held for each in client.admin.receivers.list("orders")] == [0]


def test_stream_begins_with_settled_messages_by_a_subscription_that_begins_earlier(
    client: Client, stream: Streams
) -> None:
    client.queues.set_policy("orders", keep="1 day")
    ids = client.send_batch("orders", range(5))
    client.pop("orders", 3)
    extent = client.subscriptions.replay_extent("orders")
    assert extent is not None
    client.subscriptions.create("lake", "orders", since=extent.since)
    client.subscriptions.create("late", "orders", since_id=ids[2])
    lake = stream(queue="lake")
    assert lake.run() == [5]
    assert lake.bodies == once(range(5))
    assert stream("late", queue="late").run() == [3]
    assert client.queues.metrics("orders").length == 2


@pytest.mark.parametrize("table", ["queue", "archive"])
def test_batch_waits_for_its_least_number_or_the_delay(client: Client, stream: Streams, table: str) -> None:
    def send(n: int) -> None:
        ids = client.send_batch("orders", range(n))
        if table == "archive":
            client.archive("orders", ids)

    lake = stream(table=table, minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    driver = lake.start()
    send(5)
    while not driver.step():
        pass
    send(3)
    # What the checkpoint has is settled meanwhile.
    assert driver.step() is None
    assert client.queues.metrics("orders").length == (3 if table == "queue" else 0)
    send(2)
    assert driver.step() == 5
    send(1)
    driver.stop()
    # Neither a run that is bounded waits, nor one whose time has come.
    hasty = stream("other", table=table, minOffsetsPerTrigger=50, maxTriggerDelay="0ms")
    driver = hasty.start()
    sizes = [driver.step() for _ in range(3)]
    assert sum(size or 0 for size in sizes) == (1 if table == "queue" else 11)
    driver.stop()
    send(1)
    assert sum(lake.run()) == (1 if table == "queue" else 2)


@pytest.mark.parametrize("kill", SEAMS)
def test_driver_killed_at_any_seam_of_any_batch_loses_and_doubles_nothing(
    client: Client, stream: Streams, kill: str
) -> None:
    lake = stream(maxOffsetsPerTrigger=10)
    lake.run()
    for first in (0, 20):
        client.send_batch("orders", range(first, first + 20))
        # The next driver cuts into other tasks, and finds the batch as it was.
        assert lake.run(kill=kill) == []
        # When tasks have read a batch, the next one is claimed, too.
        visible = 10 if kill in {"claimed", "logged"} else 0
        assert client.queues.metrics("orders").visible_length == visible
        client.send_batch("orders", range(1000 + first, 1020 + first))
        assert sum(lake.run(minPartitions=3)) == (30 if kill == "committed" else 40)
    assert lake.bodies == once(*(range(a, a + 20) for n in (0, 20) for a in (n, 1000 + n)))
    assert client.queues.metrics("orders").length == 0


@pytest.mark.parametrize("queue", ["orders", "orders,others"])
@pytest.mark.parametrize("kill", FIRST_SEAMS)
def test_stream_with_a_label_that_was_killed_as_it_began_starts_again(
    client: Client, stream: Streams, kill: str, queue: str
) -> None:
    client.queues.create("others")
    client.send_batch("orders", range(10))
    lake = stream(receiver="lake", queue=queue)
    assert lake.run(kill=kill) == []
    assert lake.run() == [10]
    assert lake.bodies == once(range(10))
    with pytest.raises(ReceiverInUseError, match="belongs to another checkpoint"):
        stream("other", receiver="lake", queue=queue).run()


def test_streams_and_workers_share_a_queue(client: Client, stream: Streams) -> None:
    client.send_batch("orders", range(100))
    mine = client.receive("orders", 40, lease=3600)
    one, two = stream("one"), stream("two")
    one.run()
    client.send_batch("orders", range(100, 110))
    two.run()
    client.ack(mine)
    assert one.bodies + two.bodies == once(range(40, 110))
    assert client.queues.metrics("orders").length == 0


def test_label_belongs_to_one_checkpoint_until_it_is_adopted(client: Client, stream: Streams) -> None:
    client.send_batch("orders", range(10))
    stream("one", receiver="lake").run()
    other = stream("other", receiver="lake")
    with pytest.raises(SpanmqError, match="belongs to another checkpoint") as caught:
        other.run()
    assert "spanmq receiver adopt orders lake" in str(caught.value.hint)
    client.admin.receivers.adopt("orders", "lake")
    client.send_batch("orders", range(10, 12))
    assert other.run() == [2]
    assert client.queues.metrics("orders").length == 0


def test_progress_tells_how_many_messages_wait(client: Client, stream: Streams) -> None:
    client.send_batch("orders", range(10))
    client.receive("orders", 3)
    driver = stream(maxOffsetsPerTrigger=4).start()
    assert (driver.step(), driver.step()) == (0, 4)
    report = driver.reader.reportLatestOffset()
    assert report == json.loads(json.dumps(report))
    assert report.pop("oldest_seconds") >= 0
    assert report == {"queue": "orders", "waiting": 10, "visible": 3}
    assert client.queues.metrics("orders").length == 10


def test_released_label_goes_on_under_a_new_checkpoint_with_what_was_held(
    client: Client, stream: Streams
) -> None:
    lake, newer = stream("lost", receiver="lake"), stream("newer", receiver="lake")
    client.send_batch("orders", range(10))
    lake.run()
    client.send_batch("orders", range(10, 20))
    lake.run(kill="claimed", maxOffsetsPerTrigger=5)
    shutil.rmtree(lake.checkpoint)
    with pytest.raises(SpanmqError, match="the receiver lake of queue orders belongs to another checkpoint"):
        newer.run()
    assert client.admin.receivers.release("orders", "lake") == 5
    newer.run()
    assert lake.bodies + newer.bodies == once(range(20))


def test_release_by_hand_while_tasks_run_stops_the_stream_and_loses_nothing(
    client: Client, stream: Streams
) -> None:
    def release(*_: object) -> None:
        assert client.admin.receivers.release("orders", "lake") == 10

    client.send_batch("orders", range(10))
    one, two = stream("one", receiver="lake"), stream("two", receiver="lake")
    driver = one.start()
    assert driver.step() == 0
    # What the tasks have written by then the next stream has, too.
    one.sink = release
    assert driver.step() == 10
    with pytest.raises(ReceiverInUseError, match="was released by hand"):
        driver.step()
    two.run()
    assert two.bodies == once(range(10))
    assert client.queues.metrics("orders").length == 0


def test_queue_full_of_holes_is_read_by_a_statement_for_each_task(
    client: Client, stream: Streams, database: str
) -> None:
    def transactions() -> int:
        with psycopg.connect(database) as connection:
            row = connection.execute(
                "select xact_commit from pg_stat_database where datname = current_database()"
            ).fetchone()
        assert row is not None
        return int(row[0])

    ids = client.send_batch("orders", range(3000))
    client.delete("orders", ids[::2])
    # Other attempts in between, and ids far away.
    again = client.receive("orders", 600)
    client.nack(again[::3], retry_in=0)
    client.ack([message for place, message in enumerate(again) if place % 3])
    do(database, "select setval('pgmq.q_orders_msg_id_seq', 1000000)")
    client.send_batch("orders", range(3000, 3010))
    lake = stream()
    before = transactions()
    assert lake.run(minPartitions=3) == [1110]
    assert transactions() - before < 100
    assert lake.bodies == once(range(1, 1200, 6), range(1201, 3000, 2), range(3000, 3010))
    attempts = {json.loads(row["body"]): row["attempt"] for rows in lake.lake.values() for row in rows}
    assert {body for body, attempt in attempts.items() if attempt == 2} == set(range(1, 1200, 6))


def test_second_driver_takes_over_and_the_first_stops(
    client: Client, stream: Streams, tmp_path: Path
) -> None:
    client.send_batch("orders", range(10))
    one, two = stream("one"), stream("two")
    first = one.start()
    assert (first.step(), first.step()) == (0, 10)
    shutil.copytree(one.checkpoint, two.checkpoint)
    two.run()
    with pytest.raises(
        ReceiverInUseError, match=r"is no longer the receiver.*it was opened by another driver"
    ):
        first.step()
    client.send_batch("orders", range(10, 20))
    two.run()
    assert (one.bodies, two.bodies) == (once(range(10)), once(range(10, 20)))
    assert client.queues.metrics("orders").length == 0


def test_checkpoint_of_another_queue_or_server_is_refused(client: Client, stream: Streams) -> None:
    client.queues.create("others")
    client.send("orders", 1)
    lake = stream()
    lake.run()
    with pytest.raises(PipelineError, match="the checkpoint is of queue orders, the option queue is others"):
        lake.run(queue="others")
    # As after a restore into another server, which has the receiver's row, too.
    newest = lake.logged("offsets")[1]
    text = newest.read_text()
    newest.write_text(text.replace(json.loads(text.splitlines()[-1])["system"], "4711"))
    client.send("orders", 2)
    with pytest.raises(PipelineError, match="the checkpoint of queue orders is of another server: 4711"):
        lake.run()
    newest.write_text(text.replace('"v": 1', '"v": 2'))
    with pytest.raises(PipelineError, match="the checkpoint is of version 2, this release knows 1"):
        lake.run()
    assert client.queues.metrics("orders").visible_length == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"maxOffsetPerTrigger": "1"},
            "no option 'maxoffsetpertrigger'\nhint: Did you mean maxOffsetsPerTrigger?",
        ),
        ({"maxBytesPerTrigger": "1x"}, "the option maxBytesPerTrigger must be a size such as 64m, got '1x'"),
        ({"rowsPerSecond": "1"}, "the option rowsPerSecond is not for a stream"),
        ({"table": "failures"}, "a stream reads the table queue or archive, not failures"),
        ({"columns": "message_id, leased_until"}, "a stream has no column leased_until"),
        ({"startingOffsets": "latest"}, "the option startingOffsets is for the table archive"),
        ({"table": "archive", "receiver": "lake"}, "the option receiver is for streams over a queue"),
    ],
)
def test_bad_option_of_a_stream_is_named(
    client: Client, stream: Streams, options: dict[str, str], text: str
) -> None:
    with pytest.raises(SpanmqError) as caught:
        stream(**options).run()
    assert text in str(caught.value)
    assert client.admin.receivers.list() == []


@pytest.mark.parametrize("loss", ["noted", "purge"])
def test_loss_of_what_a_stream_holds_stops_it_unless_it_may_lose(
    client: Client, stream: Streams, database: str, loss: str
) -> None:
    lake = stream()
    client.send_batch("orders", range(10))
    lake.run()
    client.send_batch("orders", range(10, 20))
    lake.run(kill="logged" if loss == "noted" else "claimed", maxOffsetsPerTrigger=5)
    if loss == "noted":
        do(database, "update spanmq_core.receiver_batch set state = 'lost' where batch = 2")
    else:
        client.queues.purge("orders")
    with pytest.raises(MessagesLostError, match="messages of batch 2 of queue orders are gone"):
        lake.run()
    client.send_batch("orders", range(20, 30))
    lake.run(failOnDataLoss="false")
    left = [range(15, 20)] if loss == "noted" else []
    assert lake.bodies == once(range(10), range(20, 30), *left)


def test_message_that_the_code_cannot_bear_is_rejected(client: Client, stream: Streams) -> None:
    client.send_batch("orders", range(10))
    [poison] = [each.message_id for each in client.peek("orders", 10) if each.body == 3]
    lake = stream(receiver="lake")
    keep = lake.sink

    def bear(query: str, epoch: int, tasks: list[Batches]) -> None:
        if any("3" in batch.column("body").to_pylist() for task in tasks for batch in task):
            raise ValueError("no such customer")
        keep(query, epoch, tasks)

    lake.sink = bear
    for _ in range(2):
        with pytest.raises(ValueError, match="no such customer"):
            lake.run()
    assert client.admin.receivers.reject("orders", "lake", poison, "no such customer") == 1
    lake.run()
    assert lake.bodies == once(range(3), range(4, 10))
    assert [each.message_id for each in client.dead_letters.list("orders")] == [poison]
    assert client.queues.metrics("orders").length == 0


def test_stream_that_is_silent_is_seen_and_a_new_one_beside_it_warns(
    client: Client, stream: Streams, database: str
) -> None:
    client.send_batch("orders", range(10))
    stream("dead", receiver="lake").run(kill="claimed", maxOffsetsPerTrigger=5)
    stream("idle", receiver="idle").run(kill="claimed", maxOffsetsPerTrigger=5)

    def streams() -> Finding:
        return next(each for each in client.health.doctor() if each.check == "streams")

    assert streams().level == "ok"
    do(database, "update spanmq_core.receiver set seen_at = seen_at - interval '2 hours'")
    # A call of one that lives is noted.
    stream("idle", receiver="idle").run()
    assert "lake of orders holds 5 messages and has not called for 02:0" in streams().finding
    assert [each.silent_receivers for each in client.health.now()] == [1]
    assert "idle" not in streams().finding
    stream("labelled", receiver="another").run()
    with pytest.warns(
        UserWarning, match="the receiver lake of queue orders holds 5 messages .* receiver release"
    ):
        stream("new").run()
    assert client.admin.receivers.release("orders", "lake") == 5
    assert streams().level == "ok"
    assert {each.label: each.held for each in client.admin.receivers.list("orders")}["lake"] == 0


def test_idle_stream_asks_at_most_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = [0.0], []

    class Idle(Stream):
        def next(self, start: Offset, quantity: int) -> Offset:
            asked.append((clock[0], quantity))
            return start

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            raise NotImplementedError

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(stream_module, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    reader = Idle(read_options({"dsn": "host=none", "queue": "orders"}), StructType())
    while clock[0] < 11:
        assert reader.latestOffset({"lease": 1}, ReadMaxRows(5)) == {"lease": 1}
    # The first looks, after something came, are closer together.
    assert 10 <= sum(1 <= at < 11 for at, _ in asked) <= 20
    assert len(asked) < 30


def test_senders_that_commit_late_lose_nothing(client: Client, stream: Streams, database: str) -> None:
    lake = stream()
    with psycopg.connect(database) as late, psycopg.connect(database) as never:
        Client(connection=late).send_batch("orders", range(5))
        Client(connection=never).send_batch("orders", [99])
        client.send_batch("orders", range(5, 10))
        lake.run()
        late.commit()
        never.rollback()
    client.send_batch("orders", [10])
    lake.run()
    assert lake.bodies == once(range(11))


@pytest.mark.parametrize("kill", ["logged", "written"])
def test_epoch_is_sent_once_however_a_replay_is_cut(
    client: Client, stream: Streams, load: Load, kill: str
) -> None:
    client.queues.create("copies")
    client.send_batch("orders", range(100), group="a")
    relay = stream(columns="body, group", sink=sink_to(load("copies").source))
    relay.run(kill=kill)
    client.send_batch("orders", range(100, 105), group="a")
    assert relay.run(minPartitions=5) == [100, 5]
    received = client.receive("copies", 1000)
    assert Counter(message.body for message in received) == once(range(105))
    assert {message.group for message in received} == {"a"}


def test_stream_that_sends_what_is_no_json_sends_nothing_of_its_epoch(client: Client, load: Load) -> None:
    broken = pyarrow.RecordBatch.from_pydict({"body": ["{broken"]})
    good = pyarrow.RecordBatch.from_pydict({"body": ["1"]})
    send = sink_to(load().source)
    with pytest.raises(InvalidBodyError):
        send("query", 0, [[good], [broken]])
    assert client.queues.metrics("orders").length == 0


@pytest.mark.parametrize(
    ("options", "overwrite", "text"),
    [
        ({"queue": "oders"}, False, "there is no queue 'oders'\nhint: Did you mean orders?"),
        ({"writterId": "a"}, False, "no option 'writterid'\nhint: Did you mean writerId?"),
        ({"minPartitions": "2"}, False, "the option minPartitions is not for a stream that writes"),
        # Its epochs begin again at 0 with a new checkpoint, which would send nothing under a known id.
        ({"writerId": "load"}, False, "the option writerId is not for a stream that writes"),
        ({}, True, "a queue can't be overwritten"),
    ],
)
def test_bad_option_of_a_stream_that_sends_is_named(
    client: Client, load: Load, options: dict[str, str], overwrite: bool, text: str
) -> None:
    send = sink_to(load(**options).source, overwrite=overwrite)
    with pytest.raises(SpanmqError) as caught:
        send("query", 0, [[pyarrow.RecordBatch.from_pydict({"body": ["1"]})]])
    assert text in str(caught.value)
    assert client.queues.metrics("orders").length == 0


def test_released_stream_settles_what_its_checkpoint_proves(
    client: Client, stream: Streams, database: str, tmp_path: Path
) -> None:
    def release(*arguments: str) -> Any:
        return CliRunner().invoke(
            app, ["receiver", "release", "orders", "lake", *arguments, "--dsn", database]
        )

    lake, others, new = stream("lake", receiver="lake"), stream("others"), stream("new", receiver="lake")
    client.send_batch("orders", range(20))
    client.receive("orders", 10, lease=3600)
    lake.run()
    client.send_batch("orders", range(20, 30))
    # A batch that is done and not settled yet, and one that is claimed only.
    lake.run(kill="committed", maxOffsetsPerTrigger=4)
    lake.run(kill="claimed", maxOffsetsPerTrigger=4)
    client.queues.create("others")
    client.send_batch("others", range(5))
    others.run(queue="others")
    for folder, text in (
        (tmp_path, "is not the checkpoint of a stream"),
        (others.checkpoint, "is the checkpoint of another stream, from others"),
    ):
        refused = release("--checkpoint", str(folder))
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert text in refused.stderr
    done = release("--checkpoint", str(lake.checkpoint), "--json")
    assert json.loads(done.stdout) == {"queue": "orders", "receiver": "lake", "released": 4}
    assert client.queues.metrics("orders").length == 16
    [left] = client.admin.receivers.list("orders")
    assert (left.state, left.held) == ("released", 0)
    # Another checkpoint may have the label now, and gets what is left.
    new.run()
    assert lake.bodies + new.bodies == once(range(10, 30))
