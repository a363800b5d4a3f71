"""Results and outcomes of messages: `client.results`."""

from collections.abc import Iterable
from functools import partial
from operator import not_
from time import monotonic
from typing import Final

from spanmq import tracing
from spanmq.client import argument, functions
from spanmq.client._async.connection import AsyncLink
from spanmq.client._async.listener import AsyncListener, announcements_of, look_until
from spanmq.client.argument import Seconds, duration
from spanmq.client.call import SqlCall, queue_call
from spanmq.client.rows import listed_results, nothing, numbers, results
from spanmq.codec.body import Codec
from spanmq.model import Message, Result, Settled

# Expired and purged messages are not announced, so they are polled for at this interval even while a
# connection listens.
FALLBACK_SECONDS: Final = 5.0


class AsyncResults:
    """Wait until messages are settled, and read what their handlers returned."""

    def __init__(
        self, link: AsyncLink, codec: Codec, listener: AsyncListener | None, poll_interval: float
    ) -> None:
        self._link = link
        self._codec = codec
        self._listener = listener
        self._poll_interval = poll_interval

    async def wait(
        self, queue: str, message_ids: int | Iterable[int], *, seconds: Seconds | None = None
    ) -> list[int]:
        """Wait until messages of a `queue` are settled, those with these `message_ids` (one or several).

        A message is settled when it has left the queue: acked, a dead letter, deleted. Return the ids of those that
        are not after `seconds`; with None it waits for all of them, and returns []. Raises QueueNotFoundError.
        """
        asked = argument.bigints("message_ids", message_ids).to("msg_ids")
        deadline = float("inf")
        if seconds is not None:
            deadline = monotonic() + duration("seconds", seconds).total_seconds()

        async def look() -> list[int]:
            nonlocal asked
            arguments = (argument.queue_name("queue", queue), asked)
            left = await self._link.run(
                SqlCall("unsettled", arguments, numbers, queue, native=True, idle=True)
            )
            asked = argument.bigints("msg_ids", left)
            return left

        async with announcements_of(self._listener, queue) as announced:
            return await look_until(
                look, not_, announced, deadline, self._poll_interval, heard_seconds=FALLBACK_SECONDS
            )

    async def store(self, queue: str, message_id: int, result: object, *, keep_for: Seconds = 3600.0) -> None:
        """Store what the handler of a message returned, for `keep_for` seconds; call it in the transaction of the
        ack.

        The message is named by its `queue` and `message_id`; `result` is any value that JSON can represent. Raises
        InvalidArgumentError for a result of more than 64 KB of JSON, InvalidBodyError, and QueueNotFoundError.
        """
        arguments = (
            argument.bigint("message_id", message_id).to("msg_id"),
            argument.json("result", self._codec.of(queue).encode_result(result)),
            argument.seconds("keep_for", keep_for),
        )
        await self._link.run(queue_call(queue, "store_result", nothing, *arguments))

    async def ack(self, message: Message, result: object, *, keep_for: Seconds = 3600.0) -> Settled:
        """Settle a received `message`, and store the `result` of its handler, for `keep_for` seconds.

        The outcome is "acked", or "stale": then nothing is stored. Raises InvalidArgumentError for a result of more
        than 64 KB of JSON, and for a message that was not received with a lease.
        """
        [held] = functions.by_lease(message)
        encoded = self._codec.of(held.queue).encode_result(result)
        [settled] = await self._link.run(functions.ack_with_results(held, [encoded], keep_for))
        return tracing.settled("ack", [settled])[0]

    async def get(self, queue: str, message_ids: int | Iterable[int]) -> dict[int, object]:
        """Return the results of those messages of a `queue` that have any, by their ids.

        `message_ids` is one id or several. A result that can't be decrypted, or that could not be stored, is an
        `Unopened`, which has the error.
        Raises QueueNotFoundError.
        """
        arguments = (argument.bigints("message_ids", message_ids).to("msg_ids"),)
        read = partial(results, self._codec.of(queue))
        return await self._link.run(queue_call(queue, "get_results", read, *arguments))

    async def list(self, queue: str, message_ids: int | Iterable[int]) -> list[Result]:
        """Return what became of messages of a `queue`: a `Result` for each of `message_ids`, in their order.

        Raises InvalidArgumentError for more than 10,000 ids, QueueNotFoundError for a queue that does not exist.
        """
        arguments = (argument.bigints("message_ids", message_ids).to("msg_ids"),)
        read = partial(listed_results, self._codec.of(queue), queue)
        return await self._link.run(queue_call(queue, "list_results", read, *arguments))
