"""What is seen while it runs: bars on a terminal, a line now and then elsewhere; always on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

LINE_SECONDS: Final = 2.0


class Counts(Protocol):
    """What there is to see of a load."""

    @property
    def sent(self) -> int: ...

    @property
    def settled(self) -> int: ...


Tick = Callable[[Counts], None]


@contextmanager
def display(rows: int) -> Iterator[Tick]:
    """Give the function that shows how far the load is."""
    if sys.stderr.isatty():
        with _bars(rows) as tick:
            yield tick
    else:
        yield _lines(rows)


def say(text: str) -> None:
    """Say what comes now."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def _bars(rows: int) -> Iterator[Tick]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:>9,} of {task.total:,}"),
        TextColumn("{task.fields[rate]:>9,.0f}/s"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=5) as progress:
        sent = progress.add_task("sent", total=rows, rate=0.0)
        settled = progress.add_task("settled", total=rows, rate=0.0)
        began = time.monotonic()

        def tick(counts: Counts) -> None:
            seconds = max(time.monotonic() - began, 1e-3)
            for task, count in ((sent, counts.sent), (settled, counts.settled)):
                if not progress.tasks[task].finished:
                    progress.update(task, completed=count, rate=count / seconds)

        yield tick


def _lines(rows: int) -> Tick:
    began = shown = time.monotonic()

    def tick(counts: Counts) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < LINE_SECONDS:
            return
        shown = now
        seconds = now - began
        say(
            f"{seconds:5.0f} s  sent {counts.sent:,} of {rows:,} ({counts.sent / seconds:,.0f}/s)"
            f"  settled {counts.settled:,} ({counts.settled / seconds:,.0f}/s)"
        )

    return tick
