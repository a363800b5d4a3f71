# Generated from src/spanmq/deliveries_async.py by tools/generate_sync.py: change that file.

"""What a receiver says of messages that it holds, but that they are done; a part of Client."""

from __future__ import annotations

from collections.abc import Iterable

from spanmq import delivery_calls, tracing
from spanmq.call import Seconds
from spanmq.delivery_calls import Reason
from spanmq.link import Link
from spanmq.message import Failure, Message, Settled


class Deliveries:
    """Failures, leases, and the state of a message."""

    _link: Link

    def nack(
        self,
        messages: Message | Iterable[Message],
        error: str | None = None,
        *,
        category: str | None = None,
        retry_in: Seconds | None = None,
        error_class: str | None = None,
        traceback: str | None = None,
        worker: str | None = None,
    ) -> list[Settled]:
        """Give received messages back with a failure: each is "retrying", "dead" or "stale".

        It comes again after `retry_in` seconds, or the backoff of its category or queue. It becomes a dead
        letter when its attempts are used up, or the category is not tried again (PERMANENT, BUSINESS).
        Without a category the rules find one in the error.
        """
        reason = Reason(error, category, error_class, traceback, worker)
        settled = self._link.run_all(
            delivery_calls.nack(queue, lease_id, message_ids, reason, retry_in)
            for (queue, lease_id), message_ids in delivery_calls.by_lease(messages).items()
        )
        return tracing.settled("nack", settled)

    def nack_lease(
        self,
        queue: str,
        lease_id: int,
        message_ids: int | Iterable[int],
        error: str | None = None,
        *,
        category: str | None = None,
        retry_in: Seconds | None = None,
        error_class: str | None = None,
        traceback: str | None = None,
        worker: str | None = None,
    ) -> list[Settled]:
        """Give messages back by their ids and the lease that they were received under."""
        reason = Reason(error, category, error_class, traceback, worker)
        call = delivery_calls.nack(queue, lease_id, message_ids, reason, retry_in)
        return tracing.settled("nack", self._link.run(call))

    def reject(
        self,
        messages: Message | Iterable[Message],
        error: str | None = None,
        *,
        category: str | None = None,
        error_class: str | None = None,
        traceback: str | None = None,
        worker: str | None = None,
    ) -> list[Settled]:
        """Give received messages up, whatever attempts they have left: each is "dead" or "stale"."""
        reason = Reason(error, category, error_class, traceback, worker)
        settled = self._link.run_all(
            delivery_calls.reject(queue, lease_id, message_ids, reason)
            for (queue, lease_id), message_ids in delivery_calls.by_lease(messages).items()
        )
        return tracing.settled("reject", settled)

    def reject_lease(
        self,
        queue: str,
        lease_id: int,
        message_ids: int | Iterable[int],
        error: str | None = None,
        *,
        category: str | None = None,
        error_class: str | None = None,
        traceback: str | None = None,
        worker: str | None = None,
    ) -> list[Settled]:
        """Give messages up by their ids and the lease that they were received under."""
        reason = Reason(error, category, error_class, traceback, worker)
        call = delivery_calls.reject(queue, lease_id, message_ids, reason)
        return tracing.settled("reject", self._link.run(call))

    def release(self, messages: Message | Iterable[Message]) -> list[Settled]:
        """Give received messages back unhandled: each is "released" or "stale".

        They are visible at once, and this delivery does not count as an attempt.
        """
        settled = self._link.run_all(
            delivery_calls.release(queue, lease_id, message_ids)
            for (queue, lease_id), message_ids in delivery_calls.by_lease(messages).items()
        )
        return tracing.settled("release", settled)

    def release_lease(self, queue: str, lease_id: int, message_ids: int | Iterable[int]) -> list[Settled]:
        """Give messages back unhandled by their ids and the lease that they were received under."""
        call = delivery_calls.release(queue, lease_id, message_ids)
        return tracing.settled("release", self._link.run(call))

    def extend(self, queue: str, lease_id: int, seconds: Seconds) -> int:
        """Hold a lease for `seconds` from now on, at least; give the number of messages that it holds.

        0: it is stale. A lease that ran out is held again if nobody took its messages meanwhile.
        """
        return self._link.run(delivery_calls.extend(queue, lease_id, seconds))

    def hold(
        self, queue: str, lease_id: int, message_ids: int | Iterable[int], seconds: Seconds
    ) -> list[Settled]:
        """Hold these messages of a lease for `seconds` from now on: each is "held" or "stale".

        Longer or shorter than before; the others of the lease stay as they were.
        """
        return self._link.run(delivery_calls.hold(queue, lease_id, message_ids, seconds))

    def pause(self, queue: str) -> None:
        """Let receivers get nothing from now on; senders go on, and what is leased can be settled."""
        self._link.run(delivery_calls.pause(queue))

    def resume(self, queue: str) -> None:
        """Let receivers get messages again."""
        self._link.run(delivery_calls.resume(queue))

    def status(self, queue: str, message_id: int) -> str:
        """Give the state of a message.

        One of pending, processing, delayed, failed (waits for its backoff), dead, completed and unknown.
        """
        return self._link.run(delivery_calls.status(queue, message_id))

    def failures(self, queue: str, message_id: int) -> list[Failure]:
        """Give what went wrong with a message, the first failure first."""
        return self._link.run(delivery_calls.failures(queue, message_id))
