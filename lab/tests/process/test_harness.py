"""The bench's harness ends its adapters and its server with itself."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import WAIT_SECONDS, wait_until

ROOT = Path(__file__).parents[3]
# Of one system: two processes of its adapter.
COMMAND = (sys.executable, "-m", "lab.bench.harness", "--systems", "pgmq", "--rate", "10", "--workers", "2")


def adapters_of(harness: int) -> set[int]:
    """Return the processes of adapters that a harness has started."""
    children = Path(f"/proc/{harness}/task/{harness}/children").read_text().split()
    return {int(each) for each in children if b"lab.bench.harness.adapter" in command_of(int(each))}


def command_of(process: int) -> bytes:
    """Return the command line of a process; nothing, if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


@pytest.mark.parametrize(
    ("signal_number", "status"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)]
)
@pytest.mark.parametrize("adapters", [1, 2])
def test_harness_that_is_asked_to_end_leaves_no_process(
    spanmq_server: str, tmp_path: Path, adapters: int, signal_number: signal.Signals, status: int
) -> None:
    command = [*COMMAND, "--dsn", spanmq_server, "--folder", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as harness:
        left: set[int] = set()
        try:
            # It waits for samples of the first one, or is in its phases.
            wait_until(lambda: len(adapters_of(harness.pid)) == adapters)
            left = adapters_of(harness.pid)
            harness.send_signal(signal_number)
            assert harness.wait(WAIT_SECONDS) == status
            assert [each for each in left if command_of(each)] == []
        finally:
            harness.kill()
            for each in filter(command_of, left):
                os.kill(each, signal.SIGKILL)
