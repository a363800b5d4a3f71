"""Differences between the releases of Spark: 4.0 is the oldest, and features that it lacks are left out.

Filters came with 4.1; with 4.2 the start and the limit of a stream's batch, and sinks that take Arrow.
"""

import inspect
from importlib.util import find_spec
from typing import Any, Final

import pyarrow
from pyspark.sql import datasource
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

from spanmq.errors import PipelineError

# An older release asks a source for Arrow where it is of this class, whether it writes a batch or a stream.
StreamSink: Final[Any] = getattr(datasource, "DataSourceStreamArrowWriter", None) or type(
    "StreamSink", (datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter), {}
)


def arrow_schema(schema: StructType) -> pyarrow.Schema:
    """Return a schema as Arrow has it, with times in UTC."""
    convert: Any = types.to_arrow_schema
    zone = {"timezone": "UTC"} if "timezone" in inspect.signature(convert).parameters else {}
    return convert(schema, **zone)


def check_filters() -> None:
    """Raise PipelineError where Spark passes no filters to a source."""
    if not hasattr(datasource, "Filter"):
        raise PipelineError(
            "this release of Spark passes no filters to a source",
            hint="Spark 4.1 or newer does. Without the option pushFilters it evaluates them itself.",
        )


def check_streams() -> None:
    """Raise PipelineError where Spark does not tell a stream's source from which offset to go on."""
    if find_spec("pyspark.sql.streaming.datasource") is None:
        raise PipelineError(
            "this release of Spark can't read a queue or an archive as a stream",
            hint="Spark 4.2 or newer can. Batch reads, sinks and exports need 4.0.",
        )
