"""dead-letters: dead letters by cause, what kind of failure each seems to be, and acting on a selection."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from spanmq.errors import InvalidArgumentError
from spanmq.model.cause import DIFFERENT, LENGTH, regex_of
from spanmq.spark import rows
from spanmq.spark.cause import clear_errors
from spanmq.spark.jobs.recorded import recorded

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Act = Literal["redrive", "discard"]
Progress = Callable[[int], None]

# Causes that are shown: those with the most dead letters. A selection may name any.
CAUSES_MAX: Final = 1_000
# Dead letters of one call, each a transaction.
CHUNK: Final = 1_000
# The minimum of redriven messages, and of those whose outcome is known, for a proposal.
EXPERIENCE: Final = 3
MOST: Final = 0.8
_COLUMNS: Final = (
    "queue, dead_letter_id, message_id, dead_at, redriven_at, category, error, error_class, group"
)


@dataclass(frozen=True, slots=True)
class Cause:
    """Dead letters of one queue that wait, with the same error but for what differs from one to the next.

    `put_back` counts those of this cause that were redriven before and are not in the queue any more,
    `died_again` how many of them came back here. `proposal` is the category that `reason` speaks for, if
    any does; `rule` an expression that finds these errors.
    """

    cause: str
    queue: str
    dead_letters: int
    categories: list[str]
    error_class: str | None
    error: str | None
    pattern: str
    groups: int
    first_dead_at: datetime
    last_dead_at: datetime
    put_back: int
    died_again: int
    proposal: str | None
    reason: str | None
    rule: str


@dataclass(frozen=True, slots=True)
class DeadLettersReport:
    """What was found, the largest first; `act` was about `chosen` dead letters, and done with `done`."""

    causes: list[Cause]
    act: str | None
    chosen: int
    done: int
    seconds: float
    is_dry_run: bool


@recorded("dead_letters", lambda given: given["act"], when=lambda given: given["act"] is not None)
def dead_letters(
    spark: SparkSession,
    dsn: str,
    queue: str = "*",
    *,
    act: Act | None = None,
    causes: Sequence[str] = (),
    category: str | None = None,
    all_causes: bool = False,
    rate: float | None = None,
    delay: float = 0.0,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> DeadLettersReport:
    """Group the dead letters of queues (a name, list or pattern) by cause; redrive or discard a selection.

    A selection is of `causes` (by their names), of a `category`, or of both; or it is `all_causes`. They are
    processed a thousand at a time, in the order of their messages; if a run is killed, the next one does the
    rest, and none is redriven twice. With a `rate` this number becomes visible each second, from `delay`
    seconds on. Raises InvalidArgumentError for a cause that does not exist.
    """
    began = time.monotonic()
    if act not in (None, "redrive", "discard"):
        raise InvalidArgumentError(f"dead letters can be redriven or discarded, not {act!r}")
    if act is not None and not (causes or category or all_causes):
        raise InvalidArgumentError(
            f"nothing says which dead letters to {act}", hint="Name causes, a category, or say all of them."
        )
    with clear_errors():
        found = _causes(spark, dsn, queue)
        waiting = _letters(spark, dsn, queue).filter("redriven_at is null")
        _check(waiting, found, causes)
        chosen, done = 0, 0
        if act is not None:
            selected = waiting
            if causes:
                selected = selected.filter(selected.cause.isin(list(causes)))
            if category is not None:
                selected = selected.filter(selected.category == category)
            chosen = selected.count()
            if not dry_run:
                done = _act(dsn, act, _ids(selected), rate, delay, progress)
    return DeadLettersReport(found, act, chosen, done, time.monotonic() - began, dry_run)


def _letters(spark: SparkSession, dsn: str, queue: str) -> DataFrame:
    """Read all dead letters, redriven ones included, each with its cause.

    Read again for each use: Spark keeps the filters that it pushed into a frame's source for later uses.
    """
    from pyspark.sql.functions import col

    reader = spark.read.format("spanmq").option("dsn", dsn).option("queue", queue)
    read = reader.option("table", "dead_letters").option("columns", _COLUMNS).load()
    with_pattern = read.withColumn("pattern", pattern(col("error")))
    return with_pattern.withColumn("cause", fingerprint(col("error_class"), col("pattern")))


def _causes(spark: SparkSession, dsn: str, queue: str) -> list[Cause]:
    from pyspark.sql.functions import expr

    waiting = _letters(spark, dsn, queue).filter("redriven_at is null").groupBy("queue", "cause")
    counted = waiting.agg(
        expr("count(*) as dead_letters"),
        expr("sort_array(collect_set(category)) as categories"),
        expr("first(error_class) as error_class"),
        expr("max_by(error, dead_letter_id) as error"),
        expr("first(pattern) as pattern"),
        expr("count(distinct `group`) as groups"),
        expr("min(dead_at) as first_dead_at"),
        expr("max(dead_at) as last_dead_at"),
    )
    shown = [
        row.asDict() for row in counted.orderBy("dead_letters", ascending=False).limit(CAUSES_MAX).collect()
    ]
    experience = _experience(spark, dsn, queue) if shown else {}
    found = []
    with rows.connected(dsn) as server:
        for row in shown:
            put_back, died_again = experience.get((row["queue"], row["cause"]), (0, 0))
            rule = rows.classify(server, row["queue"], row["error_class"], row["error"])
            proposal, reason = propose(rule, put_back, died_again)
            found.append(
                Cause(
                    **row,
                    put_back=put_back,
                    died_again=died_again,
                    proposal=proposal,
                    reason=reason,
                    rule=regex_of(row["pattern"]),
                )
            )
    return found


def _experience(spark: SparkSession, dsn: str, queue: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Return, by queue and cause, how many redriven messages are decided, and how many of these died again."""
    from pyspark.sql.functions import expr

    put_back = _letters(spark, dsn, queue).filter("redriven_at is not null").select("queue").distinct()
    queues = [row.queue for row in put_back.collect()]
    if not queues:
        return {}
    later = "lead(dead_letter_id) over (partition by queue, message_id order by dead_letter_id)"
    lives = _letters(spark, dsn, queue).withColumn("died_again", expr(f"{later} is not null"))
    reader = spark.read.format("spanmq").option("dsn", dsn).option("queue", ", ".join(queues))
    undecided = reader.option("columns", "queue, message_id").load()
    decided = lives.filter("redriven_at is not null").join(undecided, ["queue", "message_id"], "left_anti")
    counted = decided.groupBy("queue", "cause").agg(
        expr("count(*) as n"), expr("count_if(died_again) as died_again")
    )
    return {(row.queue, row.cause): (row.n, row.died_again) for row in counted.collect()}


def propose(rule: str, put_back: int, died_again: int) -> tuple[str | None, str | None]:
    """Return the proposed category and the reason: a rule, or the outcome of redriven messages."""
    if rule != "UNKNOWN":
        return rule, "a rule says so"
    share = died_again / put_back if put_back else 0.0
    if put_back < EXPERIENCE or 1 - MOST < share < MOST:
        return None, None
    told = f"{died_again} of {put_back} redriven messages died again"
    return ("PERMANENT" if share >= MOST else "TRANSIENT"), told


def _check(waiting: DataFrame, found: list[Cause], causes: Sequence[str]) -> None:
    """Refuse causes that no dead letter has."""
    known = {each.cause for each in found}
    wanted = [each for each in causes if each not in known]
    if wanted and len(found) == CAUSES_MAX:
        more = waiting.select("cause").distinct()
        known |= {row.cause for row in more.filter(more.cause.isin(wanted)).collect()}
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise InvalidArgumentError(
                f"no dead letter that waits has the cause {name!r}",
                hint=f"Did you mean {near[0]}?" if near else "Without an act the job lists them.",
            )


def _ids(selected: DataFrame) -> Iterator[tuple[str, int]]:
    ordered = selected.select("queue", "message_id", "dead_letter_id").orderBy("queue", "message_id")
    for row in ordered.toLocalIterator():
        yield row.queue, row.dead_letter_id


def _act(
    dsn: str,
    act: Act,
    ids: Iterable[tuple[str, int]],
    rate: float | None,
    delay: float,
    progress: Progress | None,
) -> int:
    """Act on one chunk after the other, each of one queue."""
    done = 0
    with rows.connected(dsn) as server:
        for queue, chunk in chunks(ids):
            if act == "discard":
                done += rows.discard(server, queue, chunk)
            else:
                later = done / rate if rate else 0.0
                done += rows.redrive(server, queue, chunk, rate, delay + later)
            if progress is not None:
                progress(done)
    return done


def chunks(ids: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """Gather up to CHUNK ids of one queue."""
    held: list[Any] = []
    of_queue = ""
    for queue, id_ in ids:
        if held and (queue != of_queue or len(held) == CHUNK):
            yield of_queue, held
            held = []
        of_queue = queue
        held.append(id_)
    if held:
        yield of_queue, held


def pattern(error: Column) -> Column:
    """Return the first line of an error, with placeholders for the variable parts."""
    from pyspark.sql import functions as f

    text = f.regexp_extract(f.substring(f.coalesce(error, f.lit("")), 1, LENGTH), r"\s*([^\r\n]*)", 1)
    for different, word in DIFFERENT:
        text = f.regexp_replace(text, different, word)
    return f.trim(text)


def fingerprint(error_class: Column, pattern: Column) -> Column:
    """Return a short name for a class and a pattern."""
    from pyspark.sql import functions as f

    both = f.concat_ws("\n", f.coalesce(error_class, f.lit("")), pattern)
    return f.substring(f.md5(both.cast("binary")), 1, 10)
