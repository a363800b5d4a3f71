"""A sink that accepts the columns and options of Spark's own for Kafka, which is not a part of PySpark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

HEADERS = "array<struct<key:string,value:binary>>"


class KafkaSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "kafka_test"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer; the types are those that Kafka's sink requires."""
        assert not overwrite
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        assert types == {"key": "string", "value": "string", "headers": HEADERS}
        assert self.options["kafka.bootstrap.servers"]
        assert self.options["includeHeaders"] == "true"
        return _Writer(Path(self.options["topic"]))


class _Writer(DataSourceWriter):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Write the rows of a task to a file of its own."""
        context = TaskContext.get()
        assert context is not None
        rows = [
            {"key": row.key, "value": row.value, "headers": {h.key: h.value.decode() for h in row.headers}}
            for row in iterator
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self._folder / f"{context.partitionId()}.part").write_text(text)
        return WriterCommitMessage()
