"""How far Spark is with what it does now: tasks that are done, of those that are known."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 0.5

Told = Callable[[int, int], None]


@contextmanager
def told_of_tasks(spark: SparkSession, tell: Told) -> Iterator[None]:
    """Call `tell` during the block, now and then while tasks run: with how many are done, and of how many."""
    is_over = threading.Event()

    def look() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not is_over.wait(LOOK_SECONDS):
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            known = [(each.numCompletedTasks, each.numTasks) for each in stages if each is not None]
            if known:
                tell(sum(done for done, _ in known), sum(n for _, n in known))

    thread = threading.Thread(target=look, name="spanmq progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
