# Generated from src/spanmq/receivers_async.py by tools/generate_sync.py: change that file.

"""What a client does with receivers of streams and with subscriptions; parts of Client."""

from __future__ import annotations

from collections.abc import Iterable

from spanmq import receiver_calls
from spanmq.link import Link
from spanmq.message import Receiver, Subscription


class Receivers:
    """Streams that consume queues."""

    _link: Link

    def list_receivers(self, queue: str | None = None) -> list[Receiver]:
        """List the receivers of a queue, or of all, and what each holds."""
        return self._link.run(receiver_calls.list_receivers(queue))

    def adopt_receiver(self, queue: str, receiver: str) -> None:
        """Let the next new checkpoint with this receiver's label go on in its place, with what it holds.

        A stream that still runs under it stops with an error; what it has written and not settled is written
        again by the next.
        """
        self._link.run(receiver_calls.adopt_receiver(queue, receiver))

    def release_receiver(self, queue: str, receiver: str, settled: int | None = None) -> int:
        """Give what a receiver (its label or id) holds back to the queue; returns how many messages.

        First settles the batches up to `settled`, which its checkpoint proves to be done. A stream that still
        runs under it stops with an error.
        """
        return self._link.run(receiver_calls.release_receiver(queue, receiver, settled))

    def reject_from_receiver(
        self,
        queue: str,
        receiver: str,
        message_ids: int | Iterable[int],
        error: str | None = None,
        *,
        category: str | None = None,
    ) -> int:
        """Make dead letters of messages that a receiver holds and its code can't bear; returns how many.

        A stream that still runs under it stops with an error; started again it goes on without them.
        """
        return self._link.run(
            receiver_calls.reject_from_receiver(queue, receiver, message_ids, error, category)
        )

    def forget_export(self, queue: str, lake: str) -> bool:
        """Let an archive's retention no longer wait for a lake that `spanmq pipeline export` wrote into.

        False if none of that name is noted: its folder's whole path, as the export resolved it.
        """
        return self._link.run(receiver_calls.forget_export(queue, lake))


class Subscriptions:
    """Queues that get every message of another queue."""

    _link: Link

    def create_subscription(self, name: str, queue: str, *, waiting: bool = False) -> None:
        """Make the queue `name`, which gets every message of `queue` from now on; no second copy is stored.

        With `waiting` also those that are unsettled there now. From then on it is a queue like any other, but
        that nothing is sent into it; `drop_queue` drops it. One that is there already stays as it is. Waits
        for open transactions that have sent into `queue`: QueueBusyError if one does not end. Raises
        SubscriptionError for the name of another queue and for a subscription of a subscription.
        """
        self._link.run(receiver_calls.create_subscription(name, queue, waiting))

    def list_subscriptions(self, queue: str | None = None) -> list[Subscription]:
        """List the subscriptions of a queue, or of all."""
        return self._link.run(receiver_calls.list_subscriptions(queue))
