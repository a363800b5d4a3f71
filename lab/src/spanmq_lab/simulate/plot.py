"""A chart of one or several runs: rate, backlog and latency over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spanmq.errors import InvalidArgumentError, SpanmqError
from spanmq_lab.simulate.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS: Final = (".png", ".svg")
# Colours that colour-blind readers can distinguish, too.
COLOURS: Final = {"spanmq": "#0072b2", "polling": "#d55e00", "polling-indexed": "#009e73"}
# The axis is logarithmic if the longest latency is this many times the shortest.
WIDE: Final = 100
INK, FAINT = "#333333", "#bbbbbb"
KILLED = "#cc79a7"


def check_file(path: Path) -> None:
    """Raise InvalidArgumentError or SpanmqError before a run after which no chart could be written."""
    if path.suffix.lower() not in KINDS:
        raise InvalidArgumentError(f"the chart must be a .png or .svg file, not {path.name!r}")
    if not path.absolute().parent.is_dir():
        raise InvalidArgumentError(f"folder {path.absolute().parent} does not exist")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise SpanmqError(
            "the plotting library is not installed", hint="pip install 'spanmq[lab]'"
        ) from error


def draw(reports: Sequence[Report], path: Path) -> None:
    """Write the chart to a file, whose suffix selects the format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7.5), dpi=120, layout="constrained")
    rate, backlog, latency = figure.subplots(3, 1, sharex=True)
    for place, report in enumerate(reports):
        is_again = any(earlier.engine == report.engine for earlier in reports[:place])
        draw_report(report, rate, backlog, latency, is_alone=len(reports) == 1, is_again=is_again)
    dress(rate, "messages a second")
    dress(backlog, "messages waiting")
    dress(latency, "send to done: p50, and p99 dashed")
    for axes in (rate, backlog):
        axes.yaxis.set_major_formatter(thousands)
        axes.yaxis.get_major_locator().set_params(integer=True)
    if is_wide(reports):
        latency.set_yscale("log")
    for axes in (rate, backlog, latency):
        if axes.get_yscale() == "linear":
            axes.set_ylim(bottom=0)
    latency.yaxis.set_major_formatter(lambda value, _: time_text(value))
    latency.set_xlabel("seconds since the workers started", color=INK, fontsize=9)
    latency.set_xlim(0, max(report.seconds for report in reports))
    rate.legend(
        frameon=False, loc="lower right", bbox_to_anchor=(1, 0.98), ncols=4, labelcolor=INK, fontsize=9
    )
    figure.suptitle(title_of(reports), x=0.01, ha="left", fontsize=11, color=INK)
    try:
        figure.savefig(path)
    except OSError as error:
        raise SpanmqError(f"{path} can't be written: {error.strerror}") from error


def draw_report(
    report: Report, rate: Axes, backlog: Axes, latency: Axes, *, is_alone: bool, is_again: bool
) -> None:
    """Draw one run."""
    colour = COLOURS[report.engine]
    line: dict[str, Any] = {
        "color": colour,
        "linewidth": 1.0 if is_again else 1.8,
        "alpha": 0.6 if is_again else 1,
    }
    steps = report.steps
    middles = [step.at + step.seconds / 2 for step in steps]
    if is_alone and any(step.sent_rate for step in steps):
        rate.plot(middles, [step.sent_rate for step in steps], color=FAINT, linewidth=1.8, label="sent")
    if is_alone and report.rate_asked is not None:
        rate.axhline(report.rate_asked, color=INK, linewidth=0.8, linestyle=":", label="asked")
    if is_alone and report.kills:
        for axes in (rate, backlog, latency):
            across = axes.get_xaxis_transform()
            axes.vlines(
                report.kills, 0, 1, transform=across, color=KILLED, linewidth=0.6, label="worker killed"
            )
    label = "handled" if is_alone else report.engine
    rate.plot(middles, [step.handled_rate for step in steps], label=None if is_again else label, **line)
    ends = [0.0, *(step.at + step.seconds for step in steps)]
    waiting = [report.backlog_at_first, *(step.backlog for step in steps)]
    backlog.plot(ends, waiting, **line)
    if is_alone:
        backlog.fill_between(ends, waiting, color=colour, alpha=0.12, linewidth=0)
    done = [
        (middle, step) for middle, step in zip(middles, steps, strict=True) if step.latency_p50 is not None
    ]
    times = [middle for middle, _ in done]
    latency.plot(times, [max(step.latency_p50 or 0, 1e-4) for _, step in done], **line)
    latency.plot(times, [max(step.latency_p99 or 0, 1e-4) for _, step in done], linestyle=(0, (4, 2)), **line)


def is_wide(reports: Sequence[Report]) -> bool:
    """Return whether the latencies need a logarithmic axis."""
    times = [
        seconds
        for report in reports
        for step in report.steps
        for seconds in (step.latency_p50, step.latency_p99)
        if seconds is not None
    ]
    return bool(times) and max(times) > WIDE * max(min(times), 1e-4)


def dress(axes: Axes, name: str) -> None:
    """Remove lines that are not data."""
    axes.set_title(name, loc="left", fontsize=9, color=INK)
    axes.grid(axis="y", color=FAINT, linewidth=0.5, alpha=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=INK, length=0, labelsize=8)


def title_of(reports: Sequence[Report]) -> str:
    """Return the title."""
    first = reports[0]
    options = first.options
    load = options["source"] or f"{options['types']} types of {options['keys']:,} keys"
    engine = f"{first.engine}, " if len(reports) == 1 else ""
    return f"{engine}{options['workers']} workers, {load}, {first.sent:,} messages sent"


def thousands(value: float, _: object) -> str:
    """Return a number for an axis."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def time_text(seconds: float) -> str:
    """Return a time for an axis."""
    if seconds >= 1:
        return f"{seconds:g} s"
    return f"{seconds * 1_000:g} ms" if math.isfinite(seconds) else ""
