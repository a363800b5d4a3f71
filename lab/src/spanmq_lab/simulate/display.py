"""The progress of a run, on standard error: a panel on a terminal, otherwise a line every two seconds."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from spanmq_lab.simulate.audit import Audit
from spanmq_lab.simulate.options import Options

if TYPE_CHECKING:
    from rich.live import Live
    from rich.panel import Panel

LINE_SECONDS: Final = 2.0
# The displayed rate is that of this many last seconds.
RATE_SECONDS: Final = 2.0
BARS: Final = " ▁▂▃▄▅▆▇█"
BAR_WIDTH: Final = 48


class Speed:
    """The rate of the last seconds, and earlier rates."""

    def __init__(self) -> None:
        self.history: deque[float] = deque(maxlen=BAR_WIDTH)
        self._looks: deque[tuple[float, int]] = deque()

    def note(self, now: float, count: int) -> float:
        """Add a count, and return the rate."""
        self._looks.append((now, count))
        while len(self._looks) > 2 and now - self._looks[0][0] > RATE_SECONDS:
            self._looks.popleft()
        first_at, first = self._looks[0]
        rate = (count - first) / max(now - first_at, 1e-3) if count > first else 0.0
        self.history.append(rate)
        return rate

    def drawn(self) -> str:
        """Return the rates as a bar chart."""
        top = max(self.history, default=0.0) or 1.0
        return "".join(BARS[round(rate / top * (len(BARS) - 1))] for rate in self.history)


class Display:
    """Draws a panel four times a second and removes it at the end, or prints a line every two seconds."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._speed = Speed()
        self._shown_at = time.monotonic()
        self._what = ""
        self._live: Live | None = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)

    def show(self, what: str, audit: Audit, now: float) -> None:
        """Show the progress."""
        if what != self._what:
            self._what, self._speed = what, Speed()
        rate = self._speed.note(now, audit.sent if what == "writing" else audit.handled)
        if self._live is not None:
            if not self._live.is_started:
                self._live.start()
            self._live.update(self._panel(what, audit, now, rate), refresh=True)
        elif time.monotonic() - self._shown_at >= LINE_SECONDS:
            self._shown_at = time.monotonic()
            self.say(self._line(what, audit, now, rate))

    def say(self, text: str) -> None:
        """Print a line, above the panel if there is one."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
            return
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Remove the panel."""
        if self._live is not None:
            self._live.stop()

    def _line(self, what: str, audit: Audit, now: float, rate: float) -> str:
        if what == "writing":
            return f"{now:.0f} s: {audit.sent:,} messages written ({rate:,.0f}/s)"
        return (
            f"{now:.0f} s: {audit.handled:,} handled ({rate:,.0f}/s), {audit.waiting:,} waiting,"
            f" {len(audit.in_work)} of {self._options.workers} workers busy, {audit.usage()[1]:,} idle polls"
        )

    def _panel(self, what: str, audit: Audit, now: float, rate: float) -> Panel:
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        options = self._options
        total = options.fill_db
        done = audit.sent if what == "writing" else audit.handled + audit.dead
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim", no_wrap=True)
        rows.add_column(no_wrap=True)
        of = f" of {total:,}" if total else ""
        rows.add_row("written" if what == "writing" else "handled", f"[bold]{done:,}[/bold]{of}")
        if total:
            rows.add_row("", ProgressBar(total=total, completed=done, width=BAR_WIDTH))
        rows.add_row("rate", f"[bold]{rate:,.0f}[/bold] a second")
        rows.add_row("", f"[cyan]{self._speed.drawn()}[/cyan]")
        if what != "writing":
            rows.add_row("waiting", f"{audit.waiting:,}")
            rows.add_row("workers", self._workers(audit))
            _, idle_polls, _ = audit.usage()
            rows.add_row("idle polls", f"{idle_polls:,}")
            rows.add_row("failed", f"{audit.counts['failed']:,}, {audit.dead:,} dead")
            rows.add_row(
                "killed", f"{audit.counts['worker_killed']:,}, {audit.counts['again']:,} delivered again"
            )
        return Panel(
            rows,
            title=f"{options.engine}: {what}",
            subtitle=f"{now:.0f} s" + (f" of {options.duration:.0f}" if options.duration else ""),
            title_align="left",
            subtitle_align="right",
            width=BAR_WIDTH + 32,
            padding=(0, 1),
        )

    def _workers(self, audit: Audit) -> str:
        workers = range(self._options.workers)
        drawn = "".join("●" if worker in audit.in_work else "[dim]○[/dim]" for worker in workers[:BAR_WIDTH])
        return f"{drawn} {len(audit.in_work)} of {len(workers)} busy"
