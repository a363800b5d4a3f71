"""Bodies parsed by a schema: a value depends on its own body alone, and is that of Spark's from_json."""

import json
from typing import Any, Final

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DayTimeIntervalType, IntegerType, MapType, StringType, StructType
from tests.spark.protocol import Source

from spanmq.errors import InvalidArgumentError, InvalidBodyError
from spanmq.spark.body import DEPTH_MAX, check_body_schema, parse_bodies

LINE: Final = pyarrow.struct({"sku": pyarrow.string(), "price": pyarrow.decimal128(8, 3)}.items())
# The types as Spark writes them, and as Arrow has them; tests/spark/session compares both.
TYPES: Final = {
    "byte": ("tinyint", pyarrow.int8()),
    "short": ("smallint", pyarrow.int16()),
    "int": ("int", pyarrow.int32()),
    "long": ("bigint", pyarrow.int64()),
    "float": ("float", pyarrow.float32()),
    "double": ("double", pyarrow.float64()),
    "price": ("decimal(10, 2)", pyarrow.decimal128(10, 2)),
    "whole": ("decimal(38, 0)", pyarrow.decimal128(38, 0)),
    "exact": ("decimal(38, 18)", pyarrow.decimal128(38, 18)),
    "tiny": ("decimal(38, 38)", pyarrow.decimal128(38, 38)),
    "name": ("string", pyarrow.string()),
    "data": ("binary", pyarrow.binary()),
    "paid": ("boolean", pyarrow.bool_()),
    "day": ("date", pyarrow.date32()),
    "at": ("timestamp", pyarrow.timestamp("us", "UTC")),
    "local": ("timestamp_ntz", pyarrow.timestamp("us")),
    "days": ("array<date>", pyarrow.list_(pyarrow.field("element", pyarrow.date32()))),
    "line": ("struct<sku: string, price: decimal(8, 3)>", LINE),
    "lines": (
        "array<struct<sku: string, price: decimal(8, 3)>>",
        pyarrow.list_(pyarrow.field("element", LINE)),
    ),
    "tags": ("map<string, bigint>", pyarrow.map_(pyarrow.string(), pyarrow.int64())),
    "by_sku": (
        "map<string, struct<sku: string, price: decimal(8, 3)>>",
        pyarrow.map_(pyarrow.string(), LINE),
    ),
    "_corrupt_record": ("string", pyarrow.string()),
}
FIELDS: Final = [name for name in TYPES if name != "_corrupt_record"]
MAPS: Final = ("tags", "by_sku")
NUMBERS: Final = (
    *("0", "-0", "1", "-1", "127", "128", "-129", "32767", "32768", "-32769", "2147483647", "2147483648"),
    *("9223372036854775807", "9223372036854775808", "1.0", "1.5", "1e3", "0.1", "0.005", "0.004", "1e-30"),
    *("1e40", "1e400", "-1e400", "2.5e-324", "16777217", "1.00000005960464477539062500001"),
    *("9007199254740993", "9007199254740993.0", "12345678.9", "12345678901.5", "1234567890"),
    *("99999999.994", "99999999.995", "123456789012345678901234567890.125"),
    *("99999999999999999999999999999999999999", "1e37", "1e38", "99999999999999999999999999999999999999.5"),
    *("0.99999999999999999999999999999999999999", "0.0000000000000000005", "9223372036855"),
)
STRINGS: Final = (
    *("", " ", "x", "true", "1", "+1", " 1", "1.", ".5", ".", "1e2", "1e", "1_0", "1,234.5", "7.50", "0x1"),
    *("NaN", "INF", "-INF", "+Infinity", "-NaN", "nan", "YWJj", "YWI=", "YWI", "YWJj\nYWJj", "*", "_-__"),
    *("2026", "2026-1", "2026-1-2", "2026-01-02", "+2026-01-02", " 2026-01-02 ", "2026-01-02x", "2026-01-"),
    *("2026-02-29", "2024-02-29", "1900-02-29", "0000-02-29", "-0001-01-01", "2026-13-01", "2026-001-01"),
    *("20000-01-01", "yesterday", "17", "20260102", "10:00", "T10:00", "2026-01-02 x", "2026-01-02T"),
    *(
        "2026-01-02T03:04:05",
        "2026-01-02 03:04:05",
        "2026-01-02  03:04:05",
        "2026-01-02T10",
        "2026-01-02T3:4",
    ),
    *("2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.1234567899Z", "1969-12-31T23:59:59.9999999Z"),
    *("2026-01-02T03:04:05+02:00", "2026-01-02T03:04:05-0230", "2026-01-02T03:04:05+2", "2026-01-02T03:04Z"),
    *("2026-01-02T03:04:05 +02:00", "2026-01-02T03:04:05+02:00:30", "2026-01-02T03:04:05.5+18:00"),
    *("2026-01-02T03:04:05+18:01", "2026-01-02T03:04:05z", "2026-01-02t03:04:05Z", "2026-01-02T24:00:00"),
    *(
        "2026-01-02T23:59:60",
        "2026-01-02T03:04:05.",
        "2026-01-02T03:04:05,5",
        "2026-01-02T03:04:05.123456789",
    ),
    *("2026-01-02T03:04:05UTC", "2026-01-02T03:04:05 Europe/Berlin", "20260102T030405Z", "\u00fc\U0001f600"),
)
NESTED: Final = (
    *("true", "false", "null", "[]", "{}", "[1]", "[null]", '["2026-01-02", null]', '["2026-01-02", "x"]'),
    *('{"sku": "x"}', '{"sku": "x", "price": 0.125}', '{"sku": "x", "price": "cheap"}', '[{"sku": 7}]'),
    *('[{"sku": "x", "price": "cheap"}, {"price": 1}]', '[{"sku": "x"}, 1]', '{"a": 1, "b": null}'),
    *('{"a": 1, "b": "x"}', '{"a": {"sku": "x", "price": 99999.9}}', '{"a": {"price": "7"}, "b": {}}'),
)
VALUES: Final = (*NUMBERS, *map(json.dumps, STRINGS), *NESTED)
# Our values differ from those of Spark's JSON reader, which takes a time without a date for one of today,
# knows zones by name and dates by number, lets bytes and seconds overflow, has no -0, and writes 1.10 as 1.1.
OURS: Final = {
    ("byte", "128"),
    *(("at", json.dumps(each)) for each in ("10:00", "T10:00", "2026-01-02T03:04:05 Europe/Berlin")),
    *(("at", each) for each in ("9223372036855", "9007199254740993", "9223372036854775807")),
    *(("day", json.dumps(each)) for each in ("1", "+1", "17", "20260102")),
    *((field, "-0") for field in ("float", "double")),
    *(("name", each) for each in NUMBERS if "." in each or "e" in each or each == "-0"),
}
KIND: Final = pyarrow.struct([(name, kind) for name, (_, kind) in TYPES.items()])
SCHEMA: Final = ", ".join(f"{name} {spark}" for name, (spark, _) in TYPES.items())
# Each value in each field; then what no schema has: whole bodies of other kinds.
TEXTS: Final = [
    *(f'{{"{field}": {value}}}' for field in FIELDS for value in VALUES if (field, value) not in OURS),
    *('{"more": {"deep": [1]}}', "{}", "17", "[]", '"x"'),
]


def parsed(texts: list[str], kind: pyarrow.StructType = KIND, mode: str = "permissive") -> pyarrow.Array:
    batch = pyarrow.RecordBatch.from_pydict({"body": texts})
    return parse_bodies(batch, kind, mode, "orders").column("body")


def plain(value: pyarrow.Scalar) -> Any:
    """Return a value for a comparison: NaN equals NaN, and a time may be of any year."""
    if not value.is_valid:
        return None
    if isinstance(value, pyarrow.StructScalar):
        return {name: plain(value[name]) for name in value}
    if isinstance(value, pyarrow.MapScalar):
        return [(plain(each["key"]), plain(each["value"])) for each in value.values]
    if isinstance(value, pyarrow.ListScalar):
        return [plain(each) for each in value.values]
    return value.value if pyarrow.types.is_temporal(value.type) else repr(value.as_py())


@given(st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_value_depends_on_its_own_body_alone(data: st.DataObject) -> None:
    # Without maps Arrow may parse them all at once.
    names = data.draw(st.sets(st.sampled_from([each for each in FIELDS if each not in MAPS]), min_size=1))
    names |= {"_corrupt_record"} | data.draw(st.sampled_from([set(), set(MAPS)]))
    kind = pyarrow.struct([field for field in KIND if field.name in names])
    fields = st.dictionaries(st.sampled_from(sorted(names)), st.sampled_from(VALUES), max_size=3)
    bodies = data.draw(st.lists(fields, min_size=1, max_size=6))
    texts = ["{" + ", ".join(f'"{name}": {value}' for name, value in body.items()) + "}" for body in bodies]
    # An array is no object: it sends its neighbours the slow way.
    together = [plain(each) for each in parsed(texts, kind)]
    among_others = [plain(each) for each in parsed(["[]", *texts], kind)][1:]
    assert together == among_others == [plain(parsed([text], kind)[0]) for text in texts]
    fits = [each["_corrupt_record"] is None for each in together]
    assert len(parsed(texts, kind, "dropmalformed")) == sum(fits)
    if not all(fits):
        with pytest.raises(InvalidBodyError, match="does not fit the option bodySchema"):
            parsed(texts, kind, "failfast")
    else:
        assert [plain(each) for each in parsed(texts, kind, "failfast")] == together


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("exact", "12345678901.5", "Decimal('12345678901.500000000000000000')"),
        ("exact", "123456789012345678901234567890.125", None),
        ("price", "1234567890", None),
        ("price", "12.345", "Decimal('12.35')"),
        ("at", '"1970-01-01T00:00:00.000001999Z"', 1),
        ("local", '"1970-01-01T02:00:00+02:00"', None),
        ("day", "1", None),
        ("data", '"YWJj"', "b'abc'"),
        ("name", "1.10", "'1.10'"),
        ("name", '{"b": [1, 1.10, "\u00fc"]}', '\'{"b":[1,1.10,"ü"]}\''),
        ("double", "1" * 5_000, "inf"),
        ("long", "1" * 5_000, None),
        ("exact", "1" * 5_000, None),
    ],
)
def test_value_is_right_to_the_last_digit(field: str, value: str, expected: Any) -> None:
    text = f'{{"{field}": {value}}}'
    kind = pyarrow.struct([KIND.field(field), KIND.field("_corrupt_record")])
    for neighbours in ([], ["[]"]):
        row = parsed([text, *neighbours], kind)[0]
        assert (plain(row[field]), row["_corrupt_record"].is_valid) == (expected, expected is None)


def test_schema_as_json_may_have_any_names() -> None:
    lines = ArrayType(StructType().add("unit price", "double").add("a`b", "string"))
    body = StructType().add("order-id", "long").add("lines", lines)
    body.add("notes", MapType(StringType(), StructType().add("by:whom", "string")))
    options = {"dsn": "host=none", "queue": "orders", "columns": "body", "bodySchema": body.json()}
    assert Source(options).source.schema() == (
        "`body` struct</* option bodySchema: */ `order-id`: bigint,"
        " `lines`: array<struct<`unit price`: double, `a``b`: string>>,"
        " `notes`: map<string, struct<`by:whom`: string>>>"
    )


def test_body_of_any_size_and_depth_stops_no_permissive_stream() -> None:
    deep = [
        f'{{"n": 1, "more": {"[" * depth}{"]" * depth}}}' for depth in (DEPTH_MAX - 1, DEPTH_MAX, 100_000)
    ]
    huge = f'{{"n": 1, "more": {"9" * 5_000}}}'
    text = '{"n": 1, "more": "' + "[" * 5_000 + '"}'
    kind = pyarrow.struct({"n": pyarrow.int32()})
    for neighbours in ([], ["[]"]):
        found = parsed([*deep, huge, text, *neighbours], kind).field("n").to_pylist()[:5]
        assert found == [1, None, None, 1, 1]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (StructType().add("a", DayTimeIntervalType()), "the field a can't be a duration"),
        (
            StructType().add("a", StructType().add("b", IntegerType(), False)),
            "the field a.b can't be NOT NULL",
        ),
        (StructType().add("_corrupt_record", IntegerType()), "_corrupt_record must be a string"),
        (StructType().add("a", IntegerType()).add("a", IntegerType()), "has the field a twice"),
    ],
)
def test_schema_that_no_body_can_have_is_refused(kind: StructType, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        check_body_schema(to_arrow_type(kind))
