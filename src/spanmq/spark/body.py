"""Bodies parsed by a schema, as Spark's JSON reader would: by Arrow, and one by one where that gives up."""

from __future__ import annotations

import io
import json
from datetime import UTC
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
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
    # As they were written: a price has no binary fractions.
    value = json.loads(text, parse_float=Decimal)
    row: dict[str, Any] = {field.name: None for field in kind}
    fits = isinstance(value, dict)
    for field in kind if fits else ():
        if field.name == CORRUPT:
            continue
        try:
            row[field.name] = _converted(value.get(field.name), field.type)
        except _MisfitError:
            fits = False
    if not fits and CORRUPT in row:
        row[CORRUPT] = text
    return row, fits


class _MisfitError(Exception):
    """A value is not of its field's type."""


def _converted(value: Any, kind: pyarrow.DataType) -> Any:
    """Give a value of JSON as Arrow takes it for this type; raises _MisfitError where it does not fit."""
    if value is None:
        return None
    of = pyarrow.types
    if of.is_struct(kind):
        _must(isinstance(value, dict))
        return {field.name: _converted(value.get(field.name), field.type) for field in kind}
    if of.is_list(kind):
        _must(isinstance(value, list))
        return [_converted(each, kind.value_type) for each in value]
    if of.is_map(kind):
        _must(isinstance(value, dict))
        return [(name, _converted(each, kind.item_type)) for name, each in value.items()]
    if of.is_string(kind):
        return _text(value)
    if of.is_decimal(kind):
        return _decimal(value, kind)
    if of.is_floating(kind):
        _must(isinstance(value, int | Decimal) and not isinstance(value, bool))
        return float(value)
    if of.is_temporal(kind):
        # Times and dates stand as text in JSON.
        _must(isinstance(value, str))
        return _time(value, kind)
    _must(isinstance(value, bool) == of.is_boolean(kind) and not isinstance(value, str | Decimal))
    return _scalar(value, kind)


def _must(fits: bool) -> None:
    if not fits:
        raise _MisfitError


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, Decimal) else json.dumps(value, default=float)


def _decimal(value: Any, kind: pyarrow.Decimal128Type) -> Decimal:
    _must(isinstance(value, int | str | Decimal) and not isinstance(value, bool))
    try:
        number = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    except InvalidOperation as error:
        raise _MisfitError from error
    _scalar(number, kind)
    return number


def _time(value: str, kind: pyarrow.DataType) -> Any:
    """Parse a time; one without a zone is in UTC, as the session's times are."""
    text = pyarrow.scalar(value)
    try:
        return text.cast(kind).as_py()
    except pyarrow.ArrowException as error:
        if not pyarrow.types.is_timestamp(kind):
            raise _MisfitError from error
    try:
        return text.cast(pyarrow.timestamp(kind.unit)).as_py().replace(tzinfo=UTC)
    except pyarrow.ArrowException as error:
        raise _MisfitError from error


def _scalar(value: Any, kind: pyarrow.DataType) -> Any:
    try:
        return pyarrow.scalar(value, type=kind).as_py()
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise _MisfitError from error
