"""`bodySchema=registered`: the JSON Schema of a queue as the fields of a struct in Spark.

Spark needs one type for each value. Where a schema allows several, or says nothing, that is a string with the
JSON, so that nothing is lost.
"""

from typing import Any, Final

from spanmq.errors import InvalidArgumentError
from spanmq.spark.column import quoted
from spanmq.spark.options import Options
from spanmq.spark.reader import queues_named
from spanmq.spark.rows import connected

_SCALARS: Final = {"integer": "bigint", "number": "double", "boolean": "boolean", "string": "string"}
_FORMATS: Final = {"date-time": "timestamp", "date": "date"}


def registered_fields(options: Options) -> str:
    """Return the fields of the bodies of the queues; raises InvalidArgumentError unless all have the same."""
    with connected(options.dsn) as connection:
        found: dict[str, str] = {}
        for queue in queues_named(connection, options.queue):
            row = connection.execute("select schema from spanmq.get_schema(queue => %s)", [queue]).fetchone()
            if row is None or row[0] is None:
                raise InvalidArgumentError(
                    f"bodySchema is registered, but queue {queue} has no schema",
                    hint="client.queues.set_schema(), or spanmq queue set-schema, sets one.",
                    queue=queue,
                )
            kind = spark_type(row[0])
            if not kind.startswith("struct<"):
                raise InvalidArgumentError(
                    f"bodySchema is registered, but the schema of queue {queue} has no properties",
                    hint="Write the fields into bodySchema, or leave it out.",
                    queue=queue,
                )
            found[kind] = queue
    if len(found) > 1:
        first, second, *_ = found.values()
        raise InvalidArgumentError(
            f"bodySchema is registered, but the queues {first} and {second} have bodies of other types",
            hint="Read them in two streams, or write the fields into bodySchema.",
        )
    [kind] = found
    return kind.removeprefix("struct<").removesuffix(">")


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
    choices = [each for key in ("anyOf", "oneOf", "allOf") for each in schema.get(key, ())]
    if choices:
        kinds = {spark_type(each, root, refs) for each in choices if each != {"type": "null"}}
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
            f"{quoted(key)}: {spark_type(each, root, refs)}" for key, each in schema["properties"].items()
        ]
        return f"struct<{', '.join(fields)}>"
    if name == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map<string, {spark_type(schema['additionalProperties'], root, refs)}>"
    if name == "string":
        return _FORMATS.get(str(schema.get("format")), "string")
    return _SCALARS.get(str(name), "string")


def _at(root: Any, ref: str) -> Any:
    """Return what a reference within the schema points to, None if there is nothing."""
    if ref == "#":
        return root
    for part in ref.removeprefix("#/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        root = root.get(name) if isinstance(root, dict) else None
    return root
