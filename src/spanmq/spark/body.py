"""Bodies parsed by a schema, as Spark's JSON reader would: by Arrow, and one by one where that gives up."""

from __future__ import annotations

import io
import json
from typing import Any, Final

import pyarrow
import pyarrow.json

from spanmq.errors import InvalidBodyError

CORRUPT: Final = "_corrupt_record"


def parse_bodies(
    batch: pyarrow.RecordBatch, kind: pyarrow.StructType, mode: str, queue: str
) -> pyarrow.RecordBatch:
    """Give the batch with its body as a struct.

    A body that does not fit: permissive leaves null what does not fit, and the text in a field
    `_corrupt_record` if the schema has one; dropmalformed leaves the message out; failfast raises
    InvalidBodyError.
    """
    texts = batch.column("body")
    parsed = _all_at_once(texts, kind)
    if parsed is None:
        parsed, fits = _one_by_one(texts, kind, mode, queue)
        if mode == "dropmalformed":
            mask = pyarrow.array(fits)
            batch, parsed = batch.filter(mask), parsed.filter(mask)
    position = batch.schema.get_field_index("body")
    return batch.set_column(position, pyarrow.field("body", kind), parsed)


def _all_at_once(texts: pyarrow.Array, kind: pyarrow.StructType) -> pyarrow.Array | None:
    """Parse with Arrow; None unless every body is an object that fits."""
    fields = [field for field in kind if field.name != CORRUPT]
    if texts.null_count or not fields:
        return None
    lines = texts.to_pylist()
    if not all(line.startswith("{") for line in lines):
        return None
    data = "\n".join(lines).encode()
    try:
        table = pyarrow.json.read_json(
            io.BytesIO(data),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(data), 1) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pyarrow.schema(fields), unexpected_field_behavior="ignore"
            ),
        )
    except pyarrow.ArrowException:
        return None
    columns = [
        pyarrow.nulls(len(lines), field.type)
        if field.name == CORRUPT
        else table.column(field.name).combine_chunks()
        for field in kind
    ]
    if table.num_rows != len(lines):
        return None
    return pyarrow.StructArray.from_arrays(
        [each.chunk(0) if isinstance(each, pyarrow.ChunkedArray) else each for each in columns],
        fields=list(kind),
    )


def _one_by_one(
    texts: pyarrow.Array, kind: pyarrow.StructType, mode: str, queue: str
) -> tuple[pyarrow.Array, list[bool]]:
    rows: list[dict[str, Any] | None] = []
    fits: list[bool] = []
    for text in texts.to_pylist():
        row, ok = _row(text, kind)
        if not ok and mode == "failfast":
            shown = "null" if text is None else text[:200]
            raise InvalidBodyError(
                f"a body of queue {queue} does not fit the option bodySchema: {shown}",
                hint="The option mode=permissive or dropmalformed goes on past it.",
                queue=queue,
            )
        rows.append(row)
        fits.append(ok)
    return pyarrow.array(rows, kind), fits


def _row(text: str | None, kind: pyarrow.StructType) -> tuple[dict[str, Any] | None, bool]:
    if text is None:
        return None, True
    value = json.loads(text)
    row: dict[str, Any] = {field.name: None for field in kind}
    ok = isinstance(value, dict)
    for field in kind:
        if ok is not True and not isinstance(value, dict):
            break
        if field.name == CORRUPT or value.get(field.name) is None:
            continue
        scalar = _convert(value[field.name], field.type)
        if scalar is None:
            ok = False
        row[field.name] = scalar
    if not ok and CORRUPT in row:
        row[CORRUPT] = text
    return row, ok


def _convert(value: Any, kind: pyarrow.DataType) -> Any:
    """Give the value as Arrow takes it for this type; None where it does not fit."""
    if pyarrow.types.is_string(kind):
        return value if isinstance(value, str) else json.dumps(value)
    if isinstance(value, bool) and not pyarrow.types.is_boolean(kind):
        return None
    try:
        if isinstance(value, str) and not pyarrow.types.is_nested(kind):
            # Times and dates stand as text in JSON; a number does not.
            if not pyarrow.types.is_temporal(kind):
                return None
            return pyarrow.scalar(value).cast(kind).as_py()
        return pyarrow.scalar(value, type=kind).as_py()
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
        return None
