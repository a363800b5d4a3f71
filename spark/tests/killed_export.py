"""Exports, and ends its own process by SIGKILL at a step: `python -m spark.tests.killed_export DSN LAKE STEP WHEN`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from spark.tests.test_goes_back import run


def kill_at(step: str, *, is_after: bool) -> None:
    """Replace a function by one that ends the process."""
    owner, _, name = step.rpartition(".")
    act = getattr(resolve_name(owner), name)

    def killing(*given: Any, **named: Any) -> None:
        if is_after:
            act(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(resolve_name(owner), name, killing)


if __name__ == "__main__":
    dsn, lake, step, when = sys.argv[1:]
    kill_at(step, is_after=when == "after")
    run(dsn, Path(lake), "ducklake")
