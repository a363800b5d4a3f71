"""A second attempt of a task that Spark itself starts beside the first: each message is sent once.

On a real cluster of two hosts, for Spark speculates nowhere else; five JVMs, so only in `make soak-spark`.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from spark.tests.process.cluster import HOSTS, Cluster
from spark.tests.process.speculation import FIRST, PARTITIONS, ROWS, SEAMS, SECOND, WRITES, main

from spanmq.client import Client
from spanmq.testing import new_database, with_database

SECONDS = 600
EACH = "select count(*), count(distinct message->>'id'), sum((message->>'id')::int) from pgmq.q_{}"


@pytest.fixture(scope="module")
def speculated(
    spanmq_server: str, spanmq_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """Return the database and the folder that a driver leaves that sent with each seam."""
    folder = tmp_path_factory.mktemp("speculation")
    with new_database(spanmq_server, template=spanmq_template) as name, Cluster(folder) as cluster:
        dsn = with_database(spanmq_server, name)
        with Client(dsn) as client:
            for what in WRITES:
                for seam in SEAMS:
                    client.queues.create(f"{what}_{seam}")
            for seam in SEAMS:
                client.queues.create(f"to_stream_{seam}")
                client.send_batch(f"to_stream_{seam}", [{"id": i} for i in range(ROWS)])
        log = folder / "driver.log"
        with log.open("w") as said:
            command = [sys.executable, "-m", main.__module__, cluster.url, dsn, str(folder)]
            done = subprocess.run(command, stdout=said, stderr=said, timeout=SECONDS, check=False)
        assert done.returncode == 0, log.read_text()
        yield dsn, folder


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("what", WRITES)
@pytest.mark.parametrize("seam", SEAMS)
def test_two_attempts_at_once_send_each_message_once(
    speculated: tuple[str, Path], what: str, seam: str
) -> None:
    dsn, folder = speculated
    queue = f"{what}_{seam}"
    said = {each.name: each.read_text() for each in (folder / queue).iterdir() if each.is_file()}
    assert {said[f"{FIRST} began"], said[f"{SECOND} began"]} == set(HOSTS)
    # The first one ended after all was published: what it had copied stays unseen, and it copies no more.
    rows = str(ROWS // PARTITIONS)
    assert (said[f"{SECOND} ended"], said[f"{FIRST} ended"]) == (rows, rows if seam == "copied" else "0")
    with psycopg.connect(dsn) as connection:
        found = connection.execute(EACH.format(queue).encode()).fetchone()
        assert found == (ROWS, ROWS, ROWS * (ROWS - 1) // 2)
        if what == "stream":
            left = connection.execute("select queue_length from pgmq.metrics(%s)", [f"to_{queue}"]).fetchone()
            assert left == (0,)
