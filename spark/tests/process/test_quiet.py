"""A job as a user runs it, in a session of its own: what fails in an executor is one message, and no log."""

import subprocess
from pathlib import Path

import pyarrow
import pyarrow.parquet
from tests.cli.program import PROGRAM, environment
from tests.patience import WAIT_SECONDS

from spanmq.client import Client


def test_failed_job_says_one_thing(client: Client, database: str, tmp_path: Path) -> None:
    source = tmp_path / "bodies.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["1", "{broken"]}), source)
    done = subprocess.run(
        [
            *(*PROGRAM, "pipeline", "backfill", "orders", str(source)),
            *("--job-id", "one", "--body", "text", "--master", "local[2,2]"),
        ],
        env=environment(database),
        capture_output=True,
        text=True,
        # It starts a JVM, perhaps on a machine that is busy.
        timeout=2 * WAIT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    segment = min(client.inspect.segments("orders"), key=lambda each: each.first_id).segment
    # No stack, no log, and not once for each of the tries.
    [line] = done.stderr.splitlines()
    assert line.startswith(f"spanmq: invalid body: writing 2 messages into queue orders, segment {segment}: ")
    assert line.endswith("invalid input syntax for type json")
    assert client.queues.metrics("orders").length == 0
