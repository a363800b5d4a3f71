"""`bodySchema=registered`: a queue's JSON Schema as Spark's; and writes into a queue that checks its bodies."""

from typing import Any

import pytest
from pyspark.sql.types import StructType
from tests.spark.conftest import Load, Streams
from tests.spark.protocol import save

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, InvalidBodyError
from spanmq.spark.registered import spark_type

TYPES: dict[str, Any] = {
    "bigint": [
        {"type": "integer", "minimum": 1},
        {"type": ["integer", "null"]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        {"$ref": "#/$defs/number"},
        {"allOf": [{"$ref": "#/$defs/number"}], "title": "as older programs write it"},
    ],
    "double": [{"type": "number"}, {"type": ["integer", "number"]}],
    "boolean": [{"type": "boolean"}],
    "timestamp": [{"type": "string", "format": "date-time"}],
    "date": [{"type": ["string", "null"], "format": "date"}],
    "string": [
        *({"type": "string"}, {"enum": ["new", "paid"]}, {"type": "string", "format": "uuid"}, {}, True),
        *({"type": ["integer", "string"]}, {"anyOf": [{"type": "number"}, {"type": "string"}]}),
        *({"type": "object"}, {"type": "object", "additionalProperties": True}, {"type": "null"}),
        *({"$ref": "#/$defs/none"}, {"$ref": "other.json"}, {"$ref": "#/$defs/number/type"}),
    ],
    "array<string>": [{"type": "array"}, {"type": "array", "prefixItems": [{"type": "integer"}]}],
    "array<date>": [{"type": "array", "items": {"type": "string", "format": "date"}}],
    "map<string, bigint>": [{"type": "object", "additionalProperties": {"type": "integer"}}],
    "struct<`a b`: bigint, `c``d`: array<struct<`e`: double>>>": [
        {
            "type": "object",
            "properties": {
                "a b": {"type": "integer"},
                "c`d": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"e": {"type": "number"}}},
                },
            },
        }
    ],
    "struct<`children`: array<string>>": [{"$ref": "#/$defs/tree"}],
}
DEFINITIONS = {
    "number": {"type": "integer"},
    "tree": {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    },
}
ORDER = {
    "type": "object",
    "properties": {"order": {"type": "integer"}, "at": {"format": "date", "type": "string"}},
}
BODY = StructType().add("at", "date").add("order", "long")


@pytest.mark.parametrize(
    ("schema", "kind"), [(schema, kind) for kind, schemas in TYPES.items() for schema in schemas]
)
def test_schema_has_a_type_of_spark(schema: Any, kind: str) -> None:
    assert spark_type(schema, {"$defs": DEFINITIONS}) == kind


def test_bodies_are_read_by_the_schema_of_their_queue(client: Client, load: Load, stream: Streams) -> None:
    client.queues.set_schema("orders", ORDER)
    client.send_batch("orders", [{"order": 1, "at": "2026-01-31"}, {"order": "x"}])
    source = load(bodySchema="Registered", body=BODY)
    fields = "struct</* option bodySchema: */ `at`: date, `order`: bigint>"
    assert f"`body` {fields}" in source.source.schema()
    assert [row["body"]["order"] for row in source.rows()] == [1, None]
    client.queues.create("more")
    client.queues.set_schema("more", ORDER)
    assert fields in load("orders,more", bodySchema="registered").source.schema()
    lake = stream(bodySchema="registered")
    lake.run(body=BODY)
    assert [row["body"]["order"] for epoch in lake.lake.values() for row in epoch] == [1, None]


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ("none", "queue none has no schema"),
        ("orders, none", "queue none has no schema"),
        ("texts", "the schema of queue texts has no properties"),
        ("orders, other", "the queues orders and other have bodies of other types"),
    ],
)
def test_what_has_no_such_schema_is_named(client: Client, load: Load, queue: str, said: str) -> None:
    for name, schema in (
        ("none", None),
        ("texts", {"type": "string"}),
        ("other", None),
        ("orders", ORDER),
    ):
        client.queues.create(name)
        client.queues.set_schema(name, schema)
    client.queues.set_schema("other", {"type": "object", "properties": {"order": {"type": "number"}}})
    with pytest.raises(InvalidArgumentError, match=f"bodySchema is registered, but {said}"):
        load(queue, bodySchema="registered").source.schema()
    assert "body" not in load(queue, bodySchema="registered", columns="message_id").source.schema()


def test_frame_that_does_not_fit_a_checked_queue_is_not_sent(client: Client, load: Load) -> None:
    client.queues.set_schema("orders", ORDER, checked=True)
    with pytest.raises(InvalidBodyError, match=r"schema of queue orders: \$\.order must be integer"):
        save(load(), {"body": ['{"order": 1}', '{"order": 2}']}, {"body": ['{"order": "x"}']})
    assert client.queues.metrics("orders").length == 0
    save(load(), {"body": ['{"order": 1}', '{"order": 2}']})
    assert client.queues.metrics("orders").length == 2
