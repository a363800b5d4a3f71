"""The Python process of a stream is connected to the JVM before PySpark is there, and then does its work."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from tests.spark.test_stream import failure, run

from spanmq.spark.connect_first import SOCKET
from spanmq.spark.interpreter import python

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
def listening() -> Iterator[socket.socket]:
    """A socket as the JVM has it, with a short name: it is of 107 bytes at most."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as jvm:
        jvm.bind(f"{folder}/socket")
        jvm.listen(1)
        jvm.settimeout(SECONDS)
        yield jvm


def test_process_is_connected_before_pyspark_is_imported(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "slow" / "pyspark").mkdir(parents=True)
    (tmp_path / "slow" / "pyspark" / "__init__.py").write_text(SLOW)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with subprocess.Popen(
        [python(), "-m", "pyspark.sql.streaming.python_streaming_source_runner"],
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path / "slow"),
            "GATE": str(gate),
            SOCKET: listening.getsockname(),
        },
    ) as process:
        jvm, _ = listening.accept()
        with jvm:
            # Only now it may go on: whoever imports first and then connects waits for ever.
            gate.write_text("")
            jvm.settimeout(SECONDS)
            assert struct.unpack(">i", jvm.recv(4)) == (process.pid,)
        # The end of the connection is the end of the work.
        process.communicate(timeout=SECONDS)


def test_process_of_a_stream_connects_first(spark: SparkSession, tmp_path: Path) -> None:
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
    assert "-m spanmq.spark.connect_first pyspark.sql.streaming.python_streaming_source_runner" in text
