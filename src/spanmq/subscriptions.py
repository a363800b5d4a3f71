# Generated from src/spanmq/subscriptions_async.py by tools/generate_sync.py: change that file.

"""What a client does with subscriptions; a part of Client."""

from __future__ import annotations

from spanmq import subscription_calls
from spanmq.link import Link
from spanmq.message import Subscription


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
        self._link.run(subscription_calls.create_subscription(name, queue, waiting))

    def list_subscriptions(self, queue: str | None = None) -> list[Subscription]:
        """List the subscriptions of a queue, or of all."""
        return self._link.run(subscription_calls.list_subscriptions(queue))
