"""Drivers killed with SIGKILL at named seams; what arrived is audited by Arrow and SQL, not by Spark.

A driver takes long to start, so two seams of a stream and one of a write are hit here. `make soak-spark`
takes all of them, several times, with two million messages.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
import pyarrow
import pyarrow.compute
import pyarrow.parquet
import pytest
from tests.spark import driver
from tests.spark.driver import HIT, SEND_SEAMS, STREAM_SEAMS

from spanmq.client import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES: Final = int(os.environ.get("SPANMQ_TEST_MESSAGES", "3000"))
IS_SOAK: Final = "SPANMQ_TEST_KILLS" in os.environ
KILLS: Final = int(os.environ.get("SPANMQ_TEST_KILLS", "1"))
BATCH: Final = MESSAGES // 4
# Until a driver has come to its seam: mostly the start of Spark, and all batches where the seam is the last.
SECONDS: Final = 300 + MESSAGES / 2_000


def kill_at(seam: str, what: str, dsn: str, folder: Path) -> None:
    """Run a driver to its seam, and kill it there with all its processes."""
    (folder / HIT).unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.spark.driver", what, dsn, str(folder), seam, str(BATCH)]
    log = folder / "driver.log"
    with log.open("w") as said:
        process = subprocess.Popen(command, start_new_session=True, stdout=said, stderr=said)
    try:
        deadline = time.monotonic() + SECONDS
        while not (folder / HIT).exists():
            assert process.poll() is None, f"{seam} was not hit: {log.read_text()}"
            assert time.monotonic() < deadline, seam
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def fill(dsn: str, n: int) -> None:
    """Send so many messages, in calls of a hundred thousand."""
    body = "jsonb_build_object('order', id, 'pad', md5(id::text))"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for first in range(1, n + 1, 100_000):
            connection.execute(
                f"select count(*) from pgmq.send_batch('orders', (select array_agg({body} order by id)"
                f" from generate_series({first}, {min(first + 99_999, n)}) id))".encode()
            )


def checksum(bodies: pyarrow.ChunkedArray) -> int:
    """Add up what the MD5 sums of the bodies begin with, as PostgreSQL does below."""
    return sum(int(hashlib.md5(text.encode()).hexdigest()[:15], 16) for text in bodies.to_pylist())


CHECKSUM: Final = "coalesce(sum(('x' || substr(md5(message::text), 1, 15))::bit(60)::bigint), 0)"


@pytest.mark.slow
@pytest.mark.timeout(120 + 2 * SECONDS * len(STREAM_SEAMS) * KILLS)
def test_stream_killed_at_its_seams_delivers_each_message_once(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    fill(database, MESSAGES)
    with psycopg.connect(database, autocommit=True) as connection:
        sent = connection.execute(f"select {CHECKSUM} from pgmq.q_orders".encode()).fetchone()
    # A worker has some of them meanwhile, and gives them back later.
    leased = client.receive("orders", 100, lease=3600)
    for seam in STREAM_SEAMS[:-1] * KILLS if IS_SOAK else ("reading", "written"):
        kill_at(seam, "stream", database, tmp_path)
    if IS_SOAK:
        for _ in range(KILLS):
            kill_at("settled", "stream", database, tmp_path)
        assert client.metrics("orders").length == 100
    client.release(leased)
    driver.stream(spark, database, tmp_path, batch=BATCH)
    assert client.metrics("orders").length == 0
    assert [each.held for each in client.list_receivers("orders")] == [0]
    found = pyarrow.parquet.read_table(tmp_path / "lake", columns=["message_id", "body"])
    assert found.num_rows == MESSAGES
    assert pyarrow.compute.count_distinct(found.column("message_id")).as_py() == MESSAGES
    assert (checksum(found.column("body")),) == sent


@pytest.mark.slow
@pytest.mark.timeout(120 + 2 * SECONDS * len(SEND_SEAMS) * KILLS)
def test_send_killed_at_its_seams_is_seen_as_a_whole_and_once(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    bodies = [f'{{"order": {i}}}' for i in range(MESSAGES)]
    (tmp_path / "bodies").mkdir()
    for part in range(2):
        table = pyarrow.table({"body": bodies[part::2]})
        pyarrow.parquet.write_table(table, tmp_path / "bodies" / f"{part}.parquet")
    for seam in SEND_SEAMS[:-1] * KILLS if IS_SOAK else ("copied",):
        kill_at(seam, "send", database, tmp_path)
        assert client.metrics("orders").length == 0
    if IS_SOAK:
        kill_at("published", "send", database, tmp_path)
        assert client.metrics("orders").length == MESSAGES
    # The second has nothing to do.
    for _ in range(2):
        driver.send(spark, database, tmp_path)
    with psycopg.connect(database, autocommit=True) as connection:
        found = connection.execute(
            f"select count(*), count(distinct message), {CHECKSUM} from pgmq.q_orders".encode()
        ).fetchone()
        blocks = connection.execute("select count(*) from spanmq.bulk_block").fetchone()
    assert found == (MESSAGES, MESSAGES, checksum(pyarrow.chunked_array([bodies])))
    assert blocks == (0,)
