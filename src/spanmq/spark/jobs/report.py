"""report: what the queues did, from a lake or from archives: numbers for tables, and an HTML page."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame, SparkSession

from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq.spark.cause import clear_errors
from spanmq.spark.jobs.archived import lake_frame
from spanmq.spark.jobs.lake import Lake, lake_at
from spanmq.spark.jobs.lake_format import known_table
from spanmq.spark.jobs.page import PipelineReport, write_page

__all__ = ["report"]

WINDOWS: Final = 60
GROUPS: Final = 10
# The columns that a report reads: without the bodies, which are most of a lake.
_NEEDED: Final = (
    *("queue", "message_id", "attempt", "enqueued_at", "last_read_at", "archived_at", "group"),
    *("dead_at", "category", "history"),
)
_FACTS: Final = "queue, attempt, enqueued_at, last_read_at, archived_at, group"
Row = dict[str, Any]

_WAITED: Final = "unix_micros(last_read_at) / 1e6 - unix_micros(enqueued_at) / 1e6"
_LENGTH: Final = "unix_micros(max(archived_at)) / 1e6 - unix_micros(min(archived_at)) / 1e6"
_HANDLED: Final = "unix_micros(archived_at) / 1e6 - unix_micros(last_read_at) / 1e6"


def report(
    spark: SparkSession,
    *,
    lake: str | Path | None = None,
    dsn: str | None = None,
    queue: str | None = None,
    page: str | Path | None = None,
    dry_run: bool = False,
) -> PipelineReport:
    """Count what was archived, by queue and window: how much, how long it waited, how often it was tried.

    `spark` is the session. From the files of a `lake` that exports made, or from the archives of `queue` (a name, list
    or pattern) in the database of a `dsn`. `page` is the HTML file to write. With `dry_run` only messages and failures
    are counted, by queue, and no page is written. Raises PipelineError where there is nothing to report,
    InvalidArgumentError unless one of the two is named, and QueueNotFoundError.
    """
    began = time.monotonic()
    if (lake is None) == (dsn is None):
        raise InvalidArgumentError("a report is made from a lake or from a database")
    with clear_errors():
        if lake is not None:
            source, failures = _from_lake(spark, lake_at(lake))
        else:
            source = _stored(spark, str(dsn), queue, "archive", _FACTS)
            failures = _stored(spark, str(dsn), queue, "failures", "queue, category, outcome, failed_at")
        found = (_count_rows if dry_run else _count)(source, failures, str(lake or queue))
    written = str(page) if page is not None else None
    where = f"the lake {lake}" if lake is not None else f"the database {_database(str(dsn))}"
    found = replace(found, seconds=time.monotonic() - began, page=written, source=where)
    if page is not None and not dry_run:
        write_page(Path(page), found)
    return found


def _count(source: DataFrame, failures: DataFrame, name: str) -> PipelineReport:
    facts = source.selectExpr(
        "queue", "attempt", "archived_at", "`group`", f"{_WAITED} as waited", f"{_HANDLED} as handled"
    ).cache()
    failed = failures.cache()
    try:
        first, last = _bounds(facts, "archived_at")
        first_failed, last_failed = _bounds(failed, "failed_at")
        if first is None and first_failed is None:
            raise _nothing(name)
        start = min(each for each in (first, first_failed) if each is not None)
        end = max(each for each in (last, last_failed) if each is not None)
        width = max((end - start) / WINDOWS, 0.001)
        return PipelineReport(
            queues=_queues(facts),
            windows=_windows(facts, start, width),
            attempts=_grouped(facts, ("queue", "attempt"), "count(*) as count"),
            groups=_groups(facts),
            failures=_grouped(failed, ("queue", "category", "outcome"), "count(*) as failures"),
            dead_letters=_growth(failed, start, width),
            window_seconds=width,
            seconds=0.0,
            page=None,
        )
    finally:
        facts.unpersist()
        failed.unpersist()


def _count_rows(source: DataFrame, failures: DataFrame, name: str) -> PipelineReport:
    """Count what a report would be about."""
    queues = _grouped(source, ("queue",), "count(*) as messages")
    failed = _grouped(failures, ("queue",), "count(*) as failures")
    if not queues and not failed:
        raise _nothing(name)
    return PipelineReport(
        queues=queues,
        windows=[],
        attempts=[],
        groups=[],
        failures=failed,
        dead_letters=[],
        window_seconds=0.0,
        seconds=0.0,
        page=None,
        is_dry_run=True,
    )


def _database(dsn: str) -> str:
    given = conninfo_to_dict(dsn)
    name, host = given.get("dbname") or given.get("user") or "", given.get("host")
    return f"{name} on {host}" if host else str(name)


def _nothing(name: str) -> PipelineError:
    return PipelineError(f"nothing was archived in {name}, and nothing failed: there is nothing to report")


def _bounds(frame: DataFrame, name: str) -> tuple[float | None, float | None]:
    """Return the first and the last time, in seconds."""
    row = frame.selectExpr(
        f"unix_micros(min({name})) / 1e6 as first", f"unix_micros(max({name})) / 1e6 as last"
    ).first()
    if row is None or row.first is None:
        return None, None
    return float(row.first), float(row.last)


def _from_lake(spark: SparkSession, lake: Lake) -> tuple[DataFrame, DataFrame]:
    """Read the files that manifests name, and no others: what was archived, and the failures of what died."""
    archived, died = (_table(spark, lake, name) for name in ("archive", "dead_letters"))
    if archived is None and died is None:
        raise PipelineError(f"{lake.uri} holds no export", hint="spanmq pipeline export makes one.")
    schema = "queue string, attempt int, enqueued_at timestamp, last_read_at timestamp, archived_at timestamp"
    empty = spark.createDataFrame([], f"{schema}, `group` string")
    if died is None:
        none = "queue string, category string, outcome string, failed_at timestamp"
        return archived or empty, spark.createDataFrame([], none)
    story = "array<struct<failed_at: timestamp, attempt: int, outcome: string, category: string>>"
    earlier = died.selectExpr(
        "queue",
        "message_id",
        f"inline(from_json(history, '{story}')) as (failed_at, attempt, outcome, category)",
    )
    last = died.selectExpr("queue", "message_id", "dead_at", "attempt", "'dead'", "category")
    # A message that died twice has the failures of its first attempts in both histories.
    failures = earlier.dropDuplicates().unionAll(last)
    return archived or empty, failures.select("queue", "category", "outcome", "failed_at")


def _table(spark: SparkSession, lake: Lake, name: str) -> DataFrame | None:
    files = known_table(None, lake, name)
    names = files.read(None)
    return lake_frame(spark, lake, name, names, _NEEDED, deleted=files.deleted(None)) if names else None


def _stored(spark: SparkSession, dsn: str, queue: str | None, table: str, columns: str) -> DataFrame:
    reader = spark.read.format("spanmq").option("dsn", dsn).option("queue", queue or "*")
    return reader.option("table", table).option("columns", columns).load()


def _queues(facts: DataFrame) -> list[Row]:
    return _grouped(
        facts,
        ("queue",),
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


def _windows(facts: DataFrame, first: float, width: float) -> list[Row]:
    number, at, length = _window("archived_at", first, width)
    return _grouped(
        facts.selectExpr("*", f"{number} as number"),
        ("queue", "number"),
        f"{at} as at",
        "count(*) as messages",
        f"count(*) / {length} as rate",
        "percentile_approx(waited, 0.5) as waited_p50",
        "percentile_approx(waited, 0.95) as waited_p95",
        "percentile_approx(handled, 0.95) as handled_p95",
    )


def _growth(failures: DataFrame, first: float, width: float) -> list[Row]:
    """Count deaths by queue and window, and add them up."""
    number, at, _ = _window("failed_at", first, width)
    dead = failures.filter("outcome = 'dead'").selectExpr("*", f"{number} as number")
    counted = _aggregated(dead, ("queue", "number"), f"{at} as at", "count(*) as dead_letters")
    total = "sum(dead_letters) over (partition by queue order by number) as total"
    return _rows(counted.selectExpr("*", total).orderBy("queue", "number"))


def _window(time_of: str, first: float, width: float) -> tuple[str, str, str]:
    """Return the index of the window of a time, its beginning and its length, as SQL."""
    # As doubles: Spark takes a number with a point for a decimal.
    start, length = f"double('{first!r}')", f"double('{width!r}')"
    number = f"least(cast((unix_micros({time_of}) / 1e6 - {start}) / {length} as int), {WINDOWS - 1})"
    at = f"timestamp_micros(cast(({start} + first(number) * {length}) * 1e6 as bigint))"
    return number, at, length


def _groups(facts: DataFrame) -> list[Row]:
    figures = ("count(*) as messages", "avg(waited + handled) as seconds", "max(attempt) as attempts_max")
    grouped = _aggregated(facts.filter("`group` is not null"), ("queue", "group"), *figures)
    return _rows(grouped.orderBy("seconds", ascending=False).limit(GROUPS))


def _aggregated(frame: DataFrame, by: Sequence[str], *expressions: str) -> DataFrame:
    from pyspark.sql.functions import expr

    return frame.groupBy(*by).agg(*(expr(each) for each in expressions))


def _grouped(frame: DataFrame, by: Sequence[str], *expressions: str) -> list[Row]:
    return _rows(_aggregated(frame, by, *expressions).orderBy(*by))


def _rows(frame: DataFrame) -> list[Row]:
    return [row.asDict() for row in frame.collect()]
