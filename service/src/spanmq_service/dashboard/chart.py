"""Charts as SVG, drawn by pygal: they need no script, and show light or dark as the reader has it."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil, floor, log10
from typing import Any, Final, Literal, Protocol
from xml.etree import ElementTree

import pygal
from pygal.style import Style

# For maps, of which we draw none, pygal puts itself into all imports; Python 3.11 warns of it each time.
sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)]

Shape = Literal["wide", "narrow"]
SIZES: Final[Mapping[Shape, tuple[int, int]]] = {"wide": (640, 240), "narrow": (360, 260)}
LABELS: Final[Mapping[Shape, int]] = {"wide": 6, "narrow": 3}


@dataclass(frozen=True, slots=True)
class Chart:
    """The columns of a chart; a rate is a count divided by the seconds of its step.

    With `has_gaps` a step without a value is a gap, and each value a dot: there may be none beside it.
    """

    lines: Mapping[str, str]
    colors: tuple[str, ...]
    is_rate: bool = False
    has_gaps: bool = False


class Step(Protocol):
    """A row of figures, which has the columns of the chart, too."""

    @property
    def began_at(self) -> datetime:
        """Return the time of its beginning."""


# Each color is visible on white and on black, and distinguishable from its neighbours with red-green colour
# blindness.
CHARTS: Final[Mapping[str, Chart]] = {
    "rates": Chart(
        {"sent": "sent", "settled": "settled", "failed": "failed", "dead": "dead"},
        ("#2f7ed8", "#1f9d76", "#d98200", "#d1495b"),
        is_rate=True,
    ),
    "levels": Chart({"backlog": "backlog", "in_flight": "in flight"}, ("#2f7ed8", "#d98200")),
    "age": Chart({"oldest_ready_seconds": "oldest ready"}, ("#8a63d2",)),
}
# Of one kind of task.
TASK_CHARTS: Final[Mapping[str, Chart]] = {
    "runs": Chart({"done": "done", "failed": "failed"}, ("#1f9d76", "#d1495b"), is_rate=True),
    "durations": Chart(
        {"p50": "half took at most", "p95": "95 of 100"}, ("#2f7ed8", "#8a63d2"), has_gaps=True
    ),
}
# Over pygal's own rules, which are for one background.
RULES: Final = """
    .axis .guides, .axis .line { stroke: #8884 !important; stroke-dasharray: none !important; }
    text { fill: #4a5560 !important; }
    .series path.line { stroke-width: 2.5 !important; }
    @media (prefers-color-scheme: dark) { text { fill: #b4bec8 !important; } }
"""


def draw(
    chart: Chart, steps: Sequence[Step], step: float, shape: Shape, *, since: datetime | None = None
) -> bytes:
    """Return the picture. What has no data is a gap before `since`, and 0 after it: then nothing happened."""
    width, height = SIZES[shape]
    ticks = _ticks(max(_peak(chart, steps, step), 0.0))
    every = max(len(steps) // LABELS[shape], 1)
    picture: Any = pygal.Line(
        width=width,
        height=height,
        explicit_size=True,
        style=_style(chart),
        css=["file://style.css", "file://graph.css", f"inline:{RULES}"],
        js=[],
        show_dots=chart.has_gaps,
        dots_size=2,
        stroke_style={"width": 2},
        legend_at_bottom=True,
        legend_at_bottom_columns=len(chart.lines),
        legend_box_size=10,
        margin=4,
        min_scale=3,
        max_scale=5,
        range=(0.0, ticks[-1]),
        y_labels=ticks,
        value_formatter=short,
        x_labels_major_every=every,
        show_minor_x_labels=False,
        truncate_label=-1,
    )
    pattern = "%H:%M" if len(steps) * step <= 86_400 else "%d %b %H:%M"
    picture.x_labels = [row.began_at.strftime(pattern) for row in steps]
    for name, words in chart.lines.items():
        picture.add(words, _values(chart, steps, step, name, since))
    tree: Any = picture.render_tree()
    # Its script is for pictures in a page, where they would move.
    for holder in tree.iter():
        for script in [element for element in holder if str(element.tag).rpartition("}")[2] == "script"]:
            holder.remove(script)
    drawn: bytes = ElementTree.tostring(tree, "utf-8", xml_declaration=True)
    return drawn


def short(value: float) -> str:
    """Write a number in few characters: 12 k."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _values(
    chart: Chart, steps: Sequence[Step], step: float, name: str, since: datetime | None
) -> list[float | None]:
    values: list[float | None] = []
    for row in steps:
        value = getattr(row, name)
        is_before = since is not None and row.began_at + timedelta(seconds=step) <= since
        if value is None and (chart.has_gaps or is_before):
            values.append(None)
        else:
            values.append((value or 0.0) / (step if chart.is_rate else 1.0))
    return values


def _peak(chart: Chart, steps: Sequence[Step], step: float) -> float:
    return max(
        (value or 0.0 for name in chart.lines for value in _values(chart, steps, step, name, None)),
        default=0.0,
    )


def _ticks(peak: float) -> list[float]:
    """Return up to six round numbers from 0 up, of which the last is not below the peak."""
    rough = (peak or 1.0) / 5
    power = 10.0 ** floor(log10(rough))
    size = next(
        factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9)
    )
    return [n * size for n in range(ceil((peak or 1.0) / size - 1e-9) + 1)]


def _style(chart: Chart) -> Style:
    return Style(
        background="transparent",
        plot_background="transparent",
        foreground="#4a5560",
        foreground_strong="#4a5560",
        foreground_subtle="#8884",
        colors=chart.colors,
        opacity="1",
        opacity_hover="1",
        transition="0s",
        font_family="system-ui, sans-serif",
        label_font_size=11,
        major_label_font_size=11,
        legend_font_size=12,
        value_font_size=11,
        no_data_font_size=14,
    )
