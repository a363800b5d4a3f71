"""What the jobs use of a session of Spark, without a JVM: each task runs at once, here."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow
from pyspark.sql import Row

Task = Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]


class Frame:
    """A column of values, each the only one of its task; perhaps with what tasks make of them."""

    def __init__(self, values: Sequence[Any], name: str, task: Task | None = None) -> None:
        self._values, self._name, self._task = values, name, task

    def withColumnRenamed(self, _: str, name: str) -> "Frame":  # noqa: N802
        return Frame(self._values, name)

    def coalesce(self, _: int) -> "Frame":
        return self

    def mapInArrow(self, task: Task, _: str) -> "Frame":  # noqa: N802
        return Frame(self._values, self._name, task)

    def collect(self) -> list[Row]:
        assert self._task is not None
        batches = [pyarrow.RecordBatch.from_pydict({self._name: [each]}) for each in self._values]
        return [
            Row(**row) for each in batches for done in self._task(iter([each])) for row in done.to_pylist()
        ]

    def count(self) -> int:
        return len(self.collect())


class Session:
    """Stands in for a SparkSession in an export."""

    def range(self, first: int, end: int, step: int, _: int) -> Frame:
        return Frame(range(first, end, step), "id")

    def createDataFrame(self, rows: Sequence[tuple[Any]], schema: str) -> Frame:  # noqa: N802
        return Frame([value for (value,) in rows], schema.split(maxsplit=1)[0])
