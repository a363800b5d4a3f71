"""A cluster whose executors have environments of their own, with the wheel and without the checkout."""

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pyspark
import pytest
from spark.tests.process import on_cluster
from spark.tests.process.cluster import EXECUTOR, HOSTS, SECONDS, Cluster, await_file
from spark.tests.process.lakes import parquet_bodies
from spark.tests.real_session import FRUGAL

from spanmq.client import Client
from spanmq_spark.programs import java_home

ROOT = Path(__file__).parents[3]
MESSAGES = 2_000
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
# As in spark/tests/real_session.py: nothing here runs long enough for the second compiler.
SETTINGS = {
    "spark.driver.extraJavaOptions": FRUGAL,
    "spark.executor.extraJavaOptions": FRUGAL,
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.archives": "environment.tar.gz#environment",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": EXECUTOR,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # Both executors are there before the first task.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment that has the wheels, and all that is installed here, beside its archive."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    for project in (ROOT, ROOT / "spark"):
        subprocess.run(build, cwd=project, check=True, capture_output=True)
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    # The files `*.pth` of these folders are not read, so the checkout is not in the path.
    installed = [path for path in sys.path if path.endswith("-packages")]
    (packages / "installed.pth").write_text("\n".join(installed))
    for wheel in tmp_path.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(packages)
    shutil.make_archive(str(folder), "gztar", folder)
    return folder


def test_pipeline_survives_the_kill_of_a_worker_on_a_cluster_that_has_the_wheel_alone(
    client: Client, database: str, environment: Path, tmp_path: Path
) -> None:
    client.queues.create("copies")
    client.queues.set_policy("orders", archive_on_ack=True)
    client.send_batch("orders", range(MESSAGES))
    (tmp_path / "tasks").mkdir()
    doomed = HOSTS[1]
    with Cluster(tmp_path, python_path=()) as cluster:
        conf = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
        arguments = [on_cluster.__file__, database, str(tmp_path), doomed]
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with (tmp_path / "driver.log").open("w") as log:
            driver = subprocess.Popen(
                [SUBMIT, "--master", cluster.url, *conf, *arguments],
                cwd=tmp_path,
                env={
                    **environ,
                    "JAVA_HOME": str(java_home()),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    # The archive is unpacked beside the driver, too: Spark runs the source by one path everywhere.
                    "PYSPARK_PYTHON": "./environment/bin/python",
                },
                stdout=log,
                stderr=log,
            )
            try:
                await_file(tmp_path / "waiting", driver)
                cluster.kill(doomed)
                assert driver.wait(SECONDS) == 0, (tmp_path / "driver.log").read_text()
            finally:
                driver.kill()
                driver.wait()
    assert json.loads((tmp_path / "result.json").read_text()) == [cluster.url, MESSAGES, MESSAGES]
    tasks = {each.name: each.read_text() for each in (tmp_path / "tasks").iterdir()}
    # What was lost with its worker has run again on the other one, each in its own environment.
    assert len(tasks) == 3
    for name, place in tasks.items():
        host = name.partition(" on ")[2]
        assert Path(place).is_relative_to(tmp_path / f"work-{host}")
        assert "/environment/lib/" in place
    assert client.queues.metrics("orders").length == 0
    assert sorted(message.body for message in client.receive("copies", 2 * MESSAGES)) == list(range(MESSAGES))
    assert parquet_bodies(tmp_path / "lake") == list(range(MESSAGES))
