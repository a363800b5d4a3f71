"""The commands of the pipeline one after another, with sealed bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client
from spanmq.codec.encryption import SEALED_KEY, Encryption, new_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_archive_goes_by_commands_into_a_lake_and_another_queue(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.archive("orders", client.send_batch("orders", range(20)))
    lake = str(tmp_path / "lake")

    keys = tmp_path / "keys"
    keys.write_text(new_line("first") + "\n")

    def spanmq(*arguments: str) -> Any:
        # Bodies are sealed where that is asked for.
        return CliRunner().invoke(
            app, ["pipeline", *arguments], env={"SPANMQ_ENCRYPTION_KEY_FILE": str(keys)}
        )

    done = spanmq("export", "orders", "--to", lake, "--dsn", database, "--json")
    assert json.loads(done.stdout)["exported"] == 20
    [file, *_] = sorted(str(path) for path in Path(lake).rglob("*.parquet"))
    done = spanmq("backfill", "orders", file, "--job-id", "again", "--body", "body", "--dsn", database)
    assert done.exit_code == 0
    assert [SEALED_KEY in each.body for each in client.peek("orders", 100)] == 20 * [True]
    encryption = Encryption.from_file(str(keys))
    with Client(database, encryption=encryption) as opening:
        assert sorted(each.body for each in opening.receive("orders", 100)) == list(range(20))
    # Nothing is new: no Java is needed.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spanmq_spark.session.session", lambda *_, **__: pytest.fail("Spark was started"))
        done = spanmq("export", "orders", "--to", lake, "--dsn", database, "--json")
        assert json.loads(done.stdout)["exported"] == 0
    done = spanmq("export", "oders", "--to", lake, "--dsn", database)
    assert (done.exit_code, "there is no queue 'oders'" in done.stderr) == (1, True)
    done = spanmq("dead-letters", "orders", "--dsn", "host=127.0.0.1 port=1 connect_timeout=2 dbname=x")
    assert done.exit_code == 1
    assert done.stderr.startswith("spanmq: ")
    assert "Traceback" not in done.stderr
