"""Filters that PostgreSQL evaluates in place of Spark, from Spark 4.1 on."""

from collections.abc import Iterable

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StringType

from spanmq_spark.column import COLUMNS
from spanmq_spark.options import Options
from spanmq_spark.reader import BatchReader, literal

_SIGNS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


class FilteringReader(BatchReader):
    """The same, where the session lets filters be pushed down: Spark refuses this method elsewhere."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep the filters that SQL can evaluate, and return the others."""
        for candidate in filters:
            condition = _condition(candidate, self._options)
            if condition is None:
                yield candidate
            else:
                self._where.append(condition)


def _condition(candidate: Filter, options: Options) -> str | None:
    named = {column.name: column for column in COLUMNS[options.table]}
    attribute: tuple[str, ...] = getattr(candidate, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in named:
        return None
    if attribute[0] == "body" and options.encryption_key_file:
        # PostgreSQL does not have the opened body.
        return None
    name = attribute[0]
    # A partition knows its queue only when it is made.
    expression = named[name].expression.format(queue="{queue}", attempt="t.read_ct")
    if isinstance(candidate, IsNull):
        return f"{expression} is null"
    if isinstance(candidate, IsNotNull):
        return f"{expression} is not null"
    if isinstance(candidate, In):
        values = [literal(value) for value in candidate.value]
        return None if None in values else f"{expression} in ({', '.join(map(str, values))})"
    sign = _SIGNS.get(type(candidate))
    value = literal(getattr(candidate, "value", None))
    if sign is None or value is None:
        return None
    if isinstance(named[name].kind, StringType) and sign != "=":
        # PostgreSQL orders texts by its own collation, Spark by bytes.
        return None
    return f"{expression} {sign} {value}"
