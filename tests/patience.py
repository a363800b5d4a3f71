"""How long a test waits for what must happen, before it says that it hangs; and the only loop that waits.

Nothing is judged by it: what ought to be quick is told by pages, calls or processor time. A machine may be
five times slower than another, and have other work.
"""

import subprocess
import time
from collections.abc import Callable
from typing import Any, Final

import psycopg

WAIT_SECONDS: Final = 180.0
POLL_SECONDS: Final = 0.004


def wait_until(
    condition: Callable[[], object], *processes: subprocess.Popen[Any], seconds: float = WAIT_SECONDS
) -> None:
    """Return when the condition holds; fail if it does not in time, or a process ends before."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not become so in time"
        for each in processes:
            assert each.poll() is None, f"ended with {each.returncode}: {each.communicate()}"
        time.sleep(POLL_SECONDS)


def is_answered(dsn: str) -> bool:
    """Return whether a server, or a pooler, takes connections."""
    try:
        psycopg.connect(dsn, prepare_threshold=None).close()
    except psycopg.OperationalError:
        return False
    return True
