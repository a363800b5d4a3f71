"""An object store, which moto plays."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import pytest
from spark.tests.process.rabbit import free_ports
from tests.patience import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET: Final = "lake"


@contextmanager
def serving(spark: SparkSession) -> Iterator[str]:
    """Serve a bucket to this process, to those that it starts and to the tasks of its session."""
    pytest.importorskip("moto.server")
    import boto3

    [port] = free_ports(1)
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    # A process of its own: a library may wait for an answer and keep Python's lock meanwhile.
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with patch.dict(os.environ, settings), patch.dict(spark.sparkContext.environment, settings):
            client = boto3.client("s3", region_name="us-east-1")
            wait_until(lambda: answers(port), process)
            client.create_bucket(Bucket=BUCKET)
            yield f"s3://{BUCKET}"
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    """Return whether somebody listens."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
