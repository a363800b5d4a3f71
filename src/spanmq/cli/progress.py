"""Long work shows how far it is, on stderr, if that is a terminal."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, int], None]
Told = Callable[[str], None]


def is_shown() -> bool:
    """Return whether progress is displayed."""
    return sys.stderr.isatty()


@contextmanager
def counted(what: str, *, total_bytes: int | None) -> Iterator[Advance]:
    """Yield a function that takes the number of items done and of bytes read, out of `total_bytes`."""
    if not is_shown():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.fields[count]:,} messages, {task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total_bytes, count=0, rate=0.0)

        def advance(count: int, bytes_read: int) -> None:
            rate = count / max(progress.tasks[0].elapsed or 0, 1e-3)
            progress.update(task, completed=bytes_read, count=count, rate=rate)

        yield advance


@contextmanager
def awaited(what: str) -> Iterator[Told]:
    """Show that one long statement or job runs, and for how long; yield a function that shows its progress."""
    if not is_shown():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda far: progress.update(task, description=f"{what}: {far}")


def size_of(descriptor: int) -> int | None:
    """Return the size of a file in bytes; None for a pipe or a terminal."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None
