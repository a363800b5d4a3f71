"""Any format that the user's Spark can write as a stream: where a queue goes that no client of ours knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spanmq.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# How `--to` tells a format from a broker.
PREFIX: Final = "format:"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFormat:
    """A format by its name, with its options. `columns` are SQL expressions; none: the source's own columns.

    As exactly once as the sink of that format is: files and Delta are, Kafka is not.
    """

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    def describe(self) -> str:
        """Name the target, without other settings, which may hold credentials."""
        return " ".join(["format", self.name, *([self.settings["path"]] if "path" in self.settings else [])])

    def check(self) -> None:
        """Raise InvalidArgumentError without a name; one that it has not Spark refuses at the start."""
        if not self.name:
            raise InvalidArgumentError(
                "a format needs a name", hint=f"Such as {PREFIX}parquet, or any that your Spark can write."
            )

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        """Return the writer of a stream."""
        chosen = frame.selectExpr(*self.columns) if self.columns else frame
        settings: dict[str, Any] = dict(self.settings)
        return chosen.writeStream.format(self.name).options(**settings)
