"""dead-letters: dead letters by cause, what kind of failure each seems to be, and acting on a selection."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession

from spanmq.client.calls import Rows, SqlCall, argument, queue_call
from spanmq.codec import SEALED_KEY
from spanmq.errors import InvalidArgumentError
from spanmq.model.cause import DIFFERENT, LENGTH, regex_of
from spanmq_spark import rows
from spanmq_spark.cause import clear_errors
from spanmq_spark.jobs.recorded import recorded
from spanmq_spark.options import hint_of

__all__ = ["Cause", "Change", "DeadLettersReport", "dead_letters"]

Act = Literal["redrive", "discard"]
Progress = Callable[[int], None]
Id = TypeVar("Id")

# Causes that are shown: those with the most dead letters. A selection may name any.
CAUSES_MAX: Final = 1_000
# Dead letters of one call, each a transaction; and characters of new bodies.
CHUNK: Final = 1_000
CHUNK_CHARACTERS: Final = 16_000_000
PREVIEW: Final = 10
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
class Change:
    """A body before and after the expression."""

    queue: str
    message_id: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class DeadLettersReport:
    """The causes, the largest first; `act` was about `chosen` dead letters, and was applied to `done` of them.

    `changes` are the first ten of a dry run with an expression for the body.
    """

    causes: list[Cause]
    act: str | None
    chosen: int
    done: int
    seconds: float
    is_dry_run: bool
    changes: list[Change] = field(default_factory=list)


@recorded(
    "dead_letters", lambda arguments: arguments["act"], when=lambda arguments: arguments["act"] is not None
)
def dead_letters(
    spark: SparkSession,
    dsn: str,
    queue: str = "*",
    *,
    act: Act | None = None,
    causes: Sequence[str] = (),
    category: str | None = None,
    all_causes: bool = False,
    body: str | None = None,
    rate: float | None = None,
    delay: float | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> DeadLettersReport:
    """Group the dead letters of a `queue` (a name, list or pattern) by cause; `act`, "redrive" or "discard", on some.

    `spark` is the session and `dsn` the database. With `dry_run` nothing is done; `progress` is called with the number
    that is done. A selection is of `causes` (by their names), of a `category`, or of both; or it is `all_causes`. They
    are processed a thousand at a time, in the order of their messages; if a run is killed, the next one does the rest,
    and none is redriven twice. With a `rate` this number becomes visible each second, from `delay` seconds on (None:
    the `redrive_delay` of the queue's policy). `body`, an expression of Spark SQL over the dead letter's `body` and
    other columns, is the JSON of the body that a message is redriven with. Raises InvalidArgumentError for a cause that
    does not exist, and, before anything is redriven, for an expression that makes JSON of not all bodies.
    """
    began = time.monotonic()
    if act not in (None, "redrive", "discard"):
        raise InvalidArgumentError(f"dead letters can be redriven or discarded, not {act!r}")
    if act is not None and not (causes or category or all_causes):
        raise InvalidArgumentError(
            f"no selection says which dead letters to {act}",
            hint="Name causes, a category, or say all of them.",
        )
    if body is not None and act != "redrive":
        raise InvalidArgumentError("an expression for the body is for redriving")
    with clear_errors():
        waiting_causes = _causes(spark, dsn, queue)
        waiting = _letters(spark, dsn, queue, body).filter("redriven_at is null")
        _check(waiting, waiting_causes, causes)
        chosen, done, changes = 0, 0, list[Change]()
        if act is not None:
            selected = waiting
            if causes:
                selected = selected.filter(selected.cause.isin(list(causes)))
            if category is not None:
                selected = selected.filter(selected.category == category)
            chosen = selected.count()
            if body is not None:
                _check_bodies(selected)
            if not dry_run:
                done = _act(dsn, act, _chosen(selected), rate, delay, progress)
            elif body is not None:
                first = selected.select("queue", "message_id", "body", "new_body")
                changes = [Change(*row) for row in first.orderBy("queue", "message_id").take(PREVIEW)]
    return DeadLettersReport(waiting_causes, act, chosen, done, time.monotonic() - began, dry_run, changes)


def _letters(spark: SparkSession, dsn: str, queue: str, body: str | None = None) -> DataFrame:
    """Read all dead letters, redriven ones included, each with its cause and its new body, if any.

    Read again for each use: Spark keeps the filters that it pushed into a frame's source for later uses.
    """
    from pyspark.sql.functions import col, expr, lit

    reader = (
        spark.read.format("spanmq").option("dsn", dsn).option("queue", queue).option("table", "dead_letters")
    )
    if body is None:
        read = reader.option("columns", _COLUMNS).load().withColumn("new_body", lit(None).cast("string"))
    else:
        read = reader.load().withColumn("new_body", expr(body).cast("string"))
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
    causes = []
    with rows.connected(dsn) as server:
        categories = server.dead_letters.categories
        for row in shown:
            put_back, died_again = experience.get((row["queue"], row["cause"]), (0, 0))
            error = {"error": row["error"], "error_class": row["error_class"]}
            rule = categories.classify(**error, queue=row["queue"])
            proposal, reason = propose(rule, put_back, died_again)
            causes.append(
                Cause(
                    **row,
                    put_back=put_back,
                    died_again=died_again,
                    proposal=proposal,
                    reason=reason,
                    rule=regex_of(row["pattern"]),
                )
            )
    return causes


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


def _check(waiting: DataFrame, waiting_causes: list[Cause], causes: Sequence[str]) -> None:
    """Refuse causes that no dead letter has."""
    known = {cause.cause for cause in waiting_causes}
    unknown = [name for name in causes if name not in known]
    if unknown and len(waiting_causes) == CAUSES_MAX:
        more = waiting.select("cause").distinct()
        known |= {row.cause for row in more.filter(more.cause.isin(unknown)).collect()}
    for name in unknown:
        if name not in known:
            hint = hint_of(name, known, "Without an act the job lists them.")
            raise InvalidArgumentError(f"no dead letter that waits has the cause {name!r}", hint=hint)


def _check_bodies(selected: DataFrame) -> None:
    """Refuse an expression that makes JSON of not all bodies, and bodies that are encrypted."""
    sealed = f"startswith(body, '{{\"{SEALED_KEY}\"')"
    wrong = selected.filter(f"{sealed} or new_body is null or try_parse_json(new_body) is null")
    for row in wrong.selectExpr("queue", "message_id", "new_body", f"{sealed} as is_sealed").take(1):
        if row.is_sealed:
            raise InvalidArgumentError(
                f"the body of message {row.message_id} of queue {row.queue} is encrypted"
            )
        result = "NULL" if row.new_body is None else row.new_body[:100]
        raise InvalidArgumentError(
            f"the expression does not make JSON of the body of message {row.message_id} of queue {row.queue}, "
            f"but {result}",
            hint="to_json(…) makes JSON of a struct.",
        )


def _chosen(selected: DataFrame) -> Iterator[tuple[str, tuple[int, str | None]]]:
    ordered = selected.select("queue", "message_id", "dead_letter_id", "new_body").orderBy(
        "queue", "message_id"
    )
    for row in ordered.toLocalIterator():
        yield row.queue, (row.dead_letter_id, row.new_body)


def _act(
    dsn: str,
    act: Act,
    letters: Iterable[tuple[str, tuple[int, str | None]]],
    rate: float | None,
    delay: float | None,
    progress: Progress | None,
) -> int:
    """Act on one chunk after the other, each of one queue."""
    done = 0
    with rows.connected(dsn) as server:
        for queue, chunk in chunks(letters, lambda letter: len(letter[1] or "")):
            if act == "discard":
                ids = [id_ for id_, _ in chunk]
                done += server.dead_letters.discard(queue, dead_letter_ids=ids, limit=len(ids))
            else:
                later = done / rate if rate else 0.0
                first = server.queues.policy(queue).redrive_delay if delay is None else delay
                done += server.admin.run(_redrive(queue, chunk, rate, first + later))
            if progress is not None:
                progress(done)
    return done


def _redrive(
    queue: str, letters: list[tuple[int, str | None]], rate: float | None, delay: float
) -> SqlCall[int]:
    """Redrive dead letters by their ids, each with its new body (None: as it was); return how many."""

    def redriven(result: Rows) -> int:
        return sum(row.get("beside") is None for row in result.records())

    bodies = [body for _, body in letters]
    arguments = (
        argument.bigints("dead_letter_ids", (letter_id for letter_id, _ in letters)),
        *argument.optional(argument.jsons, "new_messages", bodies if any(bodies) else None),
        argument.integer("qty", len(letters)),
        *argument.optional(argument.real, "rate", rate),
        argument.seconds("delay", delay),
    )
    return queue_call(queue, "redrive", redriven, *arguments)


def chunks(
    ids: Iterable[tuple[str, Id]], size: Callable[[Id], int] = lambda _: 0
) -> Iterator[tuple[str, list[Id]]]:
    """Gather up to CHUNK ids of one queue, and no more once they have CHUNK_CHARACTERS by `size`."""
    held: list[Id] = []
    of_queue, characters = "", 0
    for queue, id_ in ids:
        if held and (queue != of_queue or len(held) == CHUNK or characters >= CHUNK_CHARACTERS):
            yield of_queue, held
            held, characters = [], 0
        of_queue = queue
        held.append(id_)
        characters += size(id_)
    if held:
        yield of_queue, held


def pattern(error: Column) -> Column:
    """Return the first line of an error, with placeholders for the variable parts."""
    from pyspark.sql import functions as f

    text = f.regexp_extract(f.substring(f.coalesce(error, f.lit("")), 1, LENGTH), r"\s*([^\r\n]*)", 1)
    for different, word in DIFFERENT:
        # Java has $1 for the first group.
        text = f.regexp_replace(text, different, re.sub(r"\\(\d)", r"$\1", word))
    return f.trim(text)


def fingerprint(error_class: Column, pattern: Column) -> Column:
    """Return a short name for a class and a pattern."""
    from pyspark.sql import functions as f

    both = f.concat_ws("\n", f.coalesce(error_class, f.lit("")), pattern)
    return f.substring(f.md5(both.cast("binary")), 1, 10)
