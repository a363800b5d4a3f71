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
from tests.spark import driver
from tests.spark.driver import NO_SEAM, Act
from tests.spark.rabbit import Rabbit, consumed, declare

from spanmq.client import Client
from spanmq.spark.jobs.manifest import read_manifests
from spanmq.testing import new_database, with_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of streams and writes; the jobs have as many where a number is given.
MESSAGES: Final = int(os.environ.get("SPANMQ_TEST_MESSAGES", "3000"))
OF_JOBS: Final = int(os.environ.get("SPANMQ_TEST_MESSAGES", "300"))
# Of one call; and of a batch to a broker, which a task holds in memory.
CALL: Final = 100_000
BATCH: Final = 20_000
GROUPS: Final = 5
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


def fill(scene: Scene, quantity: int) -> None:
    """Send messages of ids 1 to `quantity`."""
    for first, last in calls(quantity):
        ids = f"generate_series({first}, {last}) id"
        scene.ask("count(*)", f"pgmq.send_batch('orders', (select array_agg({BODY} order by id) from {ids}))")


def calls(quantity: int) -> list[tuple[int, int]]:
    """Cut ids from 1 on into what one call does."""
    return [(first, min(first + CALL - 1, quantity)) for first in range(1, quantity + 1, CALL)]


def sent(scene: Scene, quantity: int) -> int:
    """Give the checksum of what `fill` sent."""
    bodies = f"select {BODY} from generate_series(1, {quantity}) id"
    return int(scene.ask(CHECKSUM, f"({bodies}) as sent (message)"))


def prepare_stream(scene: Scene) -> Scene:
    """Send many messages; a worker has some of them meanwhile, and gives them back later."""
    fill(scene, MESSAGES)
    held = scene.client.receive("orders", 100, lease=3600)
    return replace(scene, held=held, act=replace(scene.act, batch=MESSAGES // 4))


def audit_stream(spark: SparkSession, scene: Scene) -> None:
    """Drain the rest: each message must be there once, as it was sent."""
    scene.client.release(scene.held)
    driver.stream(spark, replace(scene.act, seam=NO_SEAM))
    assert scene.client.metrics("orders").length == 0
    assert [each.held for each in scene.client.list_receivers("orders")] == [0]
    found = pyarrow.parquet.read_table(scene.act.folder / "lake", columns=["message_id", "body"])
    assert_once(found, scene, MESSAGES)


def assert_once(found: pyarrow.Table, scene: Scene, quantity: int) -> None:
    """Check that each message that `fill` sent is there once, as it was sent."""
    assert found.num_rows == quantity
    assert pyarrow.compute.count_distinct(found.column("message_id")).as_py() == quantity
    assert checksum(found.column("body").to_pylist()) == sent(scene, quantity)


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
    """Send messages, and archive all."""
    fill(scene, OF_JOBS)
    for first, last in calls(OF_JOBS):
        ids = f"(select array_agg(id) from generate_series({first}, {last}) id)"
        assert scene.ask("count(*)", f"pgmq.archive('orders', {ids})") == last - first + 1
    return scene


def audit_export(spark: SparkSession, scene: Scene) -> None:
    """Export again: what was not committed counts for nothing, and what was comes no second time."""
    import deltalake

    lake = scene.act.folder / "lake"
    assert read_manifests(lake, "orders") == []
    done = driver.export(spark, replace(scene.act, seam=NO_SEAM))
    assert done.exported == (0 if scene.act.seam == "committed" else OF_JOBS)
    table = deltalake.DeltaTable(str(lake / "archive"))
    assert_once(table.to_pyarrow_table(columns=["message_id", "body"]), scene, OF_JOBS)
    [manifest] = read_manifests(lake, "orders")
    assert {str(path.relative_to(lake)) for path in lake.rglob("*.parquet")} == set(manifest.files)


def prepare_migrate(scene: Scene) -> Scene:
    """Send messages in five groups."""
    scene.client.send_batch("orders", range(OF_JOBS), group=[f"g{i % GROUPS}" for i in range(OF_JOBS)])
    return replace(scene, act=replace(scene.act, batch=min(OF_JOBS // 3, BATCH)))


def to_broker(scene: Scene, rabbit: Rabbit) -> Scene:
    """Give the scene a queue in RabbitMQ to migrate to."""
    target = declare(rabbit.url, f"killed-{uuid.uuid4().hex[:8]}")
    return replace(scene, act=replace(scene.act, url=rabbit.url, target=target))


def audit_migrate(spark: SparkSession, scene: Scene) -> None:
    """Migrate the rest: nothing is lost, and what comes twice has the same mark."""
    batch = scene.act.batch
    assert scene.client.metrics("orders").visible_length == OF_JOBS - batch
    done = driver.migrate(spark, replace(scene.act, seam=NO_SEAM))
    assert (done.sent, done.left) == (OF_JOBS, 0)
    times: Counter[int] = Counter()
    for mark, body, _ in consumed(scene.act.url, scene.act.target):
        assert mark == f"orders:{body + 1}"
        times[body] += 1
    assert len(times) == OF_JOBS
    doubled = [body for body, n in times.items() if n > 1]
    assert all(body < batch for body in doubled)
    assert max(times.values()) <= 2
    expected = {"publishing": 0, "half confirmed": batch // 2, "all confirmed": batch}
    assert len(doubled) == expected[scene.act.seam]


def prepare_redrive(scene: Scene) -> Scene:
    """Let two of three messages die."""
    scene.client.send_batch("orders", range(OF_JOBS))
    left = deaths()
    while left:
        taken = scene.client.receive("orders", min(left, 10_000))
        left -= len(scene.client.reject(taken, "bad"))
    # Of one transaction, as the job has them, or a fifth of the few.
    return replace(scene, act=replace(scene.act, batch=min(1_000, deaths() // 5)))


def deaths() -> int:
    """Give how many messages die in this scene."""
    return OF_JOBS * 2 // 3


def audit_redrive(spark: SparkSession, scene: Scene) -> None:
    """Put back the rest: each once."""
    redriven = "spanmq.dead_letter where redriven_at is not null"
    assert scene.ask("count(*)", redriven) == 2 * scene.act.batch
    done = driver.redrive(spark, replace(scene.act, seam=NO_SEAM))
    left = deaths() - 2 * scene.act.batch
    assert (done.chosen, done.done) == (left, left)
    assert (
        scene.ask("(count(*), count(distinct msg_id), max(msg_id))::text", redriven)
        == f"({deaths()},{deaths()},{deaths()})"
    )
    assert scene.client.metrics("orders").length == OF_JOBS


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
