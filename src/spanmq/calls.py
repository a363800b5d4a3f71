"""Every SQL function that the client calls: its arguments, and what becomes of its rows. No I/O here.

The functions bear the names of the client's methods; PGMQ's names of arguments and columns end here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.batch import Encoded
from spanmq.body import Codec
from spanmq.call import Argument, Call, Delay, Rows, Seconds, Shape, flag, nothing, number, numbers, records
from spanmq.errors import InvalidArgumentError
from spanmq.message import (
    MaintenanceStep,
    Message,
    NotifyThrottle,
    Queue,
    QueueMetrics,
    QueueStorage,
    Routed,
    Settled,
    TopicBinding,
)
from spanmq.message_rows import messages, settlements

Interval = int | str

# Queues.


def create_queue(
    name: str, unlogged: bool, partition_interval: Interval | None, retention_interval: Interval | None
) -> Call[None]:
    """Create a queue of one of PGMQ's three kinds."""
    arguments = [argument.queue_name("queue_name", name)]
    if partition_interval is None and retention_interval is None:
        return nothing("create_unlogged" if unlogged else "create", name, *arguments, native=False)
    if unlogged:
        raise InvalidArgumentError("a queue can't be unlogged and partitioned", queue=name)
    # What is left to its default is not passed: the server's defaults count.
    if partition_interval is not None:
        arguments.append(argument.text("partition_interval", str(partition_interval)))
    if retention_interval is not None:
        arguments.append(argument.text("retention_interval", str(retention_interval)))
    return nothing("create_partitioned", name, *arguments, native=False)


def drop_queue(queue: str) -> Call[bool]:
    """Drop a queue."""
    return Call("drop_queue", (argument.queue_name("queue_name", queue),), flag, queue, native=False)


def purge(queue: str) -> Call[int]:
    """Remove all messages of a queue."""
    return Call("purge_queue", (argument.queue_name("queue_name", queue),), number, queue, native=False)


def list_queues() -> Call[list[Queue]]:
    """List the queues."""
    return Call("list_queues", (), partial(records, _queue), native=False)


def metrics(queue: str) -> Call[QueueMetrics]:
    """Count one queue."""
    arguments = (argument.queue_name("queue_name", queue),)
    return Call("metrics", arguments, lambda rows: records(_metrics, rows)[0], queue, native=False)


def metrics_all() -> Call[list[QueueMetrics]]:
    """Count every queue."""
    return Call("metrics_all", (), partial(records, _metrics), native=False)


def storage(queue: str) -> Call[QueueStorage]:
    """Measure what a queue takes on disk."""
    arguments = (argument.queue_name("queue", queue),)
    return Call("storage", arguments, lambda rows: records(_storage, rows)[0], queue, native=True)


# Sending. Bodies and headers are JSON text already.


def send(queue: str, body: str, headers: str | None, delay: Delay | None) -> Call[int]:
    """Send one message."""
    arguments = (
        argument.queue_name("queue_name", queue),
        argument.json("msg", body),
        argument.json("headers", headers),
        *_delay(delay),
    )
    return Call("send", arguments, number, queue, native=False)


def send_batch(queue: str, batch: list[Encoded], delay: Delay | None) -> Call[list[int]]:
    """Send as many messages as one call may carry."""
    arguments = (argument.queue_name("queue_name", queue), *_batch(batch), *_delay(delay))
    return Call("send_batch", arguments, numbers, queue, native=False)


def send_topic(routing_key: str, body: str, headers: str | None, delay: Seconds | None) -> Call[int]:
    """Send one message to every queue that a topic reaches."""
    arguments = [argument.text("routing_key", routing_key), argument.json("msg", body)]
    if headers is not None or delay is not None:
        # PGMQ has headers only together with a delay, and that in whole seconds.
        arguments += [argument.json("headers", headers), argument.whole_seconds("delay", delay or 0)]
    return Call("send_topic", tuple(arguments), number, native=False)


def send_batch_topic(routing_key: str, batch: list[Encoded], delay: Delay | None) -> Call[list[Routed]]:
    """Send as many messages as one call may carry to every queue that a topic reaches."""
    arguments = (argument.text("routing_key", routing_key), *_batch(batch), *_delay(delay))
    return Call("send_batch_topic", arguments, partial(records, _routed), native=False)


def _batch(batch: list[Encoded]) -> list[Argument]:
    arguments = [argument.jsons("msgs", (body for body, _ in batch))]
    if any(headers is not None for _, headers in batch):
        arguments.append(argument.jsons("headers", (headers for _, headers in batch)))
    return arguments


def _delay(delay: Delay | None) -> list[Argument]:
    return [] if delay is None else [argument.moment("delay", delay)]


# Taking.


def receive(
    codec: Codec, queue: str, quantity: int, lease: Seconds | None, slots: int
) -> Call[list[Message]]:
    """Lease messages; a crash that forgets the lease only brings them back sooner: lease ids never repeat."""
    arguments = (
        argument.queue_name("queue", queue),
        argument.integer("qty", quantity),
        *(() if lease is None else (argument.seconds("lease", lease),)),
        argument.integer("slots", slots),
    )
    read = partial(messages, codec, queue)
    return Call("receive", arguments, read, queue, Shape.MESSAGES, native=True, volatile=True)


def await_messages(queue: str, seconds: Seconds) -> Call[str]:
    """Say that somebody waits, and learn where it is announced; what a crash forgets is said again."""
    arguments = (argument.queue_name("queue", queue), argument.seconds("seconds", seconds))
    return Call("await_messages", arguments, Rows.scalar, queue, native=True, volatile=True)


def look_ahead(queue: str) -> Call[float | None]:
    """Ask in how many seconds something falls due."""
    arguments = (argument.queue_name("queue", queue),)
    return Call("look_ahead", arguments, Rows.scalar, queue, native=True, idle=True)


def look_ahead_all(queues: Sequence[str]) -> Call[list[float | None]]:
    """Ask that of many queues, in their order."""
    return Call("look_ahead", (argument.texts("queues", queues),), Rows.scalar, native=True, idle=True)


def peek(
    codec: Codec, queue: str, quantity: int, after: int, body_bytes_max: int | None
) -> Call[list[Message]]:
    """Look at messages without taking them."""
    arguments = (
        argument.queue_name("queue", queue),
        argument.integer("qty", quantity),
        argument.bigint("after", after),
        *argument.body_bytes_max(body_bytes_max),
    )
    return Call("peek", arguments, partial(messages, codec, queue), queue, Shape.MESSAGES, native=True)


def peek_archive(
    codec: Codec, queue: str, quantity: int, after: int, body_bytes_max: int | None
) -> Call[list[Message]]:
    """Look at archived messages."""
    arguments = (
        argument.queue_name("queue", queue),
        argument.integer("qty", quantity),
        argument.bigint("after", after),
        *argument.body_bytes_max(body_bytes_max),
    )
    read = partial(messages, codec, queue)
    return Call("peek_archive", arguments, read, queue, Shape.MESSAGES, native=True)


def read(
    codec: Codec, queue: str, quantity: int, lease: Seconds, conditional: str | None
) -> Call[list[Message]]:
    """Take messages the way of PGMQ."""
    arguments = _read_arguments(queue, quantity, lease)
    if conditional is not None:
        arguments.append(argument.json("conditional", conditional))
    return Call(
        "read", tuple(arguments), partial(messages, codec, queue), queue, Shape.MESSAGES, native=False
    )


def read_grouped(
    codec: Codec, function: str, queue: str, quantity: int, lease: Seconds
) -> Call[list[Message]]:
    """Take messages of ordered groups by one of PGMQ's three functions."""
    arguments = tuple(_read_arguments(queue, quantity, lease))
    return Call(function, arguments, partial(messages, codec, queue), queue, Shape.MESSAGES, native=False)


def pop(codec: Codec, queue: str, quantity: int) -> Call[list[Message]]:
    """Take messages out for good."""
    arguments = (argument.queue_name("queue_name", queue), argument.integer("qty", quantity))
    return Call("pop", arguments, partial(messages, codec, queue), queue, Shape.MESSAGES, native=False)


def set_vt(codec: Codec, queue: str, message_ids: int | Iterable[int], delay: Delay) -> Call[list[Message]]:
    """Move the time from which messages can be taken."""
    arguments = (*_chosen(queue, message_ids), argument.moment("vt", delay))
    return Call("set_vt", arguments, partial(messages, codec, queue), queue, Shape.MESSAGES, native=False)


def _read_arguments(queue: str, quantity: int, lease: Seconds) -> list[Argument]:
    return [
        argument.queue_name("queue_name", queue),
        argument.whole_seconds("vt", lease),
        argument.integer("qty", quantity),
    ]


# Settling.


def ack(queue: str, lease_id: int, message_ids: int | Iterable[int]) -> Call[list[Settled]]:
    """Settle what one lease holds."""
    arguments = (
        argument.queue_name("queue", queue),
        argument.bigint("lease_id", lease_id),
        argument.bigints("msg_ids", message_ids),
    )
    return Call("ack", arguments, settlements, queue, native=True)


def cancel(queue: str, message_ids: int | Iterable[int]) -> Call[list[Settled]]:
    """Take messages back that nobody holds."""
    arguments = (argument.queue_name("queue", queue), argument.bigints("msg_ids", message_ids))
    return Call("cancel", arguments, settlements, queue, native=True)


def delete(queue: str, message_ids: int | Iterable[int]) -> Call[list[int]]:
    """Delete messages."""
    return Call("delete", _chosen(queue, message_ids), numbers, queue, native=False)


def archive(queue: str, message_ids: int | Iterable[int]) -> Call[list[int]]:
    """Move messages to the archive."""
    return Call("archive", _chosen(queue, message_ids), numbers, queue, native=False)


def _chosen(queue: str, message_ids: int | Iterable[int]) -> tuple[Argument, Argument]:
    return argument.queue_name("queue_name", queue), argument.bigints("msg_ids", message_ids)


# Topics and notifications.


def bind_topic(pattern: str, queue: str) -> Call[None]:
    """Bind a pattern to a queue."""
    return nothing("bind_topic", queue, *_binding(pattern, queue), native=False)


def unbind_topic(pattern: str, queue: str) -> Call[bool]:
    """Undo it."""
    return Call("unbind_topic", _binding(pattern, queue), flag, queue, native=False)


def list_topic_bindings(queue: str | None) -> Call[list[TopicBinding]]:
    """List the bindings of one queue or of all."""
    arguments = () if queue is None else (argument.queue_name("queue_name", queue),)
    return Call("list_topic_bindings", arguments, partial(records, _topic_binding), queue, native=False)


def test_routing(routing_key: str) -> Call[list[TopicBinding]]:
    """List the bindings that a routing key meets."""
    arguments = (argument.text("routing_key", routing_key),)
    return Call("test_routing", arguments, partial(records, _topic_binding), native=False)


def enable_notify_insert(queue: str, throttle: Seconds) -> Call[None]:
    """Announce new messages."""
    return nothing("enable_notify_insert", queue, *_throttled(queue, throttle), native=False)


def update_notify_insert(queue: str, throttle: Seconds) -> Call[None]:
    """Change how often."""
    return nothing("update_notify_insert", queue, *_throttled(queue, throttle), native=False)


def disable_notify_insert(queue: str) -> Call[None]:
    """Stop announcing."""
    return nothing("disable_notify_insert", queue, argument.queue_name("queue_name", queue), native=False)


def list_notify_insert_throttles() -> Call[list[NotifyThrottle]]:
    """List the queues that announce."""
    return Call("list_notify_insert_throttles", (), partial(records, _notify_throttle), native=False)


def _binding(pattern: str, queue: str) -> tuple[Argument, Argument]:
    return argument.text("pattern", pattern), argument.queue_name("queue_name", queue)


def _throttled(queue: str, throttle: Seconds) -> tuple[Argument, Argument]:
    return (
        argument.queue_name("queue_name", queue),
        argument.milliseconds("throttle_interval_ms", throttle),
    )


# The schema itself.


def maintain(budget: int) -> Call[list[MaintenanceStep]]:
    """Do one bounded step of housekeeping."""
    arguments = (argument.integer("budget", budget),)
    return Call("maintain", arguments, partial(records, _maintenance_step), native=True)


def version() -> Call[str]:
    """Give the schema's version."""
    return Call("version", (), lambda rows: str(rows.scalar()), native=True)


# Records.


def _queue(row: dict[str, Any]) -> Queue:
    return Queue(row["queue_name"], row["is_partitioned"], row["is_unlogged"], row["created_at"])


def _metrics(row: dict[str, Any]) -> QueueMetrics:
    return QueueMetrics(
        queue=row["queue_name"],
        length=row["queue_length"],
        visible_length=row["queue_visible_length"],
        total_messages=row["total_messages"],
        newest_age_seconds=row["newest_msg_age_sec"],
        oldest_age_seconds=row["oldest_msg_age_sec"],
        scraped_at=row["scrape_time"],
    )


def _storage(row: dict[str, Any]) -> QueueStorage:
    return QueueStorage(**{field.name: row[field.name] for field in fields(QueueStorage)})


def _routed(row: dict[str, Any]) -> Routed:
    return Routed(row["queue_name"], row["msg_id"])


def _topic_binding(row: dict[str, Any]) -> TopicBinding:
    return TopicBinding(row["pattern"], row["queue_name"], row["compiled_regex"], row.get("bound_at"))


def _notify_throttle(row: dict[str, Any]) -> NotifyThrottle:
    return NotifyThrottle(row["queue_name"], row["throttle_interval_ms"], row["last_notified_at"])


def _maintenance_step(row: dict[str, Any]) -> MaintenanceStep:
    return MaintenanceStep(row["action"], row["queue"], row["detail"])
