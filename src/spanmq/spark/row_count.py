"""How many rows a stream has read, told batch by batch: Spark itself keeps the last hundred reports only."""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

# The end of a query is reported after all of its batches, and may still be pending when awaitTermination
# returns.
END_SECONDS: Final = 60.0


class RowCount(StreamingQueryListener):
    """Counts for a block what the queries of a session read that begin within it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._changed = threading.Condition()
        self._rows: Counter[str] = Counter()
        self._ended: set[str] = set()

    def __enter__(self) -> Self:
        self._spark.streams.addListener(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spark.streams.removeListener(self)

    def so_far(self, query: StreamingQuery) -> int:
        """Return the number of rows in the batches reported so far."""
        with self._changed:
            return self._rows[str(query.runId)]

    def whole(self, query: StreamingQuery) -> int:
        """Return the number of rows in all batches of a query that has ended."""
        run = str(query.runId)
        with self._changed:
            self._changed.wait_for(lambda: run in self._ended, END_SECONDS)
            return self._rows[run]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: it has read nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Add a batch."""
        with self._changed:
            self._rows[str(event.progress.runId)] += event.progress.numInputRows

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Record the end of the query: no batch will follow."""
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()
