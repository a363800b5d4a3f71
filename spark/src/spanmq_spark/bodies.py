"""Bodies as structs: Spark's own `from_json`, by a schema of the caller's or of the queue."""

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, from_json, lit, raise_error, when
from pyspark.sql.types import StructType

from spanmq.codec import SEALED_KEY
from spanmq.errors import InvalidArgumentError
from spanmq_spark.reader import queues_named
from spanmq_spark.rows import connected

__all__ = ["parse_bodies", "registered_schema"]

_SCALARS: Final = {"number": "double", "boolean": "boolean", "string": "string"}
BIGINT: Final = 1 << 63
_FORMATS: Final = {"date-time": "timestamp", "date": "date"}
# On lines of its own, where cause_of() finds it in what Spark says.
_SEALED: Final = (
    "\nspanmq.errors.DecryptionError: a body is sealed, so it can't be parsed\n"
    "hint: The option encryptionKeyFile names the file of keys that opens it.\n"
)


def parse_bodies(frame: DataFrame, schema: str | StructType, **options: str) -> DataFrame:
    """Return a `frame`, perhaps of a stream, whose column `body` is a struct that `from_json` made of the text.

    `schema` has the fields: `order long, amount double`, what `schema.json()` returns, a type of PySpark, or
    what registered_schema() returns. `options` are those of from_json. By default what does not fit is null;
    a field `_corrupt_record string` has the text of such a body, and `mode="FAILFAST"` ends the query. A body that is
    sealed ends it, too. Raises what from_json raises.
    """
    text = when(col("body").startswith(f'{{"{SEALED_KEY}"'), raise_error(lit(_SEALED))).otherwise(col("body"))
    # Spark Connect takes no empty options.
    return frame.withColumn("body", from_json(text, schema, options or None))


def registered_schema(dsn: str, queue: str) -> str:
    """Return the type of the bodies of a `queue`, a name, a list or a pattern, from the JSON Schema that it has.

    `dsn` is the database. Spark needs one type for each value: where the schema allows several, or says nothing, that
    is a string with the JSON. Raises InvalidArgumentError unless each queue has a schema with properties, and all the
    same type, and QueueNotFoundError.
    """
    with connected(dsn) as server:
        queue_by_type: dict[str, str] = {}
        for name in queues_named(server, queue):
            schema = server.queues.schema(name).schema
            if schema is None:
                raise InvalidArgumentError(
                    f"queue {name} has no schema",
                    hint="client.queues.set_schema(), or spanmq queue set-schema, sets one.",
                    queue=name,
                )
            kind = spark_type(schema)
            if not kind.startswith("struct<"):
                raise InvalidArgumentError(
                    f"the schema of queue {name} has no properties",
                    hint="Pass the fields of the bodies to parse_bodies().",
                    queue=name,
                )
            queue_by_type[kind] = name
    if len(queue_by_type) > 1:
        first, second, *_ = queue_by_type.values()
        raise InvalidArgumentError(
            f"the queues {first} and {second} have bodies of other types", hint="Read them in two frames."
        )
    return next(iter(queue_by_type))


def spark_type(schema: Any, root: Any = None, refs: tuple[str, ...] = ()) -> str:
    """Return the type of the values that fit a JSON Schema, as Spark writes it."""
    root = schema if root is None else root
    if not isinstance(schema, dict):
        return "string"
    if "$ref" in schema:
        # Spark has no types that contain themselves.
        ref = schema["$ref"]
        target = None if ref in refs else _at(root, ref)
        return "string" if target is None else spark_type(target, root, (*refs, ref))
    choices = [choice for key in ("anyOf", "oneOf", "allOf") for choice in schema.get(key, ())]
    if choices:
        kinds = {spark_type(choice, root, refs) for choice in choices if choice != {"type": "null"}}
        return kinds.pop() if len(kinds) == 1 and "type" not in schema else "string"
    types = schema.get("type")
    names = {types} if isinstance(types, str) else set(types or ()) - {"null"}
    if names == {"integer", "number"}:
        return "double"
    name = names.pop() if len(names) == 1 else None
    if name == "array":
        return f"array<{spark_type(schema.get('items'), root, refs)}>"
    if name == "object" and schema.get("properties"):
        fields = [
            f"{_quoted(key)}: {spark_type(field, root, refs)}" for key, field in schema["properties"].items()
        ]
        return f"struct<{', '.join(fields)}>"
    if name == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map<string, {spark_type(schema['additionalProperties'], root, refs)}>"
    if name == "string":
        return _FORMATS.get(str(schema.get("format")), "string")
    if name == "integer":
        return _integer(schema)
    return _SCALARS.get(str(name), "string")


def _integer(schema: dict[str, Any]) -> str:
    """Return the type of whole numbers: bigint if both limits are within it, else 38 digits, Spark's most."""
    limits = [
        [schema[name] for name in names if isinstance(schema.get(name), int | float)]
        for names in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
    ]
    fits = all(any(abs(limit) < BIGINT for limit in side) for side in limits)
    return "bigint" if fits or schema.get("format") in ("int32", "int64") else "decimal(38,0)"


def _at(root: Any, ref: str) -> Any:
    """Return what a reference within the schema points to, None if there is nothing."""
    if ref == "#":
        return root
    for part in ref.removeprefix("#/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        root = root.get(name) if isinstance(root, dict) else None
    return root


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
