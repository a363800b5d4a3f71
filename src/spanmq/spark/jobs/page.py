"""The report as one HTML page that needs nothing else: tables, and charts as SVG."""

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

Row = dict[str, Any]
WIDTH: Final = 900
HEIGHT: Final = 160
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
body { color: #1d2430; background: #fff; overflow-wrap: anywhere }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; display: block; overflow-x: auto }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; white-space: nowrap }
th { font-weight: 600; border-bottom: 1px solid #b8c0cc }
th:first-child, td:first-child { text-align: left }
th, td:first-child { white-space: normal; overflow-wrap: break-word }
td:first-child { overflow-wrap: anywhere; min-width: 4rem }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: .6rem 1.5rem }
dt { color: #5a6472; font-size: .85rem }
dd { margin: 0; font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto; overflow: visible; margin: .5rem 0 1.5rem }
text { font-size: 11px; fill: #5a6472 }
.legend { margin: 0; font-size: .85rem }
.legend span { border-left: 1rem solid; padding-left: .4rem; margin-right: 1.5rem }
.legend .low { border-color: #3b6fb5 } .legend .high { border-color: #c2572b }
.below { dominant-baseline: hanging }
.bar { fill: #3b6fb5 } .low { stroke: #3b6fb5 } .high { stroke: #c2572b } .axis { stroke: #b8c0cc }
.low, .high { fill: none; stroke-width: 2 }
/* A chart is 900 wide: on a phone it is shown at two fifths of that. */
@media (max-width: 40rem) { text { font-size: 28px } }
@media (prefers-color-scheme: dark) {
    body { color: #dde3ec; background: #14181f } text { fill: #9aa5b4 } dt { color: #9aa5b4 }
}
"""


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """What was found. Times are in seconds; a window is `window_seconds` long and begins at `at`.

    `failures` counts by queue, category and outcome, `dead_letters` by queue and window, with the `total` so
    far; a lake knows those that led to the death of a message only.
    """

    queues: list[Row]
    windows: list[Row]
    attempts: list[Row]
    groups: list[Row]
    failures: list[Row]
    dead_letters: list[Row]
    window_seconds: float
    seconds: float
    page: str | None
    is_dry_run: bool = False
    # Where the messages were, without credentials.
    source: str = ""


def write_page(path: Path, found: PipelineReport) -> None:
    """Write the page: whole, or it stays what it was."""
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    source = f"From {html.escape(found.source)}, {made}" if found.source else made
    parts = ["<h1>What the queues did</h1>", f"<p>{source}</p>"]
    for queue in sorted({row["queue"] for row in (*found.queues, *found.failures)}):
        parts.append(f"<h2>{html.escape(queue)}</h2>")
        mine, attempts, groups, failures, deaths = (
            [row for row in rows if row["queue"] == queue]
            for rows in (found.windows, found.attempts, found.groups, found.failures, found.dead_letters)
        )
        parts += [_figures(row) for row in found.queues if row["queue"] == queue]
        if mine:
            parts += [
                "<h3>Archived, messages a second</h3>",
                _bars([row["number"] for row in mine], [row["rate"] for row in mine], mine),
                "<h3>Seconds in the queue</h3>",
                _lines(
                    mine,
                    ("waited_p50", "low", "half waited less"),
                    ("waited_p95", "high", "95 % waited less"),
                ),
                "<h3>Seconds of work</h3>",
                _lines(mine, ("handled_p95", "high", "95 % took less")),
                "<h3>Deliveries a message</h3>",
                _table(attempts, leave_out=("queue",)),
            ]
        if groups:
            parts += ["<h3>Slowest groups</h3>", _table(groups, leave_out=("queue",))]
        if failures:
            parts += ["<h3>Failures by category</h3>", _table(failures, leave_out=("queue",))]
        if deaths:
            parts += ["<h3>Dead letters, all so far</h3>", _lines(deaths, ("total", "high", "dead letters"))]
    body = "\n".join(parts)
    text = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>spanmq report: {source}</title>'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )
    if path.exists() and not path.is_file():
        # Such as a pipe: nothing to put another file in place of.
        path.write_text(text, "utf-8")
        return
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    draft.write_text(text, "utf-8")
    draft.replace(target)


def _figures(row: Row) -> str:
    """Return the figures of a queue: as a list, which wraps, for a table of them is wider than a page."""
    shown = "".join(
        f"<div><dt>{html.escape(name.replace('_', ' '))}</dt><dd>{_text(value)}</dd></div>"
        for name, value in row.items()
        if name != "queue"
    )
    return f"<dl>{shown}</dl>"


def _table(rows: Sequence[Row], *, leave_out: tuple[str, ...] = ()) -> str:
    if not rows:
        return ""
    names = [name for name in rows[0] if name not in leave_out]
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in names)
    lines = "".join(f"<tr>{''.join(f'<td>{_text(row[name])}</td>' for name in names)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{lines}</table>"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return html.escape(str(value))


def _bars(numbers: Sequence[int], values: Sequence[float], rows: Sequence[Row]) -> str:
    top = max(values) or 1
    step = WIDTH / (max(numbers) + 1)
    bars = "".join(
        f'<rect class="bar" x="{number * step:.1f}" y="{HEIGHT - value / top * HEIGHT:.1f}" '
        f'width="{max(step - 1, 1):.1f}" height="{value / top * HEIGHT:.1f}"/>'
        for number, value in zip(numbers, values, strict=True)
    )
    return _frame(bars, top, rows)


def _lines(rows: Sequence[Row], *lines: tuple[str, str, str]) -> str:
    """Draw lines, each with the style and the words of its legend."""
    known = [row for row in rows if all(row[name] is not None for name, _, _ in lines)]
    if not known:
        return "<p>Not known: no message was received before it was archived.</p>"
    top = max(row[name] for row in known for name, _, _ in lines) or 1
    step = WIDTH / (max((row["number"] for row in rows), default=0) + 1)
    drawn = ""
    for name, style, _ in lines:
        points = " ".join(
            f"{(row['number'] + 0.5) * step:.1f},{HEIGHT - row[name] / top * HEIGHT:.1f}" for row in known
        )
        drawn += f'<polyline class="{style}" points="{points}"/>'
    legend = "".join(f'<span class="{style}">{html.escape(text)}</span>' for _, style, text in lines)
    return f'<p class="legend">{legend}</p>{_frame(drawn, top, rows)}'


def _frame(drawn: str, top: float, rows: Sequence[Row]) -> str:
    first, last = (_text(row["at"]) for row in (rows[0], rows[-1]))
    return (
        f'<svg viewBox="0 -16 {WIDTH} {HEIGHT + 34}" role="img">{drawn}'
        f'<text x="0" y="-4">{_text(float(top))}</text>'
        f'<line class="axis" x1="0" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}"/>'
        f'<text class="below" x="0" y="{HEIGHT + 5}">{first}</text>'
        f'<text class="below" x="{WIDTH}" y="{HEIGHT + 5}" text-anchor="end">{last}</text></svg>'
    )
