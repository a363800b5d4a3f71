"""report: what the queues did, from a lake or from archives: numbers for tables, and an HTML page."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq.spark.jobs.manifest import FOLDER, read_manifests
from spanmq.spark.jobs.page import write_page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOWS: Final = 60
GROUPS: Final = 10
Row = dict[str, Any]

_WAITED: Final = "unix_micros(last_read_at) / 1e6 - unix_micros(enqueued_at) / 1e6"
_LENGTH: Final = "unix_micros(max(archived_at)) / 1e6 - unix_micros(min(archived_at)) / 1e6"
_HANDLED: Final = "unix_micros(archived_at) / 1e6 - unix_micros(last_read_at) / 1e6"


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """What was found. Times are in seconds; a window is `window_seconds` long and begins at `at`."""

    queues: list[Row]
    windows: list[Row]
    attempts: list[Row]
    groups: list[Row]
    window_seconds: float
    seconds: float
    page: str | None


def report(
    spark: SparkSession,
    *,
    lake: str | Path | None = None,
    dsn: str | None = None,
    queue: str | None = None,
    page: str | Path | None = None,
) -> PipelineReport:
    """Count what was archived, by queue and window: how much, how long it waited, how often it was tried.

    From the files of a `lake` that exports made, or from the archives of `queue` (a name, list or pattern) in
    the database. `page` is the HTML file to write. Raises PipelineError where there is nothing to report.
    """
    began = time.monotonic()
    if (lake is None) == (dsn is None):
        raise InvalidArgumentError("a report is made from a lake or from a database")
    if lake is not None:
        source = _from_lake(spark, Path(lake))
    else:
        source = _from_archive(spark, str(dsn), queue or "*")
    facts = source.selectExpr(
        "queue", "attempt", "archived_at", "`group`", f"{_WAITED} as waited", f"{_HANDLED} as handled"
    ).cache()
    try:
        span = facts.selectExpr(
            "min(archived_at) as first", "unix_micros(max(archived_at)) / 1e6 as last", "count(*) as n"
        ).selectExpr("unix_micros(first) / 1e6 as first", "last", "n")
        bounds = span.first()
        if bounds is None or not bounds.n:
            raise PipelineError(f"nothing was archived in {lake or queue}: there is nothing to report")
        width = max(float(bounds.last - bounds.first) / WINDOWS, 0.001)
        found = PipelineReport(
            queues=_queues(facts),
            windows=_windows(facts, float(bounds.first), width),
            attempts=_rows(facts.groupBy("queue", "attempt").count().orderBy("queue", "attempt")),
            groups=_groups(facts),
            window_seconds=width,
            seconds=time.monotonic() - began,
            page=str(page) if page is not None else None,
        )
    finally:
        facts.unpersist()
    if page is not None:
        write_page(Path(page), found.queues, found.windows, found.attempts, found.groups)
    return found


def _from_lake(spark: SparkSession, lake: Path) -> DataFrame:
    """Read the files that manifests name, and no others."""
    names = {path.name.rsplit("-", 1)[0] for path in (lake / FOLDER).glob("*.json")}
    files = [name for queue in sorted(names) for each in read_manifests(lake, queue) for name in each.files]
    if not files:
        raise PipelineError(f"{lake} holds no export", hint="spanmq pipeline export makes one.")
    return spark.read.option("basePath", str(lake)).parquet(*[str(lake / name) for name in files])


def _from_archive(spark: SparkSession, dsn: str, queue: str) -> DataFrame:
    reader = spark.read.format("spanmq").option("dsn", dsn).option("queue", queue).option("table", "archive")
    return reader.option("columns", "queue, attempt, enqueued_at, last_read_at, archived_at, group").load()


def _queues(facts: DataFrame) -> list[Row]:
    return _rows(
        facts.groupBy("queue")
        .agg(
            *_expressions(
                "count(*) as messages",
                "min(archived_at) as first_archived_at",
                "max(archived_at) as last_archived_at",
                f"count(*) / greatest({_LENGTH}, 1e-3) as rate",
                "percentile_approx(waited, 0.5) as waited_p50",
                "percentile_approx(waited, 0.95) as waited_p95",
                "max(waited) as waited_max",
                "percentile_approx(handled, 0.5) as handled_p50",
                "percentile_approx(handled, 0.95) as handled_p95",
                "avg(attempt) as attempts",
                "count_if(attempt > 1) as delivered_again",
            )
        )
        .orderBy("queue")
    )


def _windows(facts: DataFrame, first: float, width: float) -> list[Row]:
    # As doubles: Spark takes a number with a point for a decimal.
    start, length = f"double('{first!r}')", f"double('{width!r}')"
    number = f"least(cast((unix_micros(archived_at) / 1e6 - {start}) / {length} as int), {WINDOWS - 1})"
    return _rows(
        facts.selectExpr("*", f"{number} as number")
        .groupBy("queue", "number")
        .agg(
            *_expressions(
                f"timestamp_micros(cast(({start} + first(number) * {length}) * 1e6 as bigint)) as at",
                "count(*) as messages",
                f"count(*) / {length} as rate",
                "percentile_approx(waited, 0.5) as waited_p50",
                "percentile_approx(waited, 0.95) as waited_p95",
            )
        )
        .orderBy("queue", "number")
    )


def _groups(facts: DataFrame) -> list[Row]:
    return _rows(
        facts.filter("`group` is not null")
        .groupBy("queue", "group")
        .agg(
            *_expressions(
                "count(*) as messages", "avg(waited + handled) as seconds", "max(attempt) as attempts_max"
            )
        )
        .orderBy("seconds", ascending=False)
        .limit(GROUPS)
    )


def _expressions(*texts: str) -> list[Any]:
    from pyspark.sql.functions import expr

    return [expr(text) for text in texts]


def _rows(frame: DataFrame) -> list[Row]:
    return [row.asDict() for row in frame.collect()]
