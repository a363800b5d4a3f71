"""What a nursery forks is a process as others, and is gone when the tests are."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

from tests.cli.program import spanmq
from tests.patience import WAIT_SECONDS

TESTS = """
import subprocess, sys
from tests.cli.program import started
with started("serve", "--port", 0, "--without-tokens", "--json", dsn="host=/nowhere") as process:
    print(process.pid, process.stdout.readline(), flush=True)
    sys.stdin.read()
"""


def test_no_process_outlives_killed_tests() -> None:
    tests = subprocess.Popen(
        [sys.executable, "-c", TESTS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert tests.stdout is not None
    hold = os.pidfd_open(int(tests.stdout.readline().split()[0]))
    tests.kill()
    tests.communicate()
    ended = select.poll()
    ended.register(hold, select.POLLIN)
    assert ended.poll(WAIT_SECONDS * 1000), "the service goes on"
    os.close(hold)


def test_each_has_its_own_environment() -> None:
    first, second = (spanmq("list-queues", dsn=f"host=/nowhere port={port}") for port in (1, 2))
    assert (first.code, second.code) == (1, 1)
    assert (".s.PGSQL.1" in first.err, ".s.PGSQL.2" in second.err) == (True, True)
