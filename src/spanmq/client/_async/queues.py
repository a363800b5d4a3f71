"""Queues: `client.queues`."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from spanmq.client import argument, functions
from spanmq.client.argument import optional
from spanmq.client.call import Shape, optional_queue_call, queue_call
from spanmq.client.rows import METRICS_COLUMNS, body_schema, flag, listed, nothing, number, only, policy
from spanmq.errors import InvalidArgumentError
from spanmq.model import FailingFilters, Policy, PolicyChange, Queue, QueueMetrics, QueueSchema

if TYPE_CHECKING:
    from spanmq.client._async.connection import AsyncLink


class AsyncQueues:
    """Create, count, pause and configure queues, describe their bodies, retry or reject messages that fail.

    `filters` are the fields of FailingFilters: a call raises TypeError for an unknown one, and InvalidArgumentError for
    a value that is not valid.
    """

    def __init__(self, link: "AsyncLink") -> None:
        self._link = link

    async def create(
        self,
        name: str,
        *,
        unlogged: bool = False,
        partition_interval: int | str | None = None,
        retention_interval: int | str | None = None,
    ) -> None:
        """Create a queue; does nothing if it exists.

        It has this `name`. An `unlogged` one is faster; a crash of the server loses its messages. `partition_interval`
        and `retention_interval` (a count of messages or a time, such as "1 day") make it PGMQ's partitioned kind.
        Raises InvalidArgumentError for an invalid name, MissingPrivilegeError without the right to create queues.
        """
        intervals = {"partition_interval": partition_interval, "retention_interval": retention_interval}
        # Default values are not passed: the server's defaults apply.
        own = [argument.text(key, str(value)) for key, value in intervals.items() if value is not None]
        if own and unlogged:
            raise InvalidArgumentError("a queue can't be unlogged and partitioned", queue=name)
        function = "create_partitioned" if own else "create_unlogged" if unlogged else "create"
        await self._link.run(queue_call(name, function, nothing, *own, native=False))

    async def drop(self, queue: str) -> bool:
        """Drop a `queue` with its messages and its archive; return whether it existed.

        Raises NotPossibleError for a queue that has subscriptions.
        """
        return await self._link.run(queue_call(queue, "drop_queue", flag, native=False))

    async def purge(self, queue: str) -> int:
        """Remove all messages of a `queue`; return how many there were. Raises QueueNotFoundError."""
        return await self._link.run(queue_call(queue, "purge_queue", number, native=False))

    async def pause(self, queue: str) -> None:
        """Pause the deliveries of a `queue` until it is resumed; messages can still be sent, and leased ones settled.

        Raises QueueNotFoundError.
        """
        await self._link.run(queue_call(queue, "pause", nothing))

    async def resume(self, queue: str) -> None:
        """Resume the deliveries of a paused `queue`.

        Raises QueueNotFoundError.
        """
        await self._link.run(queue_call(queue, "resume", nothing))

    async def close_breaker(self, queue: str) -> int:
        """Close the circuit breakers of all workers of a `queue`, which receive again within about a second.

        Return how many were open. A breaker opens again if everything still fails. Raises QueueNotFoundError.
        """
        return await self._link.run(queue_call(queue, "close_breaker", number))

    async def metrics(self, queue: str) -> QueueMetrics:
        """Count the messages of a `queue`, as PGMQ does. Raises QueueNotFoundError."""
        read = only(QueueMetrics, **METRICS_COLUMNS)
        return await self._link.run(queue_call(queue, "metrics", read, native=False))

    async def metrics_all(self) -> list[QueueMetrics]:
        """Count the messages of every queue that you may look into. Raises SchemaMissingError without a schema."""
        read = listed(QueueMetrics, **METRICS_COLUMNS)
        return await self._link.run(optional_queue_call(None, "metrics_all", read, native=False))

    async def policy(self, queue: str) -> Policy:
        """Return the policy of a `queue`: each setting, those with their default too.

        Raises QueueNotFoundError.
        """
        return await self._link.run(queue_call(queue, "get_policy", policy, shape=Shape.JSON))

    async def set_policy(self, queue: str, /, **settings: Unpack[PolicyChange]) -> Policy:
        """Change those `settings` of a `queue` that are named, None to restore a default; return the whole policy.

        Raises InvalidArgumentError for a setting that is unknown or out of range (then nothing has changed),
        NotPossibleError for one that a subscription does not have, and QueueNotFoundError.
        """
        text = functions.settings_text("policy", settings, queue)
        arguments = (argument.json("settings", text),)
        return await self._link.run(queue_call(queue, "set_policy", policy, *arguments, shape=Shape.JSON))

    async def schema(self, queue: str) -> QueueSchema:
        """Return the JSON Schema of the bodies of a `queue`; a subscription has its queue's.

        Raises QueueNotFoundError.
        """
        return await self._link.run(queue_call(queue, "get_schema", body_schema))

    async def set_schema(
        self, queue: str, schema: Mapping[str, Any] | bool | None, *, checked: bool = False
    ) -> None:
        """Set the JSON Schema of the bodies of a `queue`, which describes them; a `schema` of None is none.

        If `checked`, every send that begins later raises InvalidBodyError for a body that does not fit, by whichever
        program. Raises InvalidArgumentError for a schema that is not valid, or can't be checked, NotPossibleError for
        a subscription, and QueueNotFoundError.
        """
        text = None if schema is None else functions.settings_text("schema", schema, queue)
        arguments = (argument.json("schema", text), argument.boolean("checked", checked))
        await self._link.run(queue_call(queue, "set_schema", nothing, *arguments))

    async def retry_failing(
        self,
        queue: str,
        *,
        message_ids: Iterable[int] | None = None,
        limit: int = 1_000,
        **filters: Unpack[FailingFilters],
    ) -> int:
        """Make up to `limit` failing messages of a `queue` visible now; return how many.

        They match the `filters`, which choose by cause, or have these `message_ids`. Call it again until it returns 0.
        Raises QueueNotFoundError.
        """
        return await self._act_on_failing("retry_failing", queue, message_ids, limit, filters)

    async def reject_failing(
        self,
        queue: str,
        *,
        message_ids: Iterable[int] | None = None,
        limit: int = 1_000,
        **filters: Unpack[FailingFilters],
    ) -> int:
        """Make up to `limit` failing messages of a `queue` dead letters, with their last failure as the reason.

        They match the `filters`, which choose by cause, or have these `message_ids`. Return how many; call it again
        until it returns 0. Raises QueueNotFoundError.
        """
        return await self._act_on_failing("reject_failing", queue, message_ids, limit, filters)

    async def _act_on_failing(
        self,
        function: str,
        queue: str,
        message_ids: Iterable[int] | None,
        limit: int,
        filters: FailingFilters,
    ) -> int:
        arguments = (
            *functions.failing_filters(filters),
            *optional(argument.bigints, "message_ids", message_ids, to="msg_ids"),
            argument.integer("limit", limit).to("qty"),
        )
        return await self._link.run(queue_call(queue, function, number, *arguments))

    async def list(self) -> list[Queue]:
        """List the queues that you may see. Raises SchemaMissingError without a schema."""
        read = listed(Queue, name="queue_name")
        return await self._link.run(optional_queue_call(None, "list_queues", read, native=False))
