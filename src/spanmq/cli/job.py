"""The context of a command that runs a job over Spark: its session, and its progress."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from spanmq.cli.progress import awaited, is_shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[str | None, typer.Option(help="Spark's master, such as local[4]. Without it local[*].")]


@dataclass(frozen=True, slots=True)
class Job:
    """The context of a running job: a session, and a function that shows its progress."""

    spark: "SparkSession"
    told: Callable[[int], None]


@contextmanager
def running(master: str | None, what: str) -> Iterator[Job]:
    """Yield a session for a job; errors of Spark are raised with one message."""
    from spanmq.spark.cause import clear_errors
    from spanmq.spark.session import opened, told_of_tasks

    is_counted = False
    with awaited(what) as say_far, clear_errors():

        def told(count: int) -> None:
            nonlocal is_counted
            is_counted = True
            say_far(f"{count:,} messages")

        def told_tasks(done: int, n: int) -> None:
            if not is_counted:
                say_far(f"{done:,} of {n:,} tasks")

        with (
            opened(master, name=f"spanmq {what}") as spark,
            told_of_tasks(spark, told_tasks) if is_shown() else nullcontext(),
        ):
            yield Job(spark, told)
