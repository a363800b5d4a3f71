"""What a client does with the move tasks of the SQS protocol; a part of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spanmq import sqs_move_calls
from spanmq.body import Codec
from spanmq.call import Seconds
from spanmq.delivery_calls import by_lease
from spanmq.link_async import AsyncLink
from spanmq.message import Message, SqsMove, SqsOrigin


class AsyncSqsMoves:
    """Tasks that live in the database: any service does their next step."""

    _link: AsyncLink
    _codec: Codec

    async def start_sqs_move(
        self,
        source: str,
        destination: str | None = None,
        *,
        source_arn: str,
        destination_arn: str | None = None,
        to_move: int,
        rate: int | None = None,
        access_key_id: str | None = None,
    ) -> str | None:
        """Start to move the messages of a dead-letter queue; return the task's handle, None if one runs.

        Without a destination each message returns to the queue that it came from. `rate` is messages a
        second. The caller needs the right to send to the destination, and so does `access_key_id` at each
        step.
        """
        return await self._link.run(
            sqs_move_calls.start_sqs_move(
                source, destination, source_arn, destination_arn, to_move, rate, access_key_id
            )
        )

    async def list_sqs_moves(self, source: str, quantity: int = 10) -> list[SqsMove]:
        """List the tasks of a source, the newest first."""
        return await self._link.run(sqs_move_calls.list_sqs_moves(source, quantity))

    async def find_sqs_move(self, handle: str) -> SqsMove | None:
        """Look a task up."""
        return await self._link.run(sqs_move_calls.find_sqs_move(handle))

    async def cancel_sqs_move(self, handle: str) -> int | None:
        """Move no more; give how many were moved, None if no such task runs."""
        return await self._link.run(sqs_move_calls.cancel_sqs_move(handle))

    async def take_sqs_move(self) -> SqsMove | None:
        """Take a task whose next step is due, to the end of the transaction."""
        return await self._link.run(sqs_move_calls.take_sqs_move())

    async def note_sqs_move(self, handle: str, moved: int | None, failure: str | None = None) -> float | None:
        """Note a step; give after how many seconds the next is due, None if there is none.

        None moved: nothing can be now, so others come first for a second.
        """
        return await self._link.run(sqs_move_calls.note_sqs_move(handle, moved, failure))

    async def move_sqs_messages(
        self,
        messages: Sequence[Message],
        destination: str,
        *,
        expires_in: Seconds,
        task: str | None = None,
    ) -> list[int]:
        """Move received messages of one queue by its RedrivePolicy, or for a task; return the ids moved.

        Raises NotPermittedError unless one of the two queues names the other as its dead-letter queue.
        """
        encode = self._codec.of(destination).encode
        bodies = {message.message_id: encode(message.body) for message in messages}
        return await self._link.run_all(
            sqs_move_calls.move_sqs_messages(
                queue, destination, lease_id, {each: bodies[each] for each in ids}, expires_in, task
            )
            for (queue, lease_id), ids in by_lease(messages).items()
        )

    async def list_sqs_moved(self, queue: str, message_ids: Iterable[int]) -> list[SqsOrigin]:
        """List where messages of a dead-letter queue come from; those that were not moved are left out."""
        return await self._link.run(sqs_move_calls.list_sqs_moved(queue, message_ids))
