"""Reads, sinks and exports on the releases of Spark that this Python has, and those that SPANMQ_TEST_SPARK names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import spark.tests.process.on_release as program
from tests.patience import WAIT_SECONDS

from spanmq.client import Client

# Such as /opt/spark40/bin/python:/opt/spark42/bin/python.
PYTHONS = [sys.executable, *filter(None, os.environ.get("SPANMQ_TEST_SPARK", "").split(os.pathsep))]
ROOT = Path(__file__).parents[3]
SOURCES = os.pathsep.join(str(ROOT / each) for each in ("src", "spark/src"))


@pytest.mark.parametrize("python", PYTHONS)
def test_jobs_run_on_each_release(client: Client, database: str, tmp_path: Path, python: str) -> None:
    # A private folder: the programs that Spark starts as Python are kept by the temporary one.
    environment = {**os.environ, "PYTHONPATH": SOURCES, "TMPDIR": str(tmp_path)}
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPANMQ_DSN"):
        environment.pop(name, None)
    done = subprocess.run(
        [python, program.__file__, database],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=10 * WAIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (len(found["ids"]), set(found["ids"]) < set(range(20)), found["exported"]) == (15, True, 5)
    if found["release"] < "4.2":
        assert "Spark 4.2 or newer can" in found["received"]
    else:
        assert found["received"] == 15
