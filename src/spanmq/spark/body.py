"""Bodies parsed by a schema, with the values of Spark's `from_json`.

Arrow parses a whole batch, where every body fits in the form that most programs write; otherwise each body is
parsed alone. Arrow never converts decimals, times or binary data: its rules for these are not Spark's.
"""

import base64
import io
import re
from collections.abc import Callable
from datetime import date
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import partial
from typing import Any, Final

import pyarrow
import pyarrow.json

from spanmq.codec.exact_json import Number, dumps, loads
from spanmq.errors import InvalidArgumentError, InvalidBodyError

CORRUPT: Final = "_corrupt_record"
# Deeper than this no body fits. Python's parser would fail at a depth that depends on its caller.
DEPTH_MAX: Final = 500

_DIGITS_MAX: Final = 76  # of a decimal256
_BLANKS: Final = "".join(map(chr, range(33))) + "\x7f"
_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_NOT_FINITE: Final = {
    "NaN": "nan",
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), "inf"),
    **dict.fromkeys(("-Infinity", "-INF"), "-inf"),
}
_DATE: Final = re.compile(
    r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL | re.ASCII
)
_ZONE: Final = (
    r" ?(Z|UTC|GMT|[+-][0-9]{1,2}(?::[0-9]{1,2})?|[+-][0-9]{1,2}:[0-9]{2}:[0-9]{2}|[+-][0-9]{4}(?:[0-9]{2})?)"
)
_TIMESTAMP: Final = re.compile(
    r"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})"
    rf"(?::([0-9]{{1,2}})(?:\.([0-9]*))?(?:{_ZONE})?)?)?)?)?)?",
    re.ASCII,
)
# What Arrow may convert at once: a subset in which it agrees with the expressions above.
_USUAL_DATE: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_USUAL_TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_USUAL_ZONE: Final = "(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])$"
_DAY: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()
# The Gregorian calendar repeats itself after 400 years.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097


def check_body_schema(kind: pyarrow.DataType, path: str = "") -> None:
    """Raise InvalidArgumentError for a type that no JSON value has here."""
    of = pyarrow.types
    if of.is_struct(kind):
        names = [field.name for field in kind]
        for field in kind:
            name = f"{path}.{field.name}" if path else field.name
            if names.count(field.name) > 1:
                raise InvalidArgumentError(f"the option bodySchema has the field {name} twice")
            if not path and field.name == CORRUPT and not of.is_string(field.type):
                raise InvalidArgumentError(f"the option bodySchema: the field {CORRUPT} must be a string")
            if not field.nullable:
                raise InvalidArgumentError(
                    f"the option bodySchema: the field {name} can't be NOT NULL",
                    hint="A body may lack any field, which is then null.",
                )
            check_body_schema(field.type, name)
    elif of.is_list(kind):
        check_body_schema(kind.value_type, path)
    elif of.is_map(kind) and of.is_string(kind.key_type):
        check_body_schema(kind.item_type, path)
    elif not _is_scalar(kind):
        raise InvalidArgumentError(
            f"the option bodySchema: the field {path} can't be a {kind}",
            hint="It can be a number, string, boolean, binary, date, timestamp or timestamp_ntz; an array, a "
            "struct or a map by strings of these; a string takes any value as text.",
        )


def parse_bodies(
    batch: pyarrow.RecordBatch, kind: pyarrow.StructType, mode: str, queue: str, *, is_valid_json: bool = True
) -> pyarrow.RecordBatch:
    """Return the batch with its body as a struct.

    For a body that does not fit: permissive leaves null what does not fit, and the text in a field
    `_corrupt_record` if the schema has one; dropmalformed leaves the message out; failfast raises
    InvalidBodyError. `is_valid_json` if PostgreSQL has checked each body.
    """
    texts = batch.column("body")
    parsed = _all_at_once(texts, kind) if is_valid_json else None
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
    if texts.null_count or not fields or _has_map(kind):
        return None
    lines = texts.to_pylist()
    if not all(line.startswith("{") for line in lines) or any(map(_is_too_deep, lines)):
        return None
    data = "\n".join(lines).encode()
    schema = pyarrow.schema([field.with_type(_readable(field.type)) for field in fields])
    try:
        table = pyarrow.json.read_json(
            io.BytesIO(data),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(data), 1) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(lines):
            return None
        columns = [
            pyarrow.nulls(len(lines), field.type)
            if field.name == CORRUPT
            else _from_readable(_one_array(table.column(field.name)), field.type)
            for field in kind
        ]
    except (pyarrow.ArrowException, _MisfitError):
        return None
    return pyarrow.StructArray.from_arrays(columns, fields=list(kind))


def _one_array(column: pyarrow.ChunkedArray) -> pyarrow.Array:
    return column.chunk(0) if column.num_chunks == 1 else pyarrow.concat_arrays(column.chunks)


def _has_map(kind: pyarrow.DataType) -> bool:
    of = pyarrow.types
    if of.is_struct(kind):
        return any(_has_map(field.type) for field in kind)
    return of.is_map(kind) or (of.is_list(kind) and _has_map(kind.value_type))


def _readable(kind: pyarrow.DataType) -> pyarrow.DataType:
    """Return the type as which Arrow reads JSON: without rules of its own for values."""
    of = pyarrow.types
    if of.is_struct(kind):
        return pyarrow.struct([field.with_type(_readable(field.type)) for field in kind])
    if of.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_readable(kind.value_type)))
    if of.is_decimal(kind):
        # Arrow checks this precision before it moves the point: it needs room for that many more digits.
        return pyarrow.decimal256(_DIGITS_MAX - kind.scale, kind.scale)
    return pyarrow.string() if of.is_temporal(kind) or of.is_binary(kind) else kind


def _from_readable(array: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array:
    """Convert what Arrow has read; raises _MisfitError or ArrowException if a value does not fit."""
    of = pyarrow.types
    if of.is_struct(kind):
        parts = [_from_readable(array.field(i), field.type) for i, field in enumerate(kind)]
        return pyarrow.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if of.is_list(kind):
        values = _from_readable(array.values, kind.value_type)
        return pyarrow.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
    if of.is_decimal(kind):
        return array.cast(kind)
    if not (of.is_temporal(kind) or of.is_binary(kind)):
        return array
    usual = None if of.is_binary(kind) else _usual_times(array, kind)
    if usual is not None:
        return usual
    convert = _converter(kind)
    return pyarrow.array([None if each is None else convert(each) for each in array.to_pylist()], kind)


def _usual_times(array: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array | None:
    """Convert times that all have the same usual form; None if some have not."""
    from pyarrow import compute

    def is_all(pattern: str) -> bool:
        return compute.all(compute.match_substring_regex(array, pattern)).as_py() is not False

    if pyarrow.types.is_date(kind):
        return array.cast(kind) if is_all(_USUAL_DATE) else None
    # Spark truncates nanoseconds.
    array = compute.replace_substring_regex(array, r"(\.[0-9]{6})[0-9]+", r"\1")
    if is_all(_USUAL_TIME + "$"):
        return array.cast(pyarrow.timestamp("us")).view(kind)
    return array.cast(kind) if kind.tz is not None and is_all(_USUAL_TIME + _USUAL_ZONE) else None


def _one_by_one(
    texts: pyarrow.Array, kind: pyarrow.StructType, mode: str, queue: str
) -> tuple[pyarrow.Array, list[bool]]:
    rows: list[dict[str, Any] | None] = []
    fits: list[bool] = []
    for text in texts.to_pylist():
        row, is_fit = _row(text, kind)
        if not is_fit and mode == "failfast":
            shown = "null" if text is None else text[:200]
            raise InvalidBodyError(
                f"a body of queue {queue} does not fit the option bodySchema: {shown}",
                hint="The option mode=permissive or dropmalformed goes on past it.",
                queue=queue,
            )
        rows.append(row)
        fits.append(is_fit)
    return pyarrow.array(rows, kind), fits


def _row(text: str | None, kind: pyarrow.StructType) -> tuple[dict[str, Any] | None, bool]:
    if text is None:
        return None, True
    misfits: list[str] = []
    row: dict[str, Any] = {field.name: None for field in kind}
    value = _loaded(text)
    if isinstance(value, dict):
        fields = [field for field in kind if field.name != CORRUPT]
        row |= _struct(value, fields, misfits)
    else:
        misfits.append("")
    if misfits and CORRUPT in row:
        row[CORRUPT] = text
    return row, not misfits


class _MisfitError(Exception):
    """A value does not fit its field's type."""


def _loaded(text: str) -> Any:
    """Parse a body; None for one that is not valid JSON or too deep, as no object either."""
    if _is_too_deep(text):
        return None
    try:
        return loads(text)
    except ValueError:
        return None


def _is_too_deep(text: str) -> bool:
    if len(text) < 2 * DEPTH_MAX or text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    depth = deepest = 0
    for sign in re.findall(r"[\[{\]}]", _TEXT.sub("", text)):
        depth += 1 if sign in "[{" else -1
        deepest = max(deepest, depth)
    return deepest > DEPTH_MAX


def _struct(value: dict[str, Any], fields: list[pyarrow.Field], misfits: list[str]) -> dict[str, Any]:
    """Convert each field; one that does not fit is null, and named in `misfits`."""
    row: dict[str, Any] = {}
    for field in fields:
        try:
            row[field.name] = _converted(value.get(field.name), field.type, misfits)
        except _MisfitError:
            row[field.name] = None
            misfits.append(field.name)
    return row


def _converted(value: Any, kind: pyarrow.DataType, misfits: list[str]) -> Any:
    """Convert a value of JSON for Arrow; raises _MisfitError if it does not fit as a whole."""
    if value is None:
        return None
    of = pyarrow.types
    if of.is_struct(kind):
        _must(isinstance(value, dict))
        return _struct(value, list(kind), misfits)
    if of.is_list(kind):
        _must(isinstance(value, list))
        return [_converted(each, kind.value_type, misfits) for each in value]
    if of.is_map(kind):
        _must(isinstance(value, dict))
        return [(_string(name), _converted(each, kind.item_type, misfits)) for name, each in value.items()]
    return _converter(kind)(value)


def _is_scalar(kind: pyarrow.DataType) -> bool:
    try:
        _converter(kind)
    except _MisfitError:
        return False
    return True


def _converter(kind: pyarrow.DataType) -> Callable[[Any], Any]:
    """Return the function that converts values of JSON to this type."""
    of = pyarrow.types
    if of.is_string(kind):
        return _string
    if of.is_boolean(kind):
        return _boolean
    if of.is_integer(kind):
        return partial(_integer, bits=kind.bit_width)
    if of.is_floating(kind):
        return partial(_floating, kind=kind)
    if of.is_decimal(kind):
        return partial(_decimal, kind=kind)
    if of.is_date(kind):
        return _date
    if of.is_timestamp(kind):
        return partial(_timestamp, is_zoned=kind.tz is not None)
    if of.is_binary(kind):
        return _binary
    raise _MisfitError


def _must(fits: bool) -> None:
    if not fits:
        raise _MisfitError


def _string(value: Any) -> str:
    text = str(value) if isinstance(value, str) else dumps(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # Half of a pair of surrogates, which no UTF-8 has.
        raise _MisfitError from error
    return text


def _boolean(value: Any) -> bool:
    _must(isinstance(value, bool))
    return bool(value)


def _integer(value: Any, bits: int) -> int:
    _must(isinstance(value, Number) and _INTEGER.fullmatch(value) is not None)
    number = int(value)
    _must(-(1 << bits - 1) <= number < 1 << bits - 1)
    return number


def _floating(value: Any, kind: pyarrow.DataType) -> float:
    if not isinstance(value, Number):
        _must(isinstance(value, str) and value in _NOT_FINITE)
        return float(_NOT_FINITE[value])
    # By Arrow where Python's way, through the next double, would round twice.
    number = float(value) if kind.bit_width == 64 else pyarrow.scalar(str(value)).cast(kind).as_py()
    return float(number)


def _decimal(value: Any, kind: pyarrow.Decimal128Type) -> Decimal:
    _must(isinstance(value, str))
    # Commas in texts group digits for Spark.
    text = value if isinstance(value, Number) else value.replace(",", "")
    _must(_NUMBER.fullmatch(text) is not None)
    number = Decimal(text)
    if not number or number.adjusted() < -kind.scale - 1:
        return Decimal(0)
    _must(number.adjusted() < kind.precision - kind.scale)
    with localcontext(prec=_DIGITS_MAX):
        rounded = number.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    _must(not rounded or rounded.adjusted() < kind.precision - kind.scale)
    return rounded


def _date(value: Any) -> int:
    """Return the days since 1970."""
    match = _DATE.fullmatch(value.strip(_BLANKS)) if _is_text(value) else None
    if match is None:
        raise _MisfitError
    return _days(*(int(each or 1) for each in match.groups()))


def _days(year: int, month: int, day: int) -> int:
    cycles, rest = divmod(year - 1, _CYCLE_YEARS)
    try:
        return date(rest + 1, month, day).toordinal() - _EPOCH + cycles * _CYCLE_DAYS
    except ValueError as error:
        raise _MisfitError from error


def _timestamp(value: Any, *, is_zoned: bool) -> int:
    """Return the microseconds since 1970. One without a zone is in UTC, as the session's times are."""
    if is_zoned and isinstance(value, Number):
        micros = _integer(value, 64) * 1_000_000
    else:
        match = _TIMESTAMP.fullmatch(value.strip(_BLANKS)) if _is_text(value) else None
        if match is None:
            raise _MisfitError
        *day, hour, minute, second, fraction, zone = match.groups()
        _must(is_zoned or zone is None)
        hour, minute, second = (int(each or 0) for each in (hour, minute, second))
        _must(hour < 24 and minute < 60 and second < 60)
        seconds = _days(*(int(each or 1) for each in day)) * _DAY + hour * 3600 + minute * 60 + second
        micros = (seconds - _offset(zone)) * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))
    _must(-(1 << 63) <= micros < 1 << 63)
    return micros


def _offset(zone: str | None) -> int:
    """Return the seconds that a zone is ahead of UTC."""
    if zone is None or zone in ("Z", "UTC", "GMT"):
        return 0
    parts = zone[1:].split(":") if ":" in zone else [zone[1:][i : i + 2] for i in range(0, len(zone) - 1, 2)]
    hours, minutes, seconds = [int(part) for part in parts] + [0] * (3 - len(parts))
    ahead = hours * 3600 + minutes * 60 + seconds
    _must(minutes < 60 and seconds < 60 and ahead <= 18 * 3600)
    return ahead if zone[0] == "+" else -ahead


def _binary(value: Any) -> bytes:
    _must(_is_text(value))
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except ValueError as error:
        raise _MisfitError from error


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)
