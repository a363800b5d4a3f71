"""Bodies parsed by a schema: as Spark's own JSON reader does it, and the same one by one as all at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from spanmq.errors import InvalidBodyError

pytest.importorskip("pyspark")

import pyarrow

from spanmq.spark.body import parse_bodies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """
    n int, amount double, price decimal(10, 2), name string, at timestamp, day date, paid boolean,
    lines array<struct<sku: string, price: decimal(8, 3)>>, tags map<string, long>, _corrupt_record string
"""
FIT: tuple[Any, ...] = (
    {"n": 1, "amount": 1.5, "price": 12.34, "name": "a", "paid": True},
    {"at": "2026-01-02T03:04:05.678901Z", "day": "2026-01-02"},
    {"at": "2026-01-02T03:04:05+02:00"},
    {"at": "2026-01-02T03:04:05"},
    {"at": "2026-01-02 03:04:05"},
    {"price": 12, "amount": 3},
    {"price": "7.50"},
    {"price": 0.005},
    {"price": 12345678.9},
    {"name": 17},
    {"name": 1.10},
    {"name": True},
    {"lines": [{"sku": "x", "price": 0.125}, {"sku": None}, {"more": 1}], "tags": {"a": 1, "b": 2}},
    {"lines": [], "tags": {}},
    {"more": {"deep": [1]}},
    {},
)
MISFIT: tuple[Any, ...] = (
    {"n": "1"},
    {"n": 1.5},
    {"n": 3_000_000_000},
    {"n": True},
    {"amount": "x", "n": 5},
    {"amount": True},
    {"price": 123456789.5},
    {"price": "cheap"},
    {"paid": "true"},
    {"paid": 1},
    {"at": "yesterday"},
    {"day": "2026-13-01"},
    {"lines": {"sku": "x"}},
    {"tags": [1]},
    17,
)


def as_arrow(spark: SparkSession) -> pyarrow.StructType:
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = spark.createDataFrame([], SCHEMA).schema
    return pyarrow.struct(list(to_arrow_schema(schema, timezone="UTC")))


def parsed(texts: list[str], kind: pyarrow.StructType, mode: str = "permissive") -> list[Any]:
    batch = pyarrow.RecordBatch.from_pydict({"body": texts})
    found: list[Any] = parse_bodies(batch, kind, mode, "orders").column("body").to_pylist()
    return found


def test_bodies_are_parsed_as_by_sparks_json_reader(spark: SparkSession) -> None:
    texts = [json.dumps(body) for body in (*FIT, *MISFIT)]
    read = spark.read.schema(SCHEMA).json(spark.sparkContext.parallelize(texts, 1))
    expected = read.selectExpr("struct(*) as body").toArrow().column("body").to_pylist()
    found = parsed(texts, as_arrow(spark))
    assert dict(zip(texts, found, strict=True)) == dict(zip(texts, expected, strict=True))


def test_body_among_others_is_parsed_as_it_is_alone(spark: SparkSession) -> None:
    kind = as_arrow(spark)
    texts = [json.dumps(body) for body in (*FIT, *MISFIT)]
    assert [parsed([text], kind)[0] for text in texts] == parsed(texts, kind)


def test_modes_leave_out_or_refuse_what_does_not_fit(spark: SparkSession) -> None:
    kind = as_arrow(spark)
    assert len(parsed([json.dumps(body) for body in (*FIT, *MISFIT)], kind, "dropmalformed")) == len(FIT)
    for body in MISFIT:
        with pytest.raises(InvalidBodyError, match="does not fit the option bodySchema"):
            parsed([json.dumps(FIT[0]), json.dumps(body)], kind, "failfast")
    assert len(parsed([json.dumps(body) for body in FIT], kind, "failfast")) == len(FIT)
