"""Calls of SQL functions that several modules make, or that are made for every message, and what they pass. No I/O.

The functions bear the names of the client's methods; PGMQ's names of arguments and columns end here.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Final, Literal
from uuid import UUID

from spanmq.client import argument
from spanmq.client.argument import Argument, Delay, Seconds, optional
from spanmq.client.call import Shape, SqlCall, optional_queue_call, queue_call
from spanmq.client.rows import (
    Rows,
    flag,
    json_value,
    listed,
    made,
    messages,
    nothing,
    number,
    numbers,
    settlements,
)
from spanmq.codec.batch import Encoded
from spanmq.codec.body import Codec
from spanmq.errors import InvalidArgumentError
from spanmq.model import (
    DeadLetterFilters,
    FailingFilters,
    Leased,
    MaintenanceStep,
    Message,
    Routed,
    Settled,
    ShardMap,
)

Held = Message | Leased
# Stands for the body that a dead letter has.
UNCHANGED: Final = object()
Grouped = Literal["fill", "round_robin", "head"]
DedupUntil = Literal["settled", "started"]
OnDuplicate = Literal["keep", "replace", "raise"]

# PGMQ's three functions for messages of ordered groups.
_GROUPED = {"fill": "read_grouped", "round_robin": "read_grouped_rr", "head": "read_grouped_head"}

# Sending. Bodies and headers are JSON text already.


def send(queue: str, body: str, headers: str | None, delay: Delay | None) -> SqlCall[int]:
    """Send one message."""
    arguments = (
        argument.json("msg", body),
        argument.json("headers", headers),
        *optional(argument.moment, "delay", delay),
    )
    return queue_call(queue, "send", number, *arguments, native=False)


def send_batch(queue: str, batch: list[Encoded], delay: Delay | None) -> SqlCall[list[int]]:
    """Send as many messages as one call may carry."""
    arguments = (*_batch("msgs", batch), *optional(argument.moment, "delay", delay))
    return queue_call(queue, "send_batch", numbers, *arguments, native=False)


def send_topic(routing_key: str, body: str, headers: str | None, delay: Seconds | None) -> SqlCall[int]:
    """Send one message to every queue that a topic reaches."""
    arguments = [argument.text("routing_key", routing_key), argument.json("msg", body)]
    if headers is not None or delay is not None:
        # PGMQ has headers only together with a delay, and that in whole seconds.
        arguments += [argument.json("headers", headers), argument.whole_seconds("delay", delay or 0)]
    return optional_queue_call(None, "send_topic", number, *arguments, native=False)


def send_batch_topic(routing_key: str, batch: list[Encoded], delay: Delay | None) -> SqlCall[list[Routed]]:
    """Send as many messages as one call may carry to every queue that a topic reaches."""
    arguments = (
        argument.text("routing_key", routing_key),
        *_batch("msgs", batch),
        *optional(argument.moment, "delay", delay),
    )
    read = listed(Routed, queue="queue_name", message_id="msg_id")
    return optional_queue_call(None, "send_batch_topic", read, *arguments, native=False)


@dataclass(frozen=True, slots=True)
class SendOptions:
    """Options of a send that PGMQ's `send` lacks, for all messages of a call."""

    priority: int
    expires_in: Seconds | None
    max_attempts: int | None
    dedup_for: Seconds
    fingerprint: str | None
    ordered: bool
    dedup_until: DedupUntil | None
    on_duplicate: OnDuplicate

    @property
    def is_plain(self) -> bool:
        """Return whether PGMQ's `send` has all these options."""
        return (
            self.priority == 0
            and self.expires_in is None
            and self.max_attempts is None
            and self.fingerprint is None
            and not self.ordered
            and self.dedup_until is None
            and self.on_duplicate == "keep"
        )


def send_messages(
    queue: str,
    chunks: Iterator[list[Encoded]],
    delay: Delay | None,
    options: SendOptions,
    dedup_ids: Iterable[str | None] | None,
) -> Iterator[SqlCall[list[int]]]:
    """Yield a call for each chunk; raises InvalidArgumentError unless each body has an id, or None."""
    if isinstance(dedup_ids, str):
        raise InvalidArgumentError("dedup_ids must be a list of strings, one for each body", queue=queue)
    ids = None if dedup_ids is None else iter(dedup_ids)
    for chunk in chunks:
        own = None if ids is None else list(islice(ids, len(chunk)))
        if own is not None and len(own) < len(chunk):
            raise InvalidArgumentError("a batch needs a dedup_id, or None, for each body", queue=queue)
        arguments = (
            *_batch("messages", chunk),
            *optional(argument.seconds_from_now, "delay", delay),
            *optional(argument.integer, "priority", options.priority or None),
            *optional(argument.seconds, "expires_in", options.expires_in),
            *optional(argument.integer, "max_attempts", options.max_attempts),
            *optional(argument.texts, "dedup_ids", own),
            *optional(argument.seconds, "dedup_for", None if own is None else options.dedup_for),
            *optional(argument.text, "fingerprint", options.fingerprint),
            *optional(argument.boolean, "ordered", options.ordered or None),
            *optional(argument.text, "dedup_until", options.dedup_until),
            *optional(
                argument.text,
                "on_duplicate",
                None if options.on_duplicate == "keep" else options.on_duplicate,
            ),
        )
        yield queue_call(queue, "send_messages", numbers, *arguments)
    if ids is not None and next(ids, ids) is not ids:
        raise InvalidArgumentError("a batch has more dedup_ids than bodies", queue=queue)


# The ids first to last of a segment of the log, drawn for a COPY into its table.
Run = tuple[str, int, int, datetime]


def copy_begin(queue: str, count: int) -> SqlCall[list[Run]]:
    """Draw ids for messages that follow by COPY; without runs the role may not copy."""

    def read(rows: Rows) -> list[Run]:
        return [
            (row["log_table"], row["first_id"], row["last_id"], row["enqueued_at"]) for row in rows.records()
        ]

    return queue_call(queue, "copy_begin", read, argument.integer("count", count).to("n"))


def copy_publish(queue: str, runs: list[Run], delay: Delay | None) -> SqlCall[None]:
    """Make the copied messages those of the queue. Their ids are known: what it returns need not be read."""
    arguments = (
        argument.bigints("first_ids", (first for _, first, _, _ in runs)),
        argument.bigints("last_ids", (last for _, _, last, _ in runs)),
        *optional(argument.moment, "delay", delay),
    )
    return queue_call(queue, "copy_publish", nothing, *arguments)


def _batch(name: str, batch: list[Encoded]) -> list[Argument]:
    arguments = [argument.jsons(name, (body for body, _ in batch))]
    if any(headers is not None for _, headers in batch):
        arguments.append(argument.jsons("headers", (headers for _, headers in batch)))
    return arguments


# Receiving.


def receive(
    codec: Codec,
    queue: str,
    quantity: int,
    lease: Seconds | None,
    slots: int,
    alone: bool,
    retries: int | None = None,
    newest: bool = False,
) -> SqlCall[list[Message]]:
    """Lease messages, by default for as long as the queue's policy says."""
    arguments = (
        argument.queue_name("queue", queue),
        argument.integer("quantity", quantity).to("qty"),
        *optional(argument.seconds, "lease", lease),
        argument.integer("slots", slots),
        *optional(argument.boolean, "alone", alone or None),
        *optional(argument.integer, "retries", retries),
        *optional(argument.boolean, "newest", newest or None),
    )
    read = partial(messages, codec, queue)
    # Volatile: lease ids are never reused, so a lease that a crash loses only ends sooner.
    return SqlCall("receive", arguments, read, queue, Shape.MESSAGES, native=True, volatile=True)


def read(
    codec: Codec, queue: str, quantity: int, lease: Seconds, conditional: str | None, grouped: Grouped | None
) -> SqlCall[list[Message]]:
    """Read messages as PGMQ does."""
    if grouped is not None and (conditional is not None or grouped not in _GROUPED):
        raise InvalidArgumentError(
            f"grouped must be one of {', '.join(_GROUPED)}, without a condition, got {grouped!r}", queue=queue
        )
    arguments = (
        argument.whole_seconds("lease", lease).to("vt"),
        argument.integer("quantity", quantity).to("qty"),
        *optional(argument.json, "conditional", conditional),
    )
    function = "read" if grouped is None else _GROUPED[grouped]
    return from_pgmq(codec, queue, function, *arguments)


def from_pgmq(codec: Codec, queue: str, function: str, *arguments: Argument) -> SqlCall[list[Message]]:
    """Call a function of PGMQ that returns messages."""
    read = partial(messages, codec, queue)
    return queue_call(queue, function, read, *arguments, shape=Shape.MESSAGES, native=False)


def newest(newest_first: bool) -> tuple[argument.Argument, ...]:
    """Return the argument for the newest one first; none where it is False, which older schemas do not have."""
    return (argument.boolean("newest_first", True),) if newest_first else ()


def peek(
    function: str,
    codec: Codec,
    queue: str,
    quantity: int,
    after: int,
    body_bytes_max: int | None,
    *,
    newest_first: bool,
) -> SqlCall[list[Message]]:
    """Read messages, or those of the archive, without receiving them."""
    arguments = (
        argument.integer("quantity", quantity).to("qty"),
        argument.bigint("after", after),
        *optional(argument.integer, "body_bytes_max", body_bytes_max),
        *newest(newest_first),
    )
    return queue_call(queue, function, partial(messages, codec, queue), *arguments, shape=Shape.MESSAGES)


def begin_alone(codec: Codec, reserved: Message) -> SqlCall[list[Message]]:
    """Begin the delivery of a message that is reserved; without a result its lease has ended."""
    lease = argument.bigint("lease_id", reserved.lease_id or 0)
    read = partial(messages, codec.of(reserved.queue), reserved.queue)
    return queue_call(reserved.queue, "begin_alone", read, lease, shape=Shape.MESSAGES)


@dataclass(frozen=True, slots=True)
class Awaited:
    """A queue that a listener waits for; `channel` is where it is woken, None if only polls find messages."""

    queue: str
    queue_id: int
    is_ordered: bool
    channel: str | None


@dataclass(frozen=True, slots=True)
class Polled:
    """The result of a poll: the ids of the queues with messages, None if the listener is not registered."""

    ready: list[int] | None
    due_in: float | None


def _listener(key: UUID) -> argument.Argument:
    return argument.uuid("listener", str(key))


def await_messages(
    queues: Iterable[str], listener: UUID, *, has_channel: bool = True
) -> SqlCall[list[Awaited]]:
    """Register a process that waits for messages; return those of the queues on which it has the right."""
    arguments = (
        argument.texts("queues", queues),
        _listener(listener),
        argument.boolean("has_channel", has_channel),
    )
    return SqlCall("await_messages", arguments, listed(Awaited), native=True, volatile=True, idle=True)


def poll(listener: UUID, *, waits: bool = True) -> SqlCall[Polled]:
    """Return which queues of a listener have messages, and announce that it waits."""
    arguments = (_listener(listener), argument.boolean("waits", waits))
    return SqlCall(
        "poll", arguments, lambda rows: Polled(*rows.values[0]), native=True, volatile=True, idle=True
    )


def pass_on(listener: UUID, queue_ids: Iterable[int], *, is_busy: bool = False) -> SqlCall[list[int]]:
    """Wake another listener of each of these queues that has a message; return the ids of these queues."""
    arguments = (
        _listener(listener),
        argument.Argument(
            "queue_ids", argument.bigints("queue_ids", queue_ids).value, "cast({} as integer[])"
        ),
        argument.boolean("is_busy", is_busy),
    )
    return SqlCall(
        "pass_on", arguments, lambda rows: list(rows.scalar()), native=True, volatile=True, idle=True
    )


def cancelled(queue: str, lease_id: int, message_ids: Iterable[int]) -> SqlCall[dict[int, bool]]:
    """Ask which of these messages the holder of a lease is not to go on with, and whether each is taken from it."""
    arguments = (
        argument.bigint("lease_id", lease_id),
        argument.bigints("message_ids", message_ids).to("msg_ids"),
    )
    return queue_call(
        queue,
        "cancelled",
        lambda rows: {int(message_id): bool(is_taken) for message_id, is_taken in rows.values},
        *arguments,
    )


def await_settled(queue: str, seconds: Seconds) -> SqlCall[str]:
    """Register a session that waits for settlements, and return the channel to listen to."""
    arguments = (argument.queue_name("queue", queue), argument.seconds("seconds", seconds))
    return SqlCall("await_settled", arguments, Rows.scalar, queue, native=True, volatile=True, idle=True)


def look_ahead(queue: str) -> SqlCall[float | None]:
    """Return in how many seconds the next message becomes due."""
    arguments = (argument.queue_name("queue", queue),)
    return SqlCall("look_ahead", arguments, Rows.scalar, queue, native=True, idle=True)


def look_ahead_all(queues: Sequence[str]) -> SqlCall[list[float | None]]:
    """Return that for many queues, in their order."""
    return SqlCall("look_ahead", (argument.texts("queues", queues),), Rows.scalar, native=True, idle=True)


# Settling.


def by_lease(held: Held | Iterable[Held]) -> list[Leased]:
    """Return messages by queue and lease; raises InvalidArgumentError for one without a lease."""
    leases: dict[tuple[str, int], list[int]] = {}
    named: list[Leased] = []
    # A caller without a type checker may pass anything.
    passed: object = [held] if isinstance(held, Message | Leased) else held
    for entry in passed if isinstance(passed, Iterable) else [passed]:
        if isinstance(entry, Leased):
            named.append(entry)
        elif not isinstance(entry, Message):
            raise InvalidArgumentError(
                f"only messages from `receive` can be settled, got {type(entry).__name__}",
                hint="Leased(queue, lease_id, message_ids) identifies messages by their ids.",
            )
        elif entry.lease_id is None:
            raise InvalidArgumentError(
                f"message {entry.message_id} was not received under a lease",
                hint="Settle messages from `read` with delete or archive.",
                queue=entry.queue,
            )
        else:
            leases.setdefault((entry.queue, entry.lease_id), []).append(entry.message_id)
    return [Leased(*lease, message_ids) for lease, message_ids in leases.items()] + named


def settle(function: str, held: Held | Iterable[Held], *more: Argument) -> Iterator[SqlCall[list[Settled]]]:
    """Yield a call for each lease."""
    for leased in by_lease(held):
        arguments = (
            argument.bigint("lease_id", leased.lease_id),
            argument.bigints("msg_ids", leased.message_ids),
            *more,
        )
        yield queue_call(leased.queue, function, settlements, *arguments)


def ack_with_results(leased: Leased, results: Iterable[str], keep_for: Seconds) -> SqlCall[list[Settled]]:
    """Settle the messages of a lease, and store their encoded results."""
    [call] = settle(
        "ack_with_results", leased, argument.jsons("results", results), argument.seconds("keep_for", keep_for)
    )
    return call


def failure(
    error: str | None,
    category: str | None,
    error_class: str | None,
    traceback: str | None,
    worker: str | None,
) -> tuple[Argument, ...]:
    """Pass why messages were not handled."""
    return (
        *optional(argument.text, "error", error),
        *optional(argument.text, "category", category),
        *optional(argument.text, "error_class", error_class),
        *optional(argument.text, "traceback", traceback),
        *optional(argument.text, "worker", worker),
    )


# Maintenance.


def maintain(budget: int) -> SqlCall[list[MaintenanceStep]]:
    """Run one bounded step of maintenance."""
    return optional_queue_call(None, "maintain", listed(MaintenanceStep), argument.integer("budget", budget))


# Dead letters and other nouns: arguments that several verbs take.


def dead_letter_filters(codec: Codec, filters: DeadLetterFilters) -> tuple[Argument, ...]:
    """Pass which dead letters are meant; raises TypeError for an unknown filter."""
    if unknown := filters.keys() - DeadLetterFilters.__annotations__.keys():
        raise TypeError(f"dead letters have no filter {', '.join(sorted(unknown))}")
    payload = filters.get("payload")
    return (
        *optional(argument.text, "category", filters.get("category")),
        *optional(argument.text, "error", filters.get("error")),
        *optional(argument.text, "error_class", filters.get("error_class")),
        *optional(argument.instant, "since", filters.get("since")),
        *optional(argument.instant, "until", filters.get("until")),
        *optional(argument.json, "payload", None if payload is None else codec.encode(payload)),
        *optional(argument.text, "where", filters.get("where"), to="match"),
        *optional(argument.bigints, "dead_letter_ids", filters.get("dead_letter_ids")),
    )


def failing_filters(filters: FailingFilters) -> tuple[Argument, ...]:
    """Pass which failing messages are meant; raises TypeError for an unknown filter."""
    if unknown := filters.keys() - FailingFilters.__annotations__.keys():
        raise TypeError(f"failing messages have no filter {', '.join(sorted(unknown))}")
    return tuple(
        parameter for name, value in filters.items() for parameter in optional(argument.text, name, value)
    )


def queue_names(name: str, queues: Iterable[str] | None) -> tuple[Argument, ...]:
    """Pass the names of queues; None stands for all."""
    if isinstance(queues, str):
        raise InvalidArgumentError("queues are a list of names, not one name")
    return optional(argument.texts, name, queues)


def settings_text(kind: str, settings: Mapping[str, Any] | bool, queue: str | None) -> str:
    """Encode the settings of a policy, or a schema; raises InvalidArgumentError for a value that is not JSON."""
    try:
        return json.dumps(settings, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"a {kind} must be JSON: {error}", queue=queue) from error


# The maps of sharded queues in one database.


def get_shards(queue: str) -> SqlCall[ShardMap | None]:
    """Return the map that this database has, if any."""

    def read(rows: Rows) -> ShardMap | None:
        own = [
            row
            | {"queue": queue, "shards": json_value(row["shards"]), "former": json_value(row.get("former"))}
            for row in rows.records()
        ]
        return next(iter(made(ShardMap, own)), None)

    return queue_call(queue, "get_shards", read)


def set_shards(shard_map: ShardMap) -> SqlCall[int]:
    """Write a map unless this database has it or a later one; return the epoch that it has then.

    Waits for the transactions that are sending by the map before.
    """
    former = None if shard_map.former is None else json.dumps(dict(shard_map.former))
    arguments = (
        argument.bigint("epoch", shard_map.epoch),
        argument.text("routing", shard_map.routing),
        argument.json("shards", json.dumps(dict(shard_map.shards))),
        *optional(argument.json, "former", former),
    )
    return queue_call(shard_map.queue, "set_shards", number, *arguments)


def forget_shards(queue: str) -> SqlCall[bool]:
    """Delete a map; the shards stay, as queues. Return whether there was one."""
    return queue_call(queue, "forget_shards", flag)


def enter_shards(queue: str, epoch: int, shard: str | None = None, group: str | None = None) -> SqlCall[bool]:
    """Hold the map as it is to the end of the transaction, before a send in it.

    With a shard and a group: return whether it has unsettled messages of the group, and make others that
    ask the same wait. Raises ShardsChangedError where the map has another epoch.
    """
    one = shard is not None and group is not None
    arguments = (
        argument.bigint("epoch", epoch),
        *optional(argument.queue_name, "shard", shard if one else None),
        *optional(argument.text, "group_key", group if one else None),
    )
    return queue_call(queue, "enter_shards", flag, *arguments)


def shard_groups(queue: str, after: str | None = None, limit: int = 1000) -> SqlCall[list[str]]:
    """List groups that have unsettled messages, in an order of their own, following `after`."""
    arguments = (*optional(argument.text, "after", after), argument.integer("limit", limit).to("qty"))
    return queue_call(queue, "shard_groups", Rows.column, *arguments)


def note_task_shapes(queue: str, tasks: Sequence[str], shapes: Sequence[str]) -> SqlCall[float]:
    """Note that messages for these tasks are sent with arguments of these shapes, which are JSON.

    Returns the seconds for which that need not be noted again.
    """
    return queue_call(
        queue,
        "note_task_shapes",
        lambda rows: float(rows.scalar()),
        argument.texts("tasks", tasks),
        argument.jsons("shapes", shapes),
    )
