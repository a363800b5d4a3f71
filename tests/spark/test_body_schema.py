"""Bodies parsed by a schema: as Spark's own JSON reader does it, and the same one by one as all at once."""

from __future__ import annotations

import json
from typing import Any

import pyarrow
import pytest

from spanmq.errors import InvalidBodyError
from spanmq.spark.body import parse_bodies

SCHEMA = """
    n int, amount double, price decimal(10, 2), name string, at timestamp, day date, paid boolean,
    lines array<struct<sku: string, price: decimal(8, 3)>>, tags map<string, long>, _corrupt_record string
"""
# The same for Arrow; tests/spark/session compares, and reads these bodies as Spark's own JSON reader does.
LINE = pyarrow.struct({"sku": pyarrow.string(), "price": pyarrow.decimal128(8, 3)}.items())
KIND = pyarrow.struct(
    {
        "n": pyarrow.int32(),
        "amount": pyarrow.float64(),
        "price": pyarrow.decimal128(10, 2),
        "name": pyarrow.string(),
        "at": pyarrow.timestamp("us", "UTC"),
        "day": pyarrow.date32(),
        "paid": pyarrow.bool_(),
        "lines": pyarrow.list_(pyarrow.field("element", LINE)),
        "tags": pyarrow.map_(pyarrow.string(), pyarrow.int64()),
        "_corrupt_record": pyarrow.string(),
    }.items()
)
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


TEXTS = [json.dumps(body) for body in (*FIT, *MISFIT)]


def parsed(texts: list[str], kind: pyarrow.StructType = KIND, mode: str = "permissive") -> list[Any]:
    batch = pyarrow.RecordBatch.from_pydict({"body": texts})
    found: list[Any] = parse_bodies(batch, kind, mode, "orders").column("body").to_pylist()
    return found


def test_body_among_others_is_parsed_as_it_is_alone() -> None:
    assert [parsed([text])[0] for text in TEXTS] == parsed(TEXTS)


def test_modes_leave_out_or_refuse_what_does_not_fit() -> None:
    assert len(parsed(TEXTS, mode="dropmalformed")) == len(FIT)
    for body in MISFIT:
        with pytest.raises(InvalidBodyError, match="does not fit the option bodySchema"):
            parsed([json.dumps(FIT[0]), json.dumps(body)], mode="failfast")
    assert len(parsed(TEXTS[: len(FIT)], mode="failfast")) == len(FIT)
