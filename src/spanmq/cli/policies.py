"""The nouns `policy` and `category`: how queues deliver, and what follows from which kind of failure."""

from typing import TYPE_CHECKING, Any

import typer

from spanmq.cli.option import CategoryName, ForQueue, QueueName, Settings, SomeSettings
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.client import Client

policy = Commands()
category = Commands()


@policy.verb("set")
def set_policy(client: "Client", queue: QueueName, settings: Settings) -> Any:
    """Change settings of a queue's policy and show it; null restores a default.

    $ spanmq policy set orders max_attempts=5 ordered=true
    """
    return client.queues.set_policy(queue, **dict(settings))


@category.verb("set-policy")
def set_category_policy(
    client: "Client", category: CategoryName, settings: SomeSettings = None, queue: ForQueue = None
) -> Any:
    """Change the policy of a category and show it.

    With --queue and without settings, remove the queue's own.

    $ spanmq category set-policy DEPENDENCY backoff_base=5 max_attempts=50
    $ spanmq category set-policy BUSINESS --queue orders
    """
    if not settings and queue is None:
        raise typer.BadParameter("pass settings, or a queue to remove its own settings")
    return client.dead_letters.categories.set_policy(
        category, dict(settings) if settings else None, queue=queue
    )
