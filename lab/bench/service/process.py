"""The service as a process of a benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def service(dsn: str, *, tokens: bool = False) -> Iterator[tuple[str, int]]:
    """Run the service on the database `dsn`, with or without `tokens`; yield its address and its process id."""
    command = [sys.executable, "-m", "spanmq.cli", "serve", "--port", "0", "--json"]
    command += [] if tokens else ["--without-tokens"]
    with subprocess.Popen(
        [*command, "--dsn", dsn, "--log-level", "warning"], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["address"], process.pid
        finally:
            process.terminate()
