"""The memory of the Python processes below this one: Spark's driver, and the workers of its executors."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PROC: Final = Path("/proc")
SECONDS: Final = 0.1


class Watch:
    """Notes, while its block runs, the most megabytes that all had at one time. Linux only: else 0."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.megabytes = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(SECONDS):
            kilobytes = sum(_kilobytes(process) for process in _pythons(self._root))
            self.megabytes = max(self.megabytes, kilobytes / 1024)


def _pythons(root: int) -> list[int]:
    """Find this process and all that it has started, in whatever generation, without the JVM."""
    children: dict[int, list[int]] = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2]
        except OSError:
            continue
        children.setdefault(int(after_name.split()[1]), []).append(int(folder.name))
    processes: list[int] = []
    rest = [root]
    while rest:
        process = rest.pop()
        rest += children.get(process, [])
        processes.append(process)
    return [process for process in processes if "python" in _program(process)]


def _program(process: int) -> str:
    try:
        return (PROC / str(process) / "comm").read_text()
    except OSError:
        return ""


def _kilobytes(process: int) -> int:
    """Return what a process has to itself, and its share of what it shares."""
    try:
        lines = (PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
