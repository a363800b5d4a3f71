"""The progress of the demo: bars on a terminal, a line now and then elsewhere; always on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LINE_SECONDS: Final = 2.0

# Takes the name of a step and how many it has done.
Tick = Callable[[str, int], None]


@contextmanager
def display(rows: int) -> Iterator[Tick]:
    """Yield a function that shows the progress of each step, out of `rows`."""
    if sys.stderr.isatty():
        with _bars(rows) as tick:
            yield tick
    else:
        yield _lines(rows)


def say(text: str) -> None:
    """Print the next step."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def _bars(rows: int) -> Iterator[Tick]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = [
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.completed:>9,} of {task.total:,}"),
        TextColumn("{task.fields[rate]:>9,.0f}/s"),
        TimeElapsedColumn(),
    ]
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=5) as progress:

        def tick(step: str, count: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=rows, rate=0.0)
            task = progress.tasks[tasks[step]]
            if not task.finished:
                progress.update(task.id, completed=count, rate=count / max(task.elapsed or 0.0, 1e-3))

        yield tick


def _lines(rows: int) -> Tick:
    began: dict[str, float] = {}
    counts: dict[str, int] = {}
    shown = time.monotonic()

    def tick(step: str, count: int) -> None:
        nonlocal shown
        now = time.monotonic()
        began.setdefault(step, now)
        counts[step] = count
        if now - shown < LINE_SECONDS:
            return
        shown = now
        say(
            ", ".join(
                f"{step} {counts[step]:,} of {rows:,} ({counts[step] / max(now - began[step], 1e-3):,.0f}/s)"
                for step in began
                if step in counts
            )
        )
        counts.clear()

    return tick
