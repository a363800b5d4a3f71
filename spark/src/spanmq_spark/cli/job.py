"""The context of a command that runs a job over Spark: its session, and its progress."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from spanmq.cli.parts import awaited, is_shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[str | None, typer.Option(help="Spark's master, such as local[4]. Without it local[*].")]


class JobContext:
    """The context of a running job: a session, which starts when it is first used, and what shows its progress."""

    def __init__(self, start: "Callable[[], SparkSession]", told: Callable[[int], None]) -> None:
        self._start = start
        self._spark: SparkSession | None = None
        self.told = told

    @property
    def spark(self) -> "SparkSession":
        """The session."""
        if self._spark is None:
            self._spark = self._start()
        return self._spark


@contextmanager
def running(master: str | None, what: str) -> Iterator[JobContext]:
    """Yield what runs a job; errors of Spark are raised with one message."""
    from spanmq_spark.cause import clear_errors
    from spanmq_spark.session import opened, require, told_of_tasks

    is_counted = False
    require()
    with awaited(what) as say_far, clear_errors(), ExitStack() as stack:

        def told(count: int) -> None:
            nonlocal is_counted
            is_counted = True
            say_far(f"{count:,} messages")

        def told_tasks(done: int, n: int) -> None:
            if not is_counted:
                say_far(f"{done:,} of {n:,} tasks")

        def start() -> "SparkSession":
            spark = stack.enter_context(opened(master, name=f"spanmq {what}"))
            if is_shown():
                stack.enter_context(told_of_tasks(spark, told_tasks))
            return spark

        yield JobContext(start, told)
