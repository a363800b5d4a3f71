"""A queue's JSON Schema as the type of its bodies in Spark; and writes into a queue that checks them."""

from typing import Any

import pytest
from spark.tests.conftest import Load
from spark.tests.protocol import save

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, InvalidBodyError
from spanmq_spark.bodies import registered_schema, spark_type

TYPES: dict[str, Any] = {
    "bigint": [
        {"type": "integer", "minimum": 1, "maximum": (1 << 63) - 1},
        {"type": ["integer", "null"], "exclusiveMinimum": -5, "exclusiveMaximum": 5},
        {"type": "integer", "format": "int64"},
    ],
    "decimal(38,0)": [
        {"type": "integer", "minimum": 1},
        {"type": "integer", "maximum": 1},
        {"type": "integer", "minimum": -(1 << 64), "maximum": 1},
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
    "map<string, decimal(38,0)>": [{"type": "object", "additionalProperties": {"type": "integer"}}],
    "struct<`a b`: decimal(38,0), `c``d`: array<struct<`e`: double>>>": [
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


@pytest.mark.parametrize(
    ("schema", "kind"), [(schema, kind) for kind, schemas in TYPES.items() for schema in schemas]
)
def test_schema_has_a_type_of_spark(schema: Any, kind: str) -> None:
    assert spark_type(schema, {"$defs": DEFINITIONS}) == kind


def test_type_of_bodies_is_that_of_all_queues(client: Client, database: str) -> None:
    for name in ("orders", "more"):
        client.queues.create(name)
        client.queues.set_schema(name, ORDER)
    for queue in ("orders", "orders,more", "*"):
        assert registered_schema(database, queue) == "struct<`at`: date, `order`: decimal(38,0)>"


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ("none", "queue none has no schema"),
        ("orders, none", "queue none has no schema"),
        ("texts", "the schema of queue texts has no properties"),
        ("orders, other", "the queues orders and other have bodies of other types"),
    ],
)
def test_what_has_no_such_schema_is_named(client: Client, database: str, queue: str, said: str) -> None:
    for name, schema in (
        ("none", None),
        ("texts", {"type": "string"}),
        ("other", None),
        ("orders", ORDER),
    ):
        client.queues.create(name)
        client.queues.set_schema(name, schema)
    client.queues.set_schema("other", {"type": "object", "properties": {"order": {"type": "number"}}})
    with pytest.raises(InvalidArgumentError, match=said):
        registered_schema(database, queue)


def test_frame_that_does_not_fit_a_checked_queue_is_not_sent(client: Client, load: Load) -> None:
    client.queues.set_schema("orders", ORDER, checked=True)
    with pytest.raises(InvalidBodyError, match=r"schema of queue orders: \$\.order must be integer"):
        save(load(), {"body": ['{"order": 1}', '{"order": 2}']}, {"body": ['{"order": "x"}']})
    assert client.queues.metrics("orders").length == 0
    save(load(), {"body": ['{"order": 1}', '{"order": 2}']})
    assert client.queues.metrics("orders").length == 2
