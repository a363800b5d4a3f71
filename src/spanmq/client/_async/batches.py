"""Batches: `client.batches`."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from spanmq.client import argument
from spanmq.client.argument import optional
from spanmq.client.call import Shape, SqlCall, queue_call
from spanmq.client.rows import batches, number
from spanmq.codec.body import Codec, Headers, encode_headers
from spanmq.model import Batch

if TYPE_CHECKING:
    from spanmq.client._async.connection import AsyncLink


class AsyncBatches:
    """Messages that are sent when all messages of a batch are settled."""

    def __init__(self, link: "AsyncLink", codec: Codec) -> None:
        self._link = link
        self._codec = codec

    async def create(
        self,
        queue: str,
        body: object,
        messages: Mapping[str, Iterable[int]],
        *,
        headers: Headers | None = None,
        group: str | None = None,
    ) -> int:
        """Send a `body` into a `queue`, once, when all `messages` are settled; return the id of the batch.

        `messages` has the ids by queue. `headers` and `group` are those of `send`. The header `x-spanmq-batch` of the
        message has `id`, `total`, `done` and `dead`. Call it in the transaction in which the messages are sent, or
        after it. Raises InvalidBodyError, InvalidArgumentError for ids below 1, and QueueNotFoundError.
        """
        arguments = (
            argument.json("message", self._codec.of(queue).encode(body)),
            argument.json("headers", encode_headers(headers, group)),
        )
        async with self._link.transaction() as link:
            batch_id = await link.run(queue_call(queue, "create_batch", number, *arguments))
            for name, message_ids in sorted(messages.items()):
                added = (
                    argument.bigint("batch_id", batch_id),
                    argument.bigints("message_ids", message_ids).to("msg_ids"),
                )
                await link.run(queue_call(name, "add_to_batch", number, *added))
        return batch_id

    async def list(
        self, queue: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> list[Batch]:
        """List the batches that send into a `queue`, or (None) into all, the newest first; those that ended for seven
        days.

        At most `limit`, with ids below `before`, a batch's id. Raises InvalidArgumentError for a negative limit. []
        for a queue that does not exist.
        """
        arguments = (
            argument.integer("limit", limit).to("qty"),
            *optional(argument.texts, "queues", None if queue is None else [queue]),
            *optional(argument.bigint, "before", before),
        )
        read = partial(batches, self._codec)
        page = await self._link.run(
            SqlCall("list_batches", arguments, read, queue, Shape.MESSAGES, native=True)
        )
        return sorted(page, key=lambda batch: -batch.batch_id)[:limit]
