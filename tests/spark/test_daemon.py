"""The daemon of Spark's Python processes, spoken to as the JVM does."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from spanmq.spark.interpreter import python


@pytest.fixture
def folder() -> Iterator[str]:
    """Give one with a short name: a socket's is of 107 bytes at most."""
    with tempfile.TemporaryDirectory() as path:
        yield path


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="it waits for a process of another")
@pytest.mark.parametrize("whose", ["a task's", "a plan's"])
def test_who_ends_before_python_has_flushed_is_not_told(
    folder: str, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    # Spark lets the module be named for tasks only.
    asked = (
        [sys.executable, "-m", "spanmq.spark.daemon", "pyspark.worker"]
        if whose == "a task's"
        else [python(), "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"]
    )
    with subprocess.Popen(
        asked,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
        },
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        path = daemon.stdout.read(number_from(daemon.stdout.read(4))).decode()
        with socket.socket(socket.AF_UNIX) as jvm:
            jvm.connect(path)
            task = os.pidfd_open(number_from(jvm.recv(4)))
            # Of a task that begins, and no more.
            jvm.sendall(struct.pack(">ii", 0, 3) + b"abc")
        select.select([task], [], [])
        os.close(task)
        daemon.stdin.close()
        assert daemon.stderr.read() == b""


def number_from(data: bytes) -> int:
    (number,) = struct.unpack(">i", data)
    return int(number)
