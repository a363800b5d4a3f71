"""What there is before a driver is killed, and what must be true afterwards, of each kind of act."""

from __future__ import annotations

import hashlib
import json
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
from tests.spark import driver
from tests.spark.driver import NO_SEAM, Act
from tests.spark.rabbit import Rabbit, declare, drained

from spanmq.client import Client
from spanmq.spark.jobs.manifest import read_manifests
from spanmq.testing import new_database, with_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of streams and writes; the jobs have a few.
MESSAGES: Final = int(os.environ.get("SPANMQ_TEST_MESSAGES", "3000"))
BODY: Final = "jsonb_build_object('order', id, 'pad', md5(id::text))"
CHECKSUM: Final = "coalesce(sum(('x' || substr(md5(message::text), 1, 15))::bit(60)::bigint), 0)"


@dataclass(frozen=True)
class Scene:
    """An act on a queue of a database of its own, and a client that looks on."""

    act: Act
    client: Client
    held: list[Any]

    def ask(self, expression: str, table: str = "pgmq.q_orders") -> Any:
        """Ask the database."""
        with psycopg.connect(self.act.dsn, autocommit=True) as connection:
            row = connection.execute(f"select {expression} from {table}".encode()).fetchone()
        assert row is not None
        return row[0]


@contextmanager
def prepared(what: str, seam: str, server: str, template: str, folder: Path) -> Iterator[Scene]:
    """Make the scene of an act."""
    folder.mkdir()
    with new_database(server, template=template) as name:
        act = Act(what, with_database(server, name), folder, seam)
        with Client(act.dsn, maintain_interval=None) as client:
            client.create_queue("orders")
            yield PREPARATIONS[what](Scene(act, client, []))


def checksum(bodies: list[str]) -> int:
    """Add up what the MD5 sums of the bodies begin with, as PostgreSQL does above."""
    return sum(int(hashlib.md5(text.encode()).hexdigest()[:15], 16) for text in bodies)


def prepare_stream(scene: Scene) -> Scene:
    """Send many messages; a worker has some of them meanwhile, and gives them back later."""
    for first in range(1, MESSAGES + 1, 100_000):
        ids = f"generate_series({first}, {min(first + 99_999, MESSAGES)}) id"
        scene.ask("count(*)", f"pgmq.send_batch('orders', (select array_agg({BODY} order by id) from {ids}))")
    held = scene.client.receive("orders", 100, lease=3600)
    return replace(scene, held=held, act=replace(scene.act, batch=MESSAGES // 4))


def audit_stream(spark: SparkSession, scene: Scene) -> None:
    """Drain the rest: each message must be there once, as it was sent."""
    scene.client.release(scene.held)
    driver.stream(spark, replace(scene.act, seam=NO_SEAM))
    assert scene.client.metrics("orders").length == 0
    assert [each.held for each in scene.client.list_receivers("orders")] == [0]
    found = pyarrow.parquet.read_table(scene.act.folder / "lake", columns=["message_id", "body"])
    assert found.num_rows == MESSAGES
    assert pyarrow.compute.count_distinct(found.column("message_id")).as_py() == MESSAGES
    bodies = (
        f"jsonb_build_object('order', id, 'pad', md5(id::text)) from generate_series(1, {MESSAGES}) id",
    )
    sent = scene.ask(CHECKSUM, f"(select {bodies[0]}) as sent (message)")
    assert checksum(found.column("body").to_pylist()) == sent


def prepare_send(scene: Scene) -> Scene:
    """Write two files with what is to be sent."""
    folder = scene.act.folder / "bodies"
    folder.mkdir()
    for part in range(2):
        table = pyarrow.table({"body": orders()[part::2]})
        pyarrow.parquet.write_table(table, folder / f"{part}.parquet")
    return scene


def orders() -> list[str]:
    """Give the bodies that are sent."""
    return [f'{{"order": {i}}}' for i in range(MESSAGES)]


def audit_send(spark: SparkSession, scene: Scene) -> None:
    """Send again, and again: all of it must have become visible at once, and once."""
    assert scene.client.metrics("orders").length == (MESSAGES if scene.act.seam == "published" else 0)
    for _ in range(2):
        driver.send(spark, replace(scene.act, seam=NO_SEAM))
    assert scene.ask("(count(*), count(distinct message))::text") == f"({MESSAGES},{MESSAGES})"
    assert scene.ask(CHECKSUM) == checksum(orders())
    assert scene.ask("count(*)", "spanmq.bulk_block") == 0


def prepare_export(scene: Scene) -> Scene:
    """Archive forty messages."""
    ids = scene.client.send_batch("orders", range(40))
    scene.client.archive("orders", ids)
    return scene


def audit_export(spark: SparkSession, scene: Scene) -> None:
    """Export again: what was not committed counts for nothing, and what was comes no second time."""
    import deltalake

    lake = scene.act.folder / "lake"
    assert read_manifests(lake, "orders") == []
    done = driver.export(spark, replace(scene.act, seam=NO_SEAM))
    assert done.exported == (0 if scene.act.seam == "committed" else 40)
    rows = deltalake.DeltaTable(str(lake / "archive")).to_pyarrow_table().to_pylist()
    assert sorted(json.loads(row["body"]) for row in rows) == list(range(40))
    [manifest] = read_manifests(lake, "orders")
    assert {str(path.relative_to(lake)) for path in lake.rglob("*.parquet")} == set(manifest.files)


def prepare_migrate(scene: Scene) -> Scene:
    """Send three hundred messages in five groups."""
    scene.client.send_batch("orders", range(300), group=[f"g{i % 5}" for i in range(300)])
    return scene


def to_broker(scene: Scene, rabbit: Rabbit) -> Scene:
    """Give the scene a queue in RabbitMQ to migrate to."""
    target = declare(rabbit.url, f"killed-{uuid.uuid4().hex[:8]}")
    return replace(scene, act=replace(scene.act, url=rabbit.url, target=target))


def audit_migrate(spark: SparkSession, scene: Scene) -> None:
    """Migrate the rest: nothing is lost, and what comes twice has the same mark."""
    assert scene.client.metrics("orders").visible_length == 200
    done = driver.migrate(spark, replace(scene.act, seam=NO_SEAM))
    assert (done.sent, done.left) == (300, 0)
    found = drained(scene.act.url, scene.act.target)
    marks = {mark: body for mark, body, _ in found}
    assert marks == {f"orders:{i + 1}": i for i in range(300)}
    assert all(marks[mark] == body for mark, body, _ in found)
    expected = {"publishing": 0, "half confirmed": 50, "all confirmed": 100}
    assert len(found) - len(marks) == expected[scene.act.seam]
    doubled = {mark for mark, n in Counter(mark for mark, _, _ in found).items() if n > 1}
    assert doubled <= {f"orders:{i + 1}" for i in range(100)}


def prepare_redrive(scene: Scene) -> Scene:
    """Let twenty of thirty messages die."""
    scene.client.send_batch("orders", range(30))
    scene.client.reject(scene.client.receive("orders", 20), "bad")
    return scene


def audit_redrive(spark: SparkSession, scene: Scene) -> None:
    """Put back the rest: each once."""
    assert len(scene.client.dead_letters("orders")) == 12
    done = driver.redrive(spark, replace(scene.act, seam=NO_SEAM))
    assert (done.chosen, done.done) == (12, 12)
    back = scene.client.dead_letters("orders", redriven=True)
    assert sorted(each.message_id for each in back) == list(range(1, 21))
    assert scene.client.metrics("orders").length == 30


PREPARATIONS: Final[dict[str, Callable[[Scene], Scene]]] = {
    "stream": prepare_stream,
    "send": prepare_send,
    "export": prepare_export,
    "migrate": prepare_migrate,
    "redrive": prepare_redrive,
}
AUDITS: Final[dict[str, Callable[[SparkSession, Scene], None]]] = {
    "stream": audit_stream,
    "send": audit_send,
    "export": audit_export,
    "migrate": audit_migrate,
    "redrive": audit_redrive,
}
