# Generated from src/spanmq/client/_async/queues.py by tools/generate_sync.py: change that file.

"""Queues: `client.queues`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from spanmq.client import call as argument
from spanmq.client._sync.connection import Link
from spanmq.client.call import Call, Rows, Shape, flag, given, listed, nothing, number, only
from spanmq.errors import InvalidArgumentError
from spanmq.model import (
    Policy,
    PolicyChange,
    Queue,
    QueueMetrics,
    QueueSchema,
)

METRICS = {
    "queue": "queue_name",
    "length": "queue_length",
    "visible_length": "queue_visible_length",
    "newest_age_seconds": "newest_msg_age_sec",
    "oldest_age_seconds": "oldest_msg_age_sec",
    "scraped_at": "scrape_time",
}


class Queues:
    """Create, count, pause and configure queues, and describe their bodies."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def create(
        self,
        name: str,
        *,
        unlogged: bool = False,
        partition_interval: int | str | None = None,
        retention_interval: int | str | None = None,
    ) -> None:
        """Create a queue; does nothing if it exists.

        An unlogged one is faster; a crash of the server loses its messages. The intervals (a count of
        messages or a time, such as "1 day") make it PGMQ's partitioned kind.
        """
        intervals = {"partition_interval": partition_interval, "retention_interval": retention_interval}
        # Default values are not passed: the server's defaults apply.
        own = [argument.text(key, str(value)) for key, value in intervals.items() if value is not None]
        if own and unlogged:
            raise InvalidArgumentError("a queue can't be unlogged and partitioned", queue=name)
        function = "create_partitioned" if own else "create_unlogged" if unlogged else "create"
        arguments = (argument.queue_name("queue_name", name), *own)
        self._link.run(nothing(function, name, *arguments, native=False))

    def drop(self, queue: str) -> bool:
        """Drop a queue with its messages and its archive; return whether it existed."""
        arguments = (argument.queue_name("queue_name", queue),)
        return self._link.run(Call("drop_queue", arguments, flag, queue, native=False))

    def purge(self, queue: str) -> int:
        """Remove all messages of a queue; return how many there were."""
        arguments = (argument.queue_name("queue_name", queue),)
        return self._link.run(Call("purge_queue", arguments, number, queue, native=False))

    def pause(self, queue: str) -> None:
        """Pause deliveries; messages can still be sent, and leased ones settled."""
        self._link.run(nothing("pause", queue, argument.queue_name("queue", queue)))

    def resume(self, queue: str) -> None:
        """Resume deliveries."""
        self._link.run(nothing("resume", queue, argument.queue_name("queue", queue)))

    def metrics(self, queue: str) -> QueueMetrics:
        """Count the messages of one queue."""
        arguments = (argument.queue_name("queue_name", queue),)
        return self._link.run(Call("metrics", arguments, only(QueueMetrics, **METRICS), queue, native=False))

    def metrics_all(self) -> list[QueueMetrics]:
        """Count the messages of every queue."""
        return self._link.run(Call("metrics_all", (), listed(QueueMetrics, **METRICS), native=False))

    def policy(self, queue: str) -> Policy:
        """Return the settings of a queue, those with their default too."""
        arguments = (argument.queue_name("queue", queue),)
        return self._link.run(Call("get_policy", arguments, _policy, queue, Shape.JSON, native=True))

    def set_policy(self, queue: str, /, **settings: Unpack[PolicyChange]) -> Policy:
        """Change the settings that are named, None to restore a default; return the whole policy.

        Raises InvalidArgumentError for a setting that is unknown or out of range: then nothing has changed.
        """
        text = settings_text("policy", settings, queue)
        arguments = (argument.queue_name("queue", queue), argument.json("settings", text))
        return self._link.run(Call("set_policy", arguments, _policy, queue, Shape.JSON, native=True))

    def schema(self, queue: str) -> QueueSchema:
        """Return the JSON Schema of a queue's bodies; a subscription has its queue's."""
        arguments = (argument.queue_name("queue", queue),)
        return self._link.run(Call("get_schema", arguments, _schema, queue, native=True))

    def set_schema(
        self, queue: str, schema: Mapping[str, Any] | bool | None, *, checked: bool = False
    ) -> None:
        """Set the JSON Schema of a queue's bodies, None for none; it describes them.

        If `checked`, every send that begins later raises InvalidBodyError for a body that does not fit, by
        whichever program. Raises InvalidArgumentError for a schema that is not valid, or can't be checked.
        """
        text = None if schema is None else settings_text("schema", schema, queue)
        arguments = (argument.json("schema", text), argument.boolean("checked", checked))
        self._link.run(nothing("set_schema", queue, argument.queue_name("queue", queue), *arguments))

    def list(self) -> list[Queue]:
        """List the queues."""
        return self._link.run(Call("list_queues", (), listed(Queue, name="queue_name"), native=False))


def names(name: str, queues: Iterable[str] | None) -> tuple[argument.Argument, ...]:
    """Pass the names of queues; None stands for all."""
    if isinstance(queues, str):
        raise InvalidArgumentError("queues are a list of names, not one name")
    return given(argument.texts, name, queues)


def settings_text(kind: str, settings: Mapping[str, Any] | bool, queue: str | None) -> str:
    """Encode the settings of a policy, or a schema; raises InvalidArgumentError for a value that is not JSON."""
    try:
        return json.dumps(settings, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"a {kind} must be JSON: {error}", queue=queue) from error


def _schema(rows: Rows) -> QueueSchema:
    [row] = rows.records()
    # As bytes by psycopg, as a value where a whole row came as JSON.
    schema = row["schema"]
    return QueueSchema(json.loads(schema) if isinstance(schema, bytes) else schema, row["is_checked"])


def _policy(rows: Rows) -> Policy:
    settings = json.loads(rows.scalar())
    # A later schema may have settings that this client does not know.
    return listed(Policy)(Rows(tuple(settings), [tuple(settings.values())]))[0]
