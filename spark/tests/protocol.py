"""Spark's part in the protocol of a data source, without a JVM.

`Source` is the data source with a user's options, `save` writes a batch, `Stream` is a streaming query, whose
driver may be killed between any two steps. Each object that Spark sends to another process is pickled here,
too, and reads run Spark's own Python code (pyspark/sql/worker). A checkpoint has Spark's files, and is all
that a new driver knows.
"""

from __future__ import annotations

import io
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import pyarrow
from pyspark import TaskContext, serializers, worker_util
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.worker.plan_data_source_read import write_read_func_and_partitions

from pyspark_spanmq import DefaultSource

PICKLER: Any = worker_util.pickleSer
read_int: Any = serializers.read_int
Batches = list[pyarrow.RecordBatch]
Rows = list[dict[str, Any]]
# The id of a stream, the number of an epoch, and what its tasks have read.
Sink = Callable[[str, int, list[Batches]], None]
Task = Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]
ANY: Final = StructType().add("body", "string")
# In the order in which a batch passes them. The first batch only begins a checkpoint: it has no messages.
SEAMS: Final = ("claimed", "logged", "written", "committed")
FIRST_SEAMS: Final = tuple(f"first {seam}" for seam in SEAMS)


class Killed(BaseException):
    """A driver is killed here."""


def shipped(value: Any) -> Any:
    """Return what another process gets of a value."""
    return PICKLER.loads(PICKLER.dumps(value))


class Source:
    """The data source with options."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        texts = {key: str(value) for key, value in options.items()}
        self.source: DefaultSource = shipped(DefaultSource(cast(Any, CaseInsensitiveDict(texts))))

    @property
    def schema(self) -> StructType:
        """The columns."""
        return self.source.schema()

    def rows(self, reader: DataSourceReader | None = None) -> Rows:
        """Read a batch."""
        schema = self.schema
        task, partitions = self.planned(reader or self.source.reader(schema))
        return [row for each in partitions for batch in run(task, each, schema) for row in batch.to_pylist()]

    def planned(
        self, reader: DataSourceReader | DataSourceStreamReader, schema: StructType | None = None
    ) -> tuple[Task, list[bytes]]:
        """Return what Spark's planner gets: the function of each task, and a batch's pickled partitions."""
        sent = io.BytesIO()
        write_read_func_and_partitions(
            sent,
            reader=reader,
            data_source=self.source,
            schema=schema or self.schema,
            max_arrow_batch_size=10_000,
            binary_as_bytes=True,
        )
        sent.seek(0)
        task, _ = PICKLER._read_with_length(sent)
        return task, [sent.read(read_int(sent)) for _ in range(read_int(sent))]


def run(task: Task, partition: bytes, schema: StructType) -> Batches:
    """Run a task that reads; every batch must have the schema, of which Spark checks the first alone."""
    batches = list(task(iter([pyarrow.record_batch([pyarrow.array([partition])], names=["partition"])])))
    assert all(each.schema.equals(to_arrow_schema(schema, timezone="UTC")) for each in batches)
    return batches


@contextmanager
def running(query: str, epoch: int) -> Iterator[None]:
    """Be a task of an epoch for a block."""
    names = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(epoch)}
    TaskContext._setTaskContext(TaskContext(localProperties=names))
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


def save(
    source: Source, *tasks: Mapping[str, Sequence[Any]], overwrite: bool = False, attempts: int = 1
) -> None:
    """Write a batch, the columns of each task. Of several attempts the last one counts."""
    frames = [pyarrow.RecordBatch.from_pydict(dict(each)) for each in tasks]
    writer = source.source.writer(from_arrow_schema(frames[0].schema), overwrite)
    messages: list[Any] = []
    try:
        for frame in frames:
            written = [shipped(writer).write(iter([frame])) for _ in range(attempts)]
            messages.append(shipped(written[-1]))
    except Exception:
        # Of a task that failed Spark has no message.
        shipped(writer).abort([*messages, None])
        raise
    try:
        shipped(writer).commit(messages)
    except Exception:
        shipped(writer).abort(messages)
        raise


def sink_to(source: DataSource, *, overwrite: bool = False, of: StructType = ANY) -> Sink:
    """Return a data source as the sink of a stream; `of` is the schema of an epoch without rows."""

    def write(query: str, epoch: int, tasks: list[Batches]) -> None:
        schema = (
            from_arrow_schema(next(batch.schema for task in tasks for batch in task)) if any(tasks) else None
        )
        writer: Any = source.streamWriter(schema or of, overwrite)
        messages: list[Any] = []
        try:
            with running(query, epoch):
                # A batch without partitions has a task, too.
                messages += [shipped(shipped(writer).write(iter(task))) for task in tasks or [[]]]
        except Exception:
            shipped(writer).abort([*messages, None], epoch)
            raise
        # The process that commits makes a writer of its own.
        committing: Any = source.streamWriter(schema or of, overwrite)
        committing.commit(messages, epoch)

    return write


class Stream:
    """A streaming query: options, a checkpoint and a sink, over which drivers come and go.

    Without a sink `lake` has the rows of each epoch: as Spark's file sink it keeps an epoch that it has.
    """

    def __init__(
        self, options: Mapping[str, Any], checkpoint: Path, sink: Sink | None = None, attempts: int = 1
    ) -> None:
        self.options, self.checkpoint, self.attempts = options, checkpoint, attempts
        self.lake: dict[int, Rows] = {}
        self.sink = sink or self._keep
        self.drivers: list[Driver] = []

    def _keep(self, _: str, epoch: int, tasks: list[Batches]) -> None:
        rows = [row for task in tasks for batch in task for row in batch.to_pylist()]
        self.lake.setdefault(epoch, rows)

    @property
    def bodies(self) -> Counter[Any]:
        """What the lake has."""
        return Counter(json.loads(row["body"]) for rows in self.lake.values() for row in rows)

    def start(self, *, is_bounded: bool = False, **changed: Any) -> Driver:
        """Start a driver, perhaps with changed options."""
        driver = Driver(self, Source({**self.options, **changed}))
        self.drivers.append(driver)
        if is_bounded:
            driver.reader.prepareForTriggerAvailableNow()
        return driver

    def run(self, *, kill: str = "", **options: Any) -> list[int]:
        """Read all that waits now, as with the trigger availableNow; return the size of each batch with rows.

        The driver is killed at the seam `kill` of the first batch with messages, or of the first batch.
        """
        driver = self.start(is_bounded=True, **options)
        sizes: list[int] = []
        try:
            while (size := driver.step(kill)) is not None:
                sizes.append(size)
        except Killed:
            pass
        finally:
            driver.stop()
        return [size for size in sizes if size]

    def news(self, **options: Any) -> Counter[Any]:
        """Return the bodies that one more run brings."""
        before = self.bodies
        self.run(**options)
        return self.bodies - before

    def stop(self) -> None:
        """Stop all drivers."""
        for driver in self.drivers:
            driver.stop()

    def logged(self, log: str) -> dict[int, Path]:
        """Return the files of a log of the checkpoint: `offsets` or `commits`."""
        folder = self.checkpoint / log
        return {int(path.name): path for path in folder.iterdir()} if folder.exists() else {}


class Driver:
    """A driver of a stream, in the steps of Spark's MicroBatchExecution; offsets are JSON between them."""

    def __init__(self, stream: Stream, source: Source) -> None:
        self._stream, self._source = stream, source
        self.reader: Any = source.source.streamReader(source.schema)
        # The tasks' reader is another one, which has not been used.
        self._task, _ = source.planned(source.source.streamReader(source.schema))
        stream.checkpoint.mkdir(parents=True, exist_ok=True)
        metadata = stream.checkpoint / "metadata"
        if not metadata.exists():
            metadata.write_text(json.dumps({"id": str(uuid.uuid4())}))
        self._query = json.loads(metadata.read_text())["id"]
        self.offsets = {
            n: json.loads(each.read_text().splitlines()[2]) for n, each in stream.logged("offsets").items()
        }
        self._committed = max(stream.logged("commits"), default=-1)

    def stop(self) -> None:
        """Close connections, as the end of a process does."""
        self.reader.stop()

    def step(self, kill: str = "") -> int | None:
        """Run a micro-batch and return how many rows it has; None where nothing is new."""
        epoch = max(self.offsets, default=-1)
        if epoch == self._committed:
            start = self.offsets[epoch] if epoch >= 0 else self.reader.initialOffset()
            end = json.loads(json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit())))
            if end == start:
                return None
            self._reach("claimed", kill, start)
            epoch += 1
            self._log("offsets", epoch, "{}", json.dumps(end))
            self.offsets[epoch] = end
            if epoch:
                self.reader.commit(start)
        # Or the batch of a driver that was killed.
        start, end = self.offsets.get(epoch - 1, {}), self.offsets[epoch]
        self._reach("logged", kill, start)
        tasks = self.read(start, end)
        self._stream.sink(self._query, epoch, tasks)
        self._reach("written", kill, start)
        self._log("commits", epoch, "{}")
        self._committed = epoch
        self._reach("committed", kill, start)
        return int(sum(batch.num_rows for task in tasks for batch in task))

    def read(self, start: Any, end: Any) -> list[Batches]:
        """Read what is between two offsets, in tasks."""
        partitions = [PICKLER.dumps(each) for each in self.reader.partitions(start, end)]
        attempts = [
            [run(self._task, each, self._source.schema) for _ in range(self._stream.attempts)]
            for each in partitions
        ]
        return [each[-1] for each in attempts]

    def _reach(self, seam: str, kill: str, start: Any) -> None:
        if kill == (seam if start else f"first {seam}"):
            self.stop()
            raise Killed

    def _log(self, log: str, epoch: int, *lines: str) -> None:
        folder = self._stream.checkpoint / log
        folder.mkdir(exist_ok=True)
        (folder / str(epoch)).write_text("\n".join(["v1", *lines]))
