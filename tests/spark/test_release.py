"""A stream released by the command line: what its checkpoint proves is settled first."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.conftest import Batch
from tests.spark.test_stream import lake, last_commit, once, run
from tests.spark.test_stream_faults import claim
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def release(database: str, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["release-receiver", "orders", "lake", *arguments, "--dsn", database])


def log_next_batch(folder: Path) -> None:
    """Write what Spark logs of the next batch, when it is done, and before the next call settles it."""
    commit = last_commit(folder)
    number = int(commit.name)
    offsets = folder / "checkpoint" / "offsets"
    version, settings, line = (offsets / str(number)).read_text().splitlines()
    offset = json.loads(line)
    offset["lease"] += 1
    (offsets / str(number + 1)).write_text("\n".join([version, settings, json.dumps(offset)]))
    commit.with_name(str(number + 1)).write_text(commit.read_text())


def test_released_stream_settles_what_its_checkpoint_proves(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path, database: str
) -> None:
    client.send_batch("orders", range(20))
    client.receive("orders", 10, lease=3600)
    run(stream(receiver="lake"), tmp_path)
    client.send_batch("orders", range(20, 30))
    claim(client, database, 1, 4)
    log_next_batch(tmp_path)
    claim(client, database, 1, 4)
    client.create_queue("others")
    client.send_batch("others", range(5))
    run(stream("others"), tmp_path / "others")
    for folder, text in (
        (tmp_path, "is no checkpoint of a stream"),
        (tmp_path / "others" / "checkpoint", "is the checkpoint of another stream, from others"),
    ):
        refused = release(database, "--checkpoint", str(folder))
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert text in refused.stderr
    assert client.metrics("orders").length == 20
    done = release(database, "--checkpoint", str(tmp_path / "checkpoint"), "--json")
    assert json.loads(done.stdout) == {"queue": "orders", "receiver": "lake", "released": 0}
    assert client.metrics("orders").length == 16
    [left] = client.list_receivers("orders")
    assert (left.state, left.held) == ("released", 0)
    # Another checkpoint may have the label now, and gets what is left.
    run(stream(receiver="lake"), tmp_path / "new")
    assert lake(spark, tmp_path) == once(20) - once(10)
    assert lake(spark, tmp_path / "new") == once(30) - Counter(range(24))
