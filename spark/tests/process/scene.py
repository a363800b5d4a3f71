"""What there is before a driver is killed, and what must be true afterwards, of each kind of act."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pyarrow
import pyarrow.compute
import pyarrow.parquet
from lab.bench.history import Recorder, problems
from lab.bench.history.clients import told
from lab.bench.history.recording import recording
from spark.tests.process import driver
from spark.tests.process.driver import GROUPS, HISTORY, NO_SEAM, Act
from spark.tests.process.lakes import file_of
from spark.tests.process.object_store import BUCKET
from spark.tests.process.rabbit import Rabbit, consumed, declare

from spanmq.client import Client
from spanmq.testing import new_database, with_database
from spanmq_spark.jobs.backfill import BackfillReport
from spanmq_spark.jobs.dead_letters import DeadLettersReport
from spanmq_spark.jobs.export import ExportReport
from spanmq_spark.jobs.lake import Lake, lake_at
from spanmq_spark.jobs.lake_table import folder_of
from spanmq_spark.jobs.manifests.store import Manifest, read_manifests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of streams and writes; the jobs have as many where a number is given.
MESSAGES: Final = int(os.environ.get("SPANMQ_TEST_MESSAGES", "3000"))
OF_JOBS: Final = int(os.environ.get("SPANMQ_TEST_MESSAGES", "300"))
# Of one call; and of a batch to a broker, half of which a kill doubles.
CALL: Final = 100_000
BATCH: Final = 20_000
# Of what is sent: so many epochs has a stream that sends it.
FILES: Final = 4
# A checkpoint's: what an epoch has, and that it was written.
LOGS: Final = ("offsets", "commits")
BODY: Final = "jsonb_build_object('order', id, 'pad', md5(id::text))"
CHECKSUM: Final = "coalesce(sum(('x' || substr(md5(message::text), 1, 15))::bit(60)::bigint), 0)"


@dataclass(frozen=True)
class Scene:
    """An act on a queue of a database of its own, and a client that looks on.

    Runs that were killed have done `done` messages, and a broker has `doubled` from them that come again.
    """

    act: Act
    client: Client
    held: list[Any]
    done: int = 0
    doubled: int = 0

    def ask(self, expression: str, table: str = "pgmq.q_orders") -> Any:
        with psycopg.connect(self.act.dsn, autocommit=True) as connection:
            row = connection.execute(f"select {expression} from {table}".encode()).fetchone()
        assert row is not None
        return row[0]


@contextmanager
def prepared(what: str, seam: str, server: str, template: str, folder: Path) -> Iterator[Scene]:
    folder.mkdir()
    with new_database(server, template=template) as name:
        act = Act(what, with_database(server, name), folder, seam)
        with Client(act.dsn) as client:
            client.queues.create("orders")
            yield PREPARATIONS[what](Scene(act, client, []))


def checksum(bodies: list[str]) -> int:
    """Add up what the MD5 sums of the bodies begin with, as PostgreSQL does above."""
    return sum(int(hashlib.md5(text.encode()).hexdigest()[:15], 16) for text in bodies)


def fill(scene: Scene, quantity: int) -> None:
    """Send messages of ids 1 to `quantity`."""
    with Recorder(scene.act.folder / HISTORY, "sender") as recorder:
        for first, last in calls(quantity):
            ids = f"generate_series({first}, {last}) id"
            with recorder.call("send", groups=[None] * (last - first + 1)) as sending:
                bodies = f"(select array_agg({BODY} order by id) from {ids})"
                scene.ask("count(*)", f"pgmq.send_batch('orders', {bodies})")
                sending.got = list(range(first, last + 1))


def assert_true(scene: Scene, recorded: set[str], exported: list[int] | None = None) -> None:
    """Check what the clients have recorded, these verbs among it; `exported` are the ids of a lake's rows."""
    folder = scene.act.folder / HISTORY
    with psycopg.connect(scene.act.dsn, autocommit=True) as connection:
        history = told(folder, connection, "orders", exported)
    assert problems(history) == []
    assert {call.verb for call in history} >= recorded


def calls(quantity: int) -> list[tuple[int, int]]:
    """Cut ids from 1 on into what one call does."""
    return [(first, min(first + CALL - 1, quantity)) for first in range(1, quantity + 1, CALL)]


def sent(scene: Scene, quantity: int) -> int:
    """Return the checksum of what `fill` sent."""
    bodies = f"select {BODY} from generate_series(1, {quantity}) id"
    return int(scene.ask(CHECKSUM, f"({bodies}) as sent (message)"))


def prepare_stream(scene: Scene) -> Scene:
    """Send many messages; a worker has some of them meanwhile, and gives them back later."""
    fill(scene, MESSAGES)
    with recording(scene.act.folder / HISTORY, "holder", "orders"):
        held = scene.client.receive("orders", 100, lease=3600)
    return replace(scene, held=held, act=replace(scene.act, batch=MESSAGES // 4))


def audit_stream(spark: SparkSession, scene: Scene) -> None:
    """Drain the rest: each message must be there once, as it was sent."""
    with recording(scene.act.folder / HISTORY, "holder", "orders"):
        scene.client.release(scene.held)
    driver.stream(spark, replace(scene.act, seam=NO_SEAM))
    assert scene.client.queues.metrics("orders").length == 0
    assert [each.held for each in scene.client.admin.receivers.list("orders")] == [0]
    found = pyarrow.parquet.read_table(scene.act.folder / "lake", columns=["message_id", "body"])
    assert_once(found, scene, MESSAGES)
    assert_true(scene, {"send", "receive", "free", "claim", "confirm"})


def assert_once(found: pyarrow.Table, scene: Scene, quantity: int) -> None:
    """Check that each message that `fill` sent is there once, as it was sent."""
    assert found.num_rows == quantity
    assert pyarrow.compute.count_distinct(found.column("message_id")).as_py() == quantity
    assert checksum(found.column("body").to_pylist()) == sent(scene, quantity)


def prepare_send(scene: Scene) -> Scene:
    folder = scene.act.folder / "bodies"
    folder.mkdir()
    for part in range(FILES):
        table = pyarrow.table({"body": orders()[part::FILES]})
        pyarrow.parquet.write_table(table, folder / f"{part}.parquet")
    return scene


def prepare_replay(scene: Scene) -> Scene:
    """Archive the same, in groups, in another queue."""
    scene.client.queues.create("past")
    for first, last in calls(MESSAGES):
        groups = [str(i % GROUPS) for i in range(first - 1, last)]
        ids = scene.client.send_batch("past", [{"order": i} for i in range(first - 1, last)], group=groups)
        scene.client.archive("past", ids)
    return scene


def orders() -> list[str]:
    return [f'{{"order": {i}}}' for i in range(MESSAGES)]


def audit_send(spark: SparkSession, scene: Scene) -> None:
    """Send again, and again: all of it must have become visible at once, and once."""
    assert scene.client.queues.metrics("orders").length == (MESSAGES if scene.act.seam == "published" else 0)
    for _ in range(2):
        driver.send(spark, replace(scene.act, seam=NO_SEAM))
    assert_sent(scene)


def assert_sent(scene: Scene) -> None:
    """Check that all of it is in the queue, each once, and that nothing is left of what was given up."""
    assert scene.ask("(count(*), count(distinct message))::text") == f"({MESSAGES},{MESSAGES})"
    assert scene.ask(CHECKSUM) == checksum(orders())
    assert scene.ask("count(*)", "spanmq_core.bulk_block") == 0


def audit_backfill(spark: SparkSession, scene: Scene) -> None:
    """Fill again, and again: a job that was done sends nothing, and groups have their order."""
    is_done = scene.act.seam == "published"
    assert scene.client.queues.metrics("orders").length == (MESSAGES if is_done else 0)
    for sent in (0 if is_done else MESSAGES, 0):
        report = driver.ACTS[scene.act.what](spark, replace(scene.act, seam=NO_SEAM))
        assert isinstance(report, BackfillReport)
        assert (report.found, report.sent) == (MESSAGES, sent)
    assert_sent(scene)
    placed = "select (message->>'order')::int n, row_number() over (order by msg_id) i from pgmq.q_orders"
    later = f"select n, lag(n) over (partition by n % {GROUPS} order by i) before from ({placed}) placed"
    assert scene.ask("count(*) filter (where n < before)", f"({later}) later") == 0


def audit_relay(spark: SparkSession, scene: Scene) -> None:
    """Let the stream send the rest, and start it again: each epoch must have become visible once."""
    assert_relayed(scene)
    for _ in range(2):
        driver.relay(spark, replace(scene.act, seam=NO_SEAM))
    assert_sent(scene)


def assert_relayed(scene: Scene) -> None:
    """Check that whole epochs are there, and that Spark knows of those before the one that was killed."""
    epochs, act = scene.act.after, scene.act
    there = epochs + 1 if act.seam == "published" else epochs
    assert scene.client.queues.metrics("orders").length == there * MESSAGES // FILES
    logged = [sorted(each.name for each in (act.folder / "checkpoint" / log).glob("[0-9]*")) for log in LOGS]
    numbers = [str(epoch) for epoch in range(epochs + 1)]
    assert logged == [numbers, numbers[:-1]]


def prepare_export(scene: Scene) -> Scene:
    fill(scene, OF_JOBS)
    with Recorder(scene.act.folder / HISTORY, "archiver") as recorder:
        for first, last in calls(OF_JOBS):
            ids = list(range(first, last + 1))
            with recorder.call("settle", ids=ids, into="archived") as settling:
                settling.got = ids
                chosen = f"(select array_agg(id) from generate_series({first}, {last}) id)"
                assert scene.ask("count(*)", f"pgmq.archive('orders', {chosen})") == len(ids)
    return scene


def audit_export(spark: SparkSession, scene: Scene) -> None:
    """Export again: what was not committed counts for nothing, and what was comes no second time."""
    import deltalake

    lake = lake_at(driver.lake_of(scene.act))
    assert len(exports(lake)) == (1 if scene.act.seam == "named" else 0)
    done = driver.ACTS[scene.act.what](spark, replace(scene.act, seam=NO_SEAM))
    assert isinstance(done, ExportReport)
    assert done.exported == (0 if scene.act.seam in ("committed", "named") else OF_JOBS)
    columns = ["message_id", "body"]
    [manifest] = exports(lake)
    if manifest.format == "delta":
        table = deltalake.DeltaTable(f"{lake.uri}/archive")
        assert_once(table.to_pyarrow_table(columns=columns), scene, OF_JOBS)
    files = [file_of(lake, name, columns) for name in manifest.files]
    found = pyarrow.concat_tables(files)
    assert_once(found, scene, OF_JOBS)
    assert set(lake.sizes(folder_of("archive", "orders"))) == set(manifest.files)
    # Retention may delete just that.
    exported = scene.ask("ids::text", "spanmq_core.archive_export_ids")
    assert exported == f"{{[1,{OF_JOBS + 1})}}"
    assert_true(scene, {"send", "settle", "export"}, found.column("message_id").to_pylist())


def exports(lake: Lake) -> list[Manifest]:
    """Return the manifests that name files: a killed run's number is taken by one that names none."""
    return [each for each in read_manifests(lake, "orders") if each.files]


def prepare_export_store(scene: Scene) -> Scene:
    """Do the same for a lake in an object store."""
    url = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    return prepare_export(replace(scene, act=replace(scene.act, url=url)))


def prepare_migrate(scene: Scene) -> Scene:
    for first, last in calls(OF_JOBS):
        ids = range(first - 1, last)
        scene.client.send_batch("orders", ids, group=[f"g{i % GROUPS}" for i in ids])
    batch = min(OF_JOBS // 3, BATCH // 2)
    return killed_in_migration(replace(scene, act=replace(scene.act, batch=batch)))


def killed_in_migration(scene: Scene) -> Scene:
    """Return the scene after one more kill: all before its batch is done, and of this some comes again."""
    batch = scene.act.batch
    doubled = {"half confirmed": batch // 2, "all confirmed": batch}.get(scene.act.seam, 0)
    return replace(scene, done=scene.act.after // batch * batch, doubled=scene.doubled + doubled)


def to_broker(scene: Scene, rabbit: Rabbit) -> Scene:
    """Return the scene a queue in RabbitMQ to migrate to."""
    target = declare(rabbit.url, f"killed-{uuid.uuid4().hex[:8]}")
    return replace(scene, act=replace(scene.act, url=rabbit.url, target=target))


def audit_migrate(spark: SparkSession, scene: Scene) -> None:
    """Migrate the rest: nothing is lost, and what comes twice has the same mark."""
    left, batch = OF_JOBS - scene.done - scene.act.batch, scene.act.batch
    # The next batch may be claimed while tasks read one.
    assert scene.client.queues.metrics("orders").visible_length in {left, max(left - batch, 0)}
    done = driver.migrate(spark, replace(scene.act, seam=NO_SEAM))
    assert (done.sent, done.left) == (OF_JOBS - scene.done, 0)
    times: Counter[int] = Counter()
    for mark, body, _ in consumed(scene.act.url, scene.act.target):
        assert mark == f"orders:{body + 1}"
        times[body] += 1
    assert len(times) == OF_JOBS
    assert Counter(times.values()) == +Counter({1: OF_JOBS - scene.doubled, 2: scene.doubled})


def prepare_redrive(scene: Scene) -> Scene:
    """Let two of three messages die."""
    for first, last in calls(OF_JOBS):
        scene.client.send_batch("orders", range(first - 1, last))
    left = deaths()
    while left:
        taken = scene.client.receive("orders", min(left, 10_000))
        left -= len(scene.client.reject(taken, "bad"))
    # Of one transaction, as the job has them, or a fifth of the few; killed in the second one.
    batch = min(1_000, deaths() // 5)
    return killed_in_letters(replace(scene, act=replace(scene.act, batch=batch, after=batch)))


def killed_in_letters(scene: Scene) -> Scene:
    """Return the scene after one more kill: whole transactions are done."""
    batch, after = scene.act.batch, scene.act.after
    times = {"begun": -(-after // batch), "done": after // batch + 1}.get(scene.act.seam, 0)
    return replace(scene, done=scene.done + times * batch)


def deaths() -> int:
    return OF_JOBS * 2 // 3


def audit_letters(spark: SparkSession, scene: Scene) -> None:
    """Act on the rest: each once."""
    is_redrive = scene.act.what == "redrive"
    assert_acted(scene)
    done = driver.ACTS[scene.act.what](spark, replace(scene.act, seam=NO_SEAM))
    assert isinstance(done, DeadLettersReport)
    left = deaths() - scene.done
    assert (done.chosen, done.done) == (left, left)
    assert_acted(replace(scene, done=deaths()))
    # A message lies in the queue once, or not at all any more.
    others = range(deaths(), OF_JOBS)
    repaired = [n + driver.REPAIRED for n in range(deaths())] if is_redrive else []
    bodies = [*others, *repaired]
    found = "(count(*), count(distinct message), sum((message)::bigint))::text"
    assert scene.ask(found) == f"({len(bodies)},{len(bodies)},{sum(bodies)})"


def assert_acted(scene: Scene) -> None:
    """Check that so many dead letters are put back, or deleted, and that the others wait."""
    put_back = scene.done if scene.act.what == "redrive" else 0
    found = "(count(*) filter (where redriven_at is null), count(redriven_at))::text"
    assert (
        scene.ask(found, f"spanmq.dead_letters_between('orders', 1, {2**62})")
        == f"({deaths() - scene.done},{put_back})"
    )


PREPARATIONS: Final[dict[str, Callable[[Scene], Scene]]] = {
    "stream": prepare_stream,
    "send": prepare_send,
    "relay": prepare_send,
    "backfill": prepare_send,
    "replay": prepare_replay,
    "export": prepare_export,
    "export_parquet": prepare_export,
    "export_store": prepare_export_store,
    "export_store_parquet": prepare_export_store,
    "migrate": prepare_migrate,
    "redrive": prepare_redrive,
    "discard": prepare_redrive,
}
AUDITS: Final[dict[str, Callable[[SparkSession, Scene], None]]] = {
    "stream": audit_stream,
    "send": audit_send,
    "relay": audit_relay,
    "backfill": audit_backfill,
    "replay": audit_backfill,
    "export": audit_export,
    "export_parquet": audit_export,
    "export_store": audit_export,
    "export_store_parquet": audit_export,
    "migrate": audit_migrate,
    "redrive": audit_letters,
    "discard": audit_letters,
}
