"""The options of the data source: read once, refused by name, with the nearest name for a slip."""

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from spanmq.errors import InvalidArgumentError

TABLES: Final = ("queue", "archive", "dead_letters", "failures")

STARTS: Final = ("earliest", "latest")
ENDS: Final = ("latest",)

_READ: Final = ("table", "columns", "includeHeaders", "minPartitions", "pushFilters")
_STREAM: Final = (
    *("receiver", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    "failOnDataLoss",
)
_BOUNDS: Final = ("startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp")
_WRITE: Final = ("writerId", "group", "rowsPerSecond")
_SEALED: Final = ("encryptionKeyFile", "encryptionTrusted")
NAMES: Final = ("dsn", "queue", *_READ, *_STREAM, *_BOUNDS, *_WRITE, *_SEALED)
# The options that do not apply to a use.
_OTHERS: Final = {
    "a batch read": {*_STREAM, *_WRITE},
    "a stream": {*_WRITE, "pushFilters"},
    "a batch write": {*_READ, *_STREAM, *_BOUNDS},
    # The checkpoint names it.
    "a stream that writes": {*_READ, *_STREAM, *_BOUNDS, "writerId"} - {"failOnDataLoss"},
}
# What Spark itself puts among the options of a stream.
SPARKS_OWN: Final = frozenset(
    {
        "checkpointlocation",
        "path",
        "queryname",
        "outputmode",
        "provider",
        "owner",
        "comment",
        "location",
        "external",
    }
)
# A table of the catalogue has each of its options once more, with this prefix.
TABLE_PREFIX: Final = "option."


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The part of an archive to read: ids and times, the first ones included and the last ones not."""

    starts_latest: bool = False
    first_id: int | None = None
    end_id: int | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    @property
    def has_end(self) -> bool:
        """Return whether messages that are archived later are not read."""
        return self.end_id is not None or self.ends_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The checked options of a user. For reads, `queue` may be a list or a pattern."""

    dsn: str
    queue: str
    table: str = "queue"
    columns: tuple[str, ...] | None = None
    include_headers: bool = False
    push_filters: bool = False
    min_partitions: int = 1
    receiver: str | None = None
    max_messages: int = 500_000
    max_bytes: int | None = None
    min_messages: int = 1
    max_delay: float = 900.0
    fail_on_data_loss: bool = True
    bounds: Bounds = Bounds()
    writer_id: str | None = None
    group: str | None = None
    rows_per_second: int | None = None
    encryption_key_file: str | None = None
    encryption_trusted: tuple[str, ...] = ()


def read_options(settings: Mapping[str, str], use: str | None = None) -> Options:
    """Check the options, perhaps of one use of the source.

    Raises InvalidArgumentError for one that is unknown, missing, out of range or not for this use.
    """
    values = named_options(settings, NAMES, "the source spanmq")
    for name in values:
        if use is not None and name in _OTHERS[use]:
            raise InvalidArgumentError(f"the option {name} is not for {use}")
    dsn = dsn_of(values)
    if not values.get("queue"):
        raise InvalidArgumentError(
            "the option queue is missing",
            hint="For a table of Spark's catalogue: create table orders using spanmq options (queue 'orders'),"
            " without columns.",
        )
    columns = values.get("columns")
    trusted = values.get("encryptionTrusted")
    return Options(
        dsn=dsn,
        queue=values["queue"].strip(),
        table=_one_of("table", values.get("table", "queue"), TABLES),
        columns=_names("columns", columns) if columns else None,
        include_headers=_boolean("includeHeaders", values.get("includeHeaders", "false")),
        push_filters=_boolean("pushFilters", values.get("pushFilters", "false")),
        min_partitions=_number("minPartitions", values.get("minPartitions", "1")),
        receiver=values.get("receiver"),
        max_messages=_number("maxOffsetsPerTrigger", values.get("maxOffsetsPerTrigger", "500000")),
        max_bytes=_bytes("maxBytesPerTrigger", values.get("maxBytesPerTrigger")),
        min_messages=_number("minOffsetsPerTrigger", values.get("minOffsetsPerTrigger", "1")),
        max_delay=_seconds("maxTriggerDelay", values.get("maxTriggerDelay", "15m")),
        fail_on_data_loss=_boolean("failOnDataLoss", values.get("failOnDataLoss", "true")),
        bounds=_bounds(values),
        writer_id=values.get("writerId"),
        group=values.get("group"),
        rows_per_second=_number("rowsPerSecond", values["rowsPerSecond"])
        if "rowsPerSecond" in values
        else None,
        encryption_key_file=values.get("encryptionKeyFile"),
        encryption_trusted=tuple(part.strip() for part in trusted.split(",")) if trusted else (),
    )


def named_options(settings: Mapping[str, str], names: Sequence[str], what: str) -> dict[str, str]:
    """Return the options of Spark by their names among these; raises InvalidArgumentError for one that `what` lacks."""
    known = {name.lower(): name for name in names}
    values: dict[str, str] = {}
    for option, value in settings.items():
        key = option[len(TABLE_PREFIX) :] if option.lower().startswith(TABLE_PREFIX) else option
        if key.lower() in SPARKS_OWN:
            continue
        if key.lower() not in known:
            hint = hint_of(key, names, f"There are {', '.join(names)}.")
            raise InvalidArgumentError(f"{what} has no option {key!r}", hint=hint)
        values[known[key.lower()]] = value
    return values


def dsn_of(values: Mapping[str, str]) -> str:
    """Return the database that the options name, or SPANMQ_DSN; raises InvalidArgumentError."""
    dsn = values.get("dsn") or os.environ.get("SPANMQ_DSN")
    if not dsn:
        raise InvalidArgumentError(
            "the option dsn is missing", hint="It names the database; SPANMQ_DSN does, too."
        )
    return dsn


def options_for(settings: Mapping[str, str], use: str) -> dict[str, str]:
    """Return the options that are for one use of the source."""
    others = {name.lower() for name in _OTHERS[use]}
    return {key: value for key, value in settings.items() if key.lower() not in others}


def hint_of(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return the nearest of the names, whatever its case, as a hint; without one, what is said otherwise."""
    folded = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), folded, n=1)
    return f"Did you mean {folded[near[0]]}?" if near else otherwise


def _bounds(values: Mapping[str, str]) -> Bounds:
    bounds = [name for name in _BOUNDS if values.get(name, "earliest").lower() != "earliest"]
    if bounds and values.get("table") != "archive":
        raise InvalidArgumentError(
            f"the option {bounds[0]} is for the table archive",
            hint="A stream over a queue begins with its unsettled messages. For an earlier or later start read a"
            " subscription: client.subscriptions.create(name, queue, since=...), or since_id=...",
        )
    for kind in ("starting", "ending"):
        if f"{kind}Offsets" in values and f"{kind}Timestamp" in values:
            raise InvalidArgumentError(f"choose one of the options {kind}Offsets and {kind}Timestamp")
    start = _place("startingOffsets", values.get("startingOffsets", "earliest"), STARTS)
    end = _place("endingOffsets", values.get("endingOffsets", "latest"), ENDS)
    return Bounds(
        starts_latest=start == "latest",
        first_id=start if isinstance(start, int) else None,
        end_id=end if isinstance(end, int) else None,
        starts_at=_time("startingTimestamp", values.get("startingTimestamp")),
        ends_at=_time("endingTimestamp", values.get("endingTimestamp")),
    )


def _place(name: str, value: str, words: tuple[str, ...]) -> str | int:
    """Read one of these words, or an id."""
    text = value.strip().lower()
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else _one_of(name, text, words)


def _time(name: str, value: str | None) -> datetime | None:
    """Read a time in ISO 8601, in UTC where it names no zone; or milliseconds since 1970."""
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{10,14}", value.strip()):
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(value))
    try:
        time = datetime.fromisoformat(value.strip())
    except ValueError:
        raise InvalidArgumentError(
            f"the option {name} must be a time, got {value!r}", hint="Such as 2026-01-31T12:00:00Z."
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _names(option: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(f"the option {option} has the name {name!r} twice")
    return names


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        hint = hint_of(value, allowed, f"It is one of {', '.join(allowed)}.")
        raise InvalidArgumentError(f"the option {name} can't be {value!r}", hint=hint)
    return value


def _boolean(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"the option {name} must be true or false, got {value!r}")
    return value.lower() == "true"


def _bytes(name: str, value: str | None) -> int | None:
    """Read a size as Spark writes it: a number of bytes, or of k, m, g."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,12})([kmg]?)b?", value.strip().lower())
    size = int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]] if match else 0
    if not 0 < size < 1 << 63:
        raise InvalidArgumentError(f"the option {name} must be a size such as 64m, got {value!r}")
    return size


def _seconds(name: str, value: str) -> float:
    """Read a length of time as Kafka's source does: such as 500ms, 30s, 5m or 1h."""
    match = re.fullmatch(r"([0-9]{1,9})\s*(ms|s|m|min|h)", value.strip().lower())
    if match is None:
        raise InvalidArgumentError(f"the option {name} must be a time such as 30s or 5m, got {value!r}")
    return int(match[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}[match[2]]


def _number(name: str, value: str) -> int:
    if not (value.strip().isdecimal() and 0 < int(value) <= 2_000_000_000):
        raise InvalidArgumentError(f"the option {name} must be a number of 1 or more, got {value!r}")
    return int(value)
