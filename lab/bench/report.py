"""What a run ends with: tables for the terminal, Markdown for the documentation, JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from lab.bench import results
from lab.bench.comparisons import Compared, compare
from lab.bench.contestants import CONTESTANTS
from lab.bench.environment import Environment
from lab.bench.plan import Plan
from lab.bench.results import LATENCY, RATE, Measurement, Summary
from lab.bench.targets import Measure, Target, Verdict, targets_of

_TITLES = {contestant.name: contestant.title for contestant in CONTESTANTS}
# In a run of a second the last batches are still on their way; less than this is worth a word.
_SETTLED_SHARE_MIN = 0.9
_COMMON = ("case", "contestant", "median", "spread", "to upstream", "floor", "aim", "")
_RATE_HEADINGS = (
    *_COMMON,
    "processor us/msg",
    "to upstream",
    "WAL B/msg",
    "to upstream",
    "dead tuples",
    "MB",
    "generator",
)
_LATENCY_HEADINGS = (*_COMMON, "first call", "slowest")

Table = list[tuple[str, ...]]  # the headings, then the rows


def tables(plan: Plan, summaries: Sequence[Summary]) -> Iterator[Table]:
    """Return a table of the rates and one of the latencies, headings first; none that would be empty."""
    rates = [(*_common(plan, summary), *_costs(summary)) for summary in summaries if summary.unit == RATE]
    latencies = [
        (*_common(plan, summary), *_outliers(summary)) for summary in summaries if summary.unit == LATENCY
    ]
    if rates:
        yield [_RATE_HEADINGS, *rates]
    if latencies:
        yield [_LATENCY_HEADINGS, *latencies]
    judged = verdicts(plan, summaries)
    if judged:
        yield _verdict_table(judged)
    if compared := compare(summaries):
        yield _comparison_table(compared)


def _common(plan: Plan, summary: Summary) -> tuple[str, ...]:
    target = next((target for target in targets_of(summary, plan) if target.measure is Measure.RATIO), None)
    spread = (summary.highest - summary.lowest) / summary.value if summary.rounds > 1 else math.nan
    return (
        summary.case,
        _TITLES.get(summary.contestant, summary.contestant),
        f"{_value(summary.value, summary.unit)} {summary.unit}",
        _share(spread),
        _times(summary.ratio),
        f"{target.floor:g}" if target else "",
        f"{target.aim:g}" if target else "",
        target.verdict(summary.ratio) if target else "",
    )


def _costs(summary: Summary) -> tuple[str, ...]:
    details = summary.details
    return (
        _decimal(details.get(results.PROCESSOR_US, math.nan)),
        _times(summary.processor_ratio),
        _number(details.get(results.WAL_BYTES)),
        _decimal(summary.wal_ratio),
        _number(details.get(results.DEAD_TUPLES)),
        _megabytes(details.get(results.STORED_BYTES)),
        _share(details.get(results.GENERATOR_SHARE, math.nan)),
    )


def _outliers(summary: Summary) -> tuple[str, ...]:
    return tuple(
        _decimal(summary.details.get(name, math.nan)) for name in (results.FIRST_CALL_MS, results.SLOWEST_MS)
    )


def remarks(summaries: Sequence[Summary]) -> Iterator[str]:
    """Return what does not fit the columns: windows, bites, what was not settled."""
    for summary in summaries:
        who = f"{summary.case}, {_TITLES.get(summary.contestant, summary.contestant)}"
        details = summary.details
        if summary.windows:
            windows = " ".join(_value(window, summary.unit) for window in summary.windows)
            yield f"{who}: windows {windows} {summary.unit}; last to first {details[results.LAST_TO_FIRST]:.2f}"
        if results.MESSAGES_PER_TAKE in details:
            drained = (
                "; drained before the end: the rate is a lower bound" if details[results.DRAINED] else ""
            )
            yield f"{who}: {details[results.MESSAGES_PER_TAKE]:.2f} messages a take{drained}"
        if details.get(results.SETTLED_SHARE, 1.0) < _SETTLED_SHARE_MIN:
            yield f"{who}: only {details[results.SETTLED_SHARE]:.1%} of what was sent was settled"


def verdicts(plan: Plan, summaries: Sequence[Summary]) -> list[tuple[Target, float, Verdict]]:
    """Return every target of which the case was measured, what was reached, and the verdict."""
    return [
        (target, reached, target.verdict(reached))
        for summary in summaries
        for target in targets_of(summary, plan)
        for reached in (target.measure.of(summary),)
        if not math.isnan(reached)
    ]


def text(environment: Environment, plan: Plan, summaries: Sequence[Summary]) -> str:
    """Write the whole report for a terminal."""
    lines = [*_about(environment, plan), ""]
    for table in tables(plan, summaries):
        lines += [*_aligned(table), ""]
    lines += remarks(summaries)
    judged = [verdict is not Verdict.BELOW for _, _, verdict in verdicts(plan, summaries)]
    judged += [comparison.is_met for comparison in compare(summaries)]
    lines.append(f"{len(judged)} targets measured, {judged.count(False)} below their floor.")
    return "\n".join(lines)


def markdown(environment: Environment, plan: Plan, summaries: Sequence[Summary], command: str) -> str:
    """Write the report for the documentation: what was run, where, and what came out."""
    lines = ["Command:", "", f"    {command}", "", *(f"- {line}" for line in _about(environment, plan)), ""]
    for table in tables(plan, summaries):
        lines += [*_table(table), ""]
    lines += [f"- {remark}" for remark in remarks(summaries)]
    return "\n".join(lines) + "\n"


def as_json(
    environment: Environment,
    plan: Plan,
    measurements: Sequence[Measurement],
    summaries: Sequence[Summary],
) -> str:
    """Write everything that was measured. Numbers that do not exist are null."""
    judged = verdicts(plan, summaries)
    document = {
        "environment": asdict(environment),
        "plan": asdict(plan),
        "summaries": [asdict(summary) for summary in summaries],
        "targets": [
            asdict(target) | {"reached": reached, "verdict": verdict} for target, reached, verdict in judged
        ],
        "comparisons": [asdict(comparison) for comparison in compare(summaries)],
        "measurements": [asdict(measurement) for measurement in measurements],
    }
    return json.dumps(_without_nan(document), default=dict) + "\n"


def _about(environment: Environment, plan: Plan) -> Iterator[str]:
    yield f"{environment.started_at}, plan: {plan.title}"
    yield (
        f"{environment.processors} x {environment.processor}, {environment.memory_gigabytes:g} GB, "
        f"{environment.system}, load average {environment.load_average_before:g} at the start, "
        f"a commit takes {environment.commit_ms:g} ms"
    )
    yield ", ".join(f"{name} {version}" for name, version in environment.versions.items())
    yield ", ".join(f"{name} = {setting}" for name, setting in environment.settings.items())


def _verdict_table(judged: Sequence[tuple[Target, float, Verdict]]) -> Table:
    return [
        ("case", "contestant", "measure", "reached", "floor", "aim", "verdict"),
        *(
            (
                target.case,
                _TITLES[target.contestant],
                target.measure,
                f"{reached:.2f}",
                f"{target.floor:g}",
                f"{target.aim:g}",
                verdict,
            )
            for target, reached, verdict in judged
        ),
    ]


def _comparison_table(compared: Sequence[Compared]) -> Table:
    return [
        ("case", "beside", "times", "owed", "verdict"),
        *(
            (
                row.comparison.case,
                row.comparison.beside,
                f"{row.reached:.2f}",
                f"{row.comparison.limit:g}",
                "met" if row.is_met else "MISSED",
            )
            for row in compared
        ),
    ]


def _aligned(table: Table) -> Iterator[str]:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = (
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def _table(table: Table) -> Iterator[str]:
    heading, *body = table
    yield _line(heading)
    yield _line("---" if column < 2 else "---:" for column in range(len(heading)))
    for row in body:
        yield _line(row)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _value(value: float, unit: str) -> str:
    return f"{value:,.2f}" if unit != RATE else f"{value:,.0f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _megabytes(value: float | None) -> str:
    return "" if value is None else f"{value / 1e6:,.1f}"


def _decimal(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}"


def _times(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f} x"


def _share(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.0%}"


def _without_nan(value: object) -> object:
    """Replace what JSON cannot say by null."""
    if isinstance(value, float):
        return None if math.isnan(value) or math.isinf(value) else value
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return value
