# Generated from src/spanmq/batches_async.py by tools/generate_sync.py: change that file.

"""What a client does with batches of messages; a part of Client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spanmq import batch_calls
from spanmq.body import Codec, Headers, encode_headers
from spanmq.link import Link
from spanmq.message import Batch


class Batches:
    """Messages that are sent when all messages of a batch are settled."""

    _link: Link
    _codec: Codec

    def create_batch(
        self,
        queue: str,
        body: object,
        messages: Mapping[str, Iterable[int]],
        *,
        headers: Headers | None = None,
        group: str | None = None,
    ) -> int:
        """Send a body into the queue, once, when all messages are settled; return the id of the batch.

        `messages` has the ids by queue. The header `x-spanmq-batch` of the message has `id`, `total`, `done`
        and `dead`. Call it in the transaction in which the messages are sent, or after it.
        """
        encoded = self._codec.of(queue).encode(body)
        with self._link.transaction() as link:
            batch_id = link.run(batch_calls.create_batch(queue, encoded, encode_headers(headers, group)))
            for name, message_ids in sorted(messages.items()):
                link.run(batch_calls.add_to_batch(name, batch_id, message_ids))
        return batch_id

    def list_batches(
        self, queue: str | None = None, *, before: int | None = None, quantity: int = 100
    ) -> list[Batch]:
        """List the batches that send into a queue, or into all, the newest first; `before` is a batch's id.

        Batches that ended are kept for seven days.
        """
        found = self._link.run(batch_calls.list_batches(self._codec, queue, before, quantity))
        return sorted(found, key=lambda batch: -batch.batch_id)[:quantity]
