"""Values from rows. Every received message passes through `messages`, so each step of it is short. No I/O."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, replace
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeVar

from spanmq.codec.body import Codec, read_json, unread
from spanmq.codec.encryption import Unopened
from spanmq.errors import ResultNotStoredError
from spanmq.model import (
    GROUP_HEADER,
    Batch,
    Change,
    DeadLetter,
    Explanation,
    HeldNotices,
    Message,
    PipelineRun,
    Policy,
    Progress,
    QueueSchema,
    Receiver,
    Redriven,
    Result,
    RunningHandler,
    Schedule,
    Settled,
    SignalEntry,
    TaskShape,
    WorkerReport,
)

logger = logging.getLogger("spanmq")

Kind = TypeVar("Kind")

Pick = Callable[[Sequence[Any]], tuple[Any, ...]]

# The columns of a message, in this order; of two names, the first that exists. Columns that a function does
# not return are None.
COLUMNS: Final = (
    *(("msg_id",), ("message",), ("headers",), ("attempt", "read_ct"), ("enqueued_at",), ("vt",)),
    *(("last_read_at",), ("lease_id",), ("slot",), ("group_key",), ("last_error",), ("archived_at",)),
)
# The columns of other values whose names differ from the fields.
METRICS_COLUMNS: Final = {
    "queue": "queue_name",
    "length": "queue_length",
    "visible_length": "queue_visible_length",
    "newest_age_seconds": "newest_msg_age_sec",
    "oldest_age_seconds": "oldest_msg_age_sec",
    "scraped_at": "scrape_time",
}
BINDING_COLUMNS: Final = {"queue": "queue_name", "expression": "compiled_regex"}


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an answer: `jsonb` as bytes, times as aware datetimes."""

    columns: tuple[str, ...]
    values: Sequence[Sequence[Any]]

    def scalar(self) -> Any:
        """Return the first column of the only row."""
        return self.values[0][0]

    def column(self) -> list[Any]:
        """Return the first column of each row."""
        return [row[0] for row in self.values]

    def records(self) -> list[dict[str, Any]]:
        """Return each row as a dictionary."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.values]


# Readers of any function's rows.


def nothing(_: Rows) -> None:
    """Read nothing: the function returns void."""


def flag(rows: Rows) -> bool:
    """Read a boolean."""
    return bool(rows.scalar())


def string(rows: Rows) -> str:
    """Read a text."""
    return str(rows.scalar())


def number(rows: Rows) -> int:
    """Read a number."""
    return int(rows.scalar())


def optional_number(rows: Rows) -> int | None:
    """Read a number, or None."""
    value = rows.scalar()
    return None if value is None else int(value)


def numbers(rows: Rows) -> list[int]:
    """Read a column of numbers."""
    return rows.column()


def strings(rows: Rows) -> list[str]:
    """Read a column of texts."""
    return rows.column()


def listed(kind: type[Kind], **columns: str) -> Callable[[Rows], list[Kind]]:
    """Return a reader that makes a dataclass of each row; `columns` names those that differ from the fields."""
    return lambda rows: made(kind, rows.records(), **columns)


def made(kind: type[Kind], records: Iterable[Mapping[str, Any]], **columns: str) -> list[Kind]:
    """Make a dataclass of each record, without columns that this release does not know.

    A column that the schema does not have, being one release older, has the field's default, or None where the field
    may be None. Raises KeyError where a field has neither.
    """
    names = [
        (field.name, columns.get(field.name, field.name), _default(field))
        for field in fields(kind)  # type: ignore[arg-type]
    ]
    return [
        kind(
            **{
                name: row[column] if default is MISSING else row.get(column, default)
                for name, column, default in names
            }
        )
        for row in records
    ]


def _default(field: Field[Any]) -> Any:
    """Return the value of a field whose column is missing; MISSING if it has none."""
    # A type is its text where a module postpones annotations.
    return None if field.default is MISSING and "None" in str(field.type) else field.default


def only(kind: type[Kind], **columns: str) -> Callable[[Rows], Kind]:
    """Return a reader that makes a dataclass of the only row."""
    read = listed(kind, **columns)
    return lambda rows: read(rows)[0]


def first(kind: type[Kind], **columns: str) -> Callable[[Rows], Kind | None]:
    """Return a reader that makes a dataclass of the first row, or None if there are no rows."""
    read = listed(kind, **columns)
    return lambda rows: next(iter(read(rows)), None)


# Readers of what has values of its own.


def messages(codec: Codec, queue: str, rows: Rows) -> list[Message]:
    """Return messages from rows of `message_record` or of types with more columns."""
    pick = _picker(rows.columns)
    result = []
    for row in rows.values:
        # With a place for what there is no column for.
        number, body, raw, attempt, sent_at, until, read_at, lease, slot, group, error, archived_at = pick(
            (*row, None)
        )
        body, headers = decoded(codec, body, raw)
        # PGMQ takes any JSON as headers.
        if group is None and type(headers) is dict and (value := headers.get(GROUP_HEADER)) is not None:
            group = str(value)
        result.append(
            Message(
                queue=queue,
                message_id=number,
                body=body,
                headers=headers,
                attempt=attempt,
                enqueued_at=sent_at,
                leased_until=until,
                last_read_at=read_at,
                lease_id=lease,
                slot=slot,
                group=group,
                last_error=error,
                archived_at=archived_at,
            )
        )
    return result


def decoded(codec: Codec, raw: bytes | None, headers: bytes | None) -> tuple[Any, Any]:
    """Return a body and headers; an Unopened as the body if one of them cannot be decoded."""
    body = codec.decode(raw)
    if headers is None:
        return body, None
    try:
        return body, read_json(headers)
    except RecursionError as error:
        return unread(headers, "headers", error), None


def by_reason(closed: Sequence[Message]) -> dict[tuple[str, str], list[Message]]:
    """Return, and log, messages that can't be decrypted or read, by the reason and the class of its error."""
    reasons: dict[tuple[str, str], list[Message]] = {}
    for message in closed:
        error = message.body.error
        reasons.setdefault((error.message, type(error).__name__), []).append(message)
        about = message.queue, message.message_id, error.message
        logger.warning("body_unopened queue=%s message=%s error=%r", *about)
    return reasons


def settlements(rows: Rows) -> list[Settled]:
    """Return the outcomes of settled messages."""
    if not rows.values:  # nor names of columns, through some drivers
        return []
    places = {name: place for place, name in enumerate(rows.columns)}
    number, outcome = places["msg_id"], places["outcome"]
    return [Settled(row[number], row[outcome]) for row in rows.values]


@lru_cache(maxsize=64)
def _picker(columns: tuple[str, ...]) -> Pick:
    """Return a function that picks the fields of a message out of a row, to which a None was added."""
    places = {name: place for place, name in enumerate(columns)}
    return itemgetter(
        *(next((places[name] for name in names if name in places), len(columns)) for names in COLUMNS)
    )


# The nearest to PostgreSQL's times before the year 1, after 9999 and infinity, which Python does not have:
# a day within its range, so that they can be shown in any time zone.
EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)


def read_time(text: str) -> datetime:
    """Read a time as PostgreSQL writes it in JSON; for one that Python has not the nearest."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return EARLIEST if text.startswith("-") or text.endswith("BC") else LATEST


def templates(codec: Codec, rows: Rows) -> list[dict[str, Any]]:
    """Return rows that have the body and headers of a message to come, decoded."""
    return [_with_decoded(codec.of(row["queue"]), row) for row in rows.records()]


def _with_decoded(codec: Codec, row: dict[str, Any]) -> dict[str, Any]:
    body, headers = decoded(codec, row["message"], row["headers"])
    return row | {"message": body, "headers": headers}


def raw_json(value: Any) -> bytes | None:
    """Return JSON as a decoder takes it: a driver of other software has read it, with the rest of the row."""
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


def json_value(value: Any) -> Any:
    """Return the value of JSON: bytes by psycopg, a value where a whole row came as JSON."""
    return json.loads(value) if isinstance(value, bytes | str) else value


def redriven_letters(codec: Codec, rows: Rows) -> list[Redriven]:
    """Return redriven dead letters, with the bodies that a patch changed."""
    return [
        replace(
            letter, before=codec.decode(raw_json(letter.before)), after=codec.decode(raw_json(letter.after))
        )
        for letter in listed(Redriven, message_id="msg_id")(rows)
    ]


def dead_letters(codec: Codec, rows: Rows) -> list[DeadLetter]:
    """Return dead letters with their histories."""
    records = [
        _with_decoded(codec.of(row["queue_name"]), row) | {"history": _history(row["history"])}
        for row in rows.records()
    ]
    columns = {"queue": "queue_name", "message_id": "msg_id", "body": "message", "group": "group_key"}
    return made(DeadLetter, records, **columns)


def _history(value: Any) -> list[dict[str, Any]]:
    times = ("failed_at", "retry_at")
    return [
        failure | {name: datetime.fromisoformat(failure[name]) for name in times if failure.get(name)}
        for failure in json_value(value)
    ]


def results(codec: Codec, rows: Rows) -> dict[int, object]:
    """Return the results of messages by their ids."""
    return {int(row["msg_id"]): codec.decode_result(raw_json(row["result"])) for row in rows.records()}


def listed_results(codec: Codec, queue: str, rows: Rows) -> list[Result]:
    """Return what became of messages of a queue."""
    records = []
    for row in rows.records():
        record = row | {"queue": queue}
        if row.get("state") == "stored":
            value = record["value"] = codec.decode_result(raw_json(row.get("result")))
            if isinstance(value, Unopened) and isinstance(value.error, ResultNotStoredError):
                record |= {"state": "unstored", "value": None, "error": value.error.message}
        records.append(record)
    return made(Result, records, message_id="msg_id")


@dataclass(frozen=True, slots=True)
class Unplanned:
    """A schedule that needs more times."""

    name: str
    cron: str
    time_zone: str
    planned_until: datetime
    plan_from: datetime
    looked_at: datetime


def upcoming_schedules(rows: Rows) -> tuple[list[Unplanned], float | None]:
    """Return the schedules that need more times, and the seconds until the next message of all."""
    # A row without a name has the time of the next message of all.
    unplanned = [row for row in rows.records() if row["name"] is not None]
    waits = [float(row["due_in"]) for row in rows.records() if row["name"] is None]
    return made(Unplanned, unplanned), min(waits, default=None)


def schedules(codec: Codec, rows: Rows) -> list[Schedule]:
    """Return schedules."""
    return made(Schedule, templates(codec, rows), body="message", last_message_id="last_msg_id")


def batches(codec: Codec, rows: Rows) -> list[Batch]:
    """Return batches."""
    return made(Batch, templates(codec, rows), body="message", message_id="sent_msg_id")


def signals(codec: Codec, queue: str, rows: Rows) -> list[SignalEntry]:
    """Return the waits and signals of a queue."""
    records = []
    for row in rows.records():
        body, headers = decoded(codec, raw_json(row["body"]), raw_json(row["headers"]))
        records.append(row | {"queue": queue, "body": body, "headers": headers})
    return made(SignalEntry, records)


def body_schema(rows: Rows) -> QueueSchema:
    """Return the schema of a queue's bodies."""
    [row] = rows.records()
    return QueueSchema(json_value(row["schema"]), row["is_checked"])


def policy(rows: Rows) -> Policy:
    """Return the policy of a queue."""
    return made(Policy, [json.loads(rows.scalar())])[0]


def category_settings(rows: Rows) -> dict[str, Any]:
    """Return what a category means."""
    settings: dict[str, Any] = json.loads(rows.scalar())
    return settings


def receivers(rows: Rows) -> list[Receiver]:
    """Return streams that consume queues."""
    records = [row | {"receiver": str(row["receiver"])} for row in rows.records()]
    return made(Receiver, records, queue="queue_name", receiver_id="receiver")


def worker_reports(rows: Rows) -> list[WorkerReport]:
    """Return what workers have reported."""
    records = [
        row | {"progress": _progress(row.get("progress")), "slow": tuple(_handlers(row.get("slow")))}
        for row in rows.records()
    ]
    return made(WorkerReport, records)


def running_handlers(rows: Rows) -> list[RunningHandler] | None:
    """Return running handlers; None if there is no report of them."""
    value = rows.scalar()
    return None if value is None else _handlers(value)


def _handlers(value: Any) -> list[RunningHandler]:
    reported = [handler | {"seconds": float(handler["seconds"])} for handler in json_value(value) or ()]
    return made(RunningHandler, reported, message_id="msg_id", task="kind")


def worker_commands(rows: Rows) -> list[tuple[str | None, str | None]]:
    """Return what commands ask of a worker, each with its queue; a schema one release older returns nothing of it."""
    return [(row.get("queue"), row.get("command")) for row in rows.records()]


def _progress(value: Any) -> tuple[Progress, ...]:
    reported = [progress | {"share": float(progress["share"])} for progress in json_value(value) or ()]
    return tuple(made(Progress, reported, message_id="msg_id", task="kind"))


def changes(rows: Rows) -> list[Change]:
    """Return recorded changes."""
    read = [row | {"details": json_value(row.get("details"))} for row in rows.records()]
    return made(Change, read, queue="queue_name")


def task_shapes(rows: Rows) -> list[TaskShape]:
    """Return the shapes that senders have noted."""
    return made(TaskShape, [row | {"shape": json_value(row["shape"])} for row in rows.records()])


def explanations(rows: Rows) -> list[Explanation]:
    """Return what explain() returned."""
    return made(Explanation, [row | {"object": json_value(row.get("object"))} for row in rows.records()])


def held_notices(rows: Rows) -> HeldNotices | None:
    """Return the notices that a call took, None if another process has them."""
    read = [row | {"announced": json_value(row.get("announced"))} for row in rows.records()]
    return next(iter(made(HeldNotices, read)), None)


def pipeline_runs(rows: Rows) -> list[PipelineRun]:
    """Return runs of the pipeline's jobs."""
    reports = [row | {"report": json_value(row.get("report"))} for row in rows.records()]
    return made(PipelineRun, reports, queue="queue_name")
