"""The data source `spanmq`, in a package whose name allows Spark to find it.

Spark imports this to list the data sources, even when it is not used: so it imports no other module of spanmq
until then. An error here would disable all other data sources.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Queues of a PostgreSQL database with spanmq."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # Not dict(options), which loses the keys' independence of case.
        self.options = options

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "spanmq"

    def schema(self) -> StructType:
        """Return the columns that the options select."""
        from spanmq_spark import source

        return source.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        from spanmq_spark import source

        return source.reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream."""
        from spanmq_spark import source

        return source.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        from spanmq_spark import source

        return source.writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream."""
        from spanmq_spark import source

        return source.stream_writer(self.options, schema, overwrite=overwrite)
