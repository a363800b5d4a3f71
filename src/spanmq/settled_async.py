"""Waiting until messages are settled, and what their handlers returned; a part of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Final

from spanmq import settled_calls
from spanmq.body import Codec
from spanmq.call import Seconds, duration
from spanmq.link_async import AsyncLink, AsyncPoolLink
from spanmq.listen_async import FIRST_POLL_SECONDS, AsyncAnnouncement, AsyncListener

# A message that expires or is purged notifies nobody: so often it is looked for where a connection listens.
FALLBACK_SECONDS: Final = 5.0


class AsyncSettlements:
    """What became of messages."""

    _link: AsyncLink
    _codec: Codec
    _poll_interval: float
    _settle_listener: AsyncListener | None = None

    async def wait_settled(
        self, queue: str, message_ids: int | Iterable[int], *, wait: Seconds | None = None
    ) -> list[int]:
        """Wait until messages are settled; return the ids of those that are not when `wait` is over.

        Settled is what has left the queue: acked, a dead letter, deleted. With None it waits for all
        of them, and returns [].
        """
        message_ids = [message_ids] if isinstance(message_ids, int) else [*message_ids]
        deadline = float("inf") if wait is None else monotonic() + duration("wait", wait).total_seconds()
        if self._settle_listener is None:
            return await self._settled_until(queue, message_ids, AsyncAnnouncement(), deadline)
        async with self._settle_listener.announcements(queue) as announced:
            return await self._settled_until(queue, message_ids, announced, deadline)

    async def store_result(
        self, queue: str, message_id: int, result: object, *, keep_for: Seconds = 3600.0
    ) -> None:
        """Store what the handler of a message returned; call it in the transaction of the ack.

        Raises InvalidArgumentError for a result of more than 64 KB of JSON.
        """
        encoded = self._codec.of(queue).encode(result)
        await self._link.run(settled_calls.store_result(queue, message_id, encoded, keep_for))

    async def get_results(self, queue: str, message_ids: int | Iterable[int]) -> dict[int, object]:
        """Return the results of messages that have any, by their ids."""
        return await self._link.run(settled_calls.get_results(self._codec, queue, message_ids))

    async def _settled_until(
        self, queue: str, left: list[int], announced: AsyncAnnouncement, deadline: float
    ) -> list[int]:
        interval = FIRST_POLL_SECONDS
        while True:
            # In this order: what is settled during the look ends the next wait.
            announced.clear()
            left = await self._link.run(settled_calls.unsettled(queue, left))
            remaining = deadline - monotonic()
            if not left or remaining <= 0:
                return left
            await announced.wait(min(FALLBACK_SECONDS if announced.is_heard else interval, remaining))
            interval = min(interval * 2, self._poll_interval)


def settle_listener_async(link: AsyncPoolLink) -> AsyncListener:
    """Return what listens for settlements, over a connection of its own."""
    return AsyncListener(link.dedicated, settled_calls.await_settled)
