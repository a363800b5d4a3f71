"""Routes of topics, which require a token for all queues, and of subscriptions.

A topic sends to all queues with a matching binding, a subscription gets every message of another queue.
"""

from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict
from starlette.responses import Response

from spanmq.model import Routed, Subscription
from spanmq_service.backend import Backend
from spanmq_service.guard.access import Scope
from spanmq_service.guard.caller import Caller
from spanmq_service.http.json_text import reply
from spanmq_service.routes.doors import add_doors
from spanmq_service.routes.parts import (
    Body,
    Id,
    MayLook,
    MayManage,
    Moment,
    QueueName,
    RequestModel,
    Seconds,
    SeesSome,
    Text,
    answer,
)
from spanmq_service.routes.table import Table

routes = Table("topics")
subscriptions = Table("queues")

MaySendToAll = Annotated[Caller, Scope("send", "everything")]
Topic = Annotated[str, Meta(min_length=1, max_length=255)]
SubscriptionName = Annotated[str, Meta(min_length=1, max_length=47)]


class TopicMessage(RequestModel, kw_only=True):
    """A message for a topic."""

    body: Body
    headers: dict[str, Any] | None = None
    group: Text | None = None


class TopicMessages(RequestModel, kw_only=True):
    """Messages for a topic, all or none."""

    messages: Annotated[list[TopicMessage], Meta(min_length=1, max_length=1_000)]
    delay: Seconds | None = None


@routes.post(
    "/topics/{topic}/messages/batch",
    status=201,
    answer=answer("TopicBatchSent", results=list[Routed]),
    errors=(404, 409),
)
async def send_batch_topic(topic: Topic, batch: TopicMessages, backend: Backend, _: MaySendToAll) -> Response:
    """Send messages to every queue with a pattern that matches, all or none."""
    sent = await backend.client.topics.send_batch(
        topic,
        [message.body for message in batch.messages],
        headers=[message.headers for message in batch.messages],
        group=[message.group for message in batch.messages],
        delay=batch.delay,
    )
    return reply(201, results=sent)


class Subscribed(RequestModel, kw_only=True):
    """With `waiting`, the queue also gets unsettled messages; with `since` or `since_id`, those from there on."""

    waiting: bool = False
    since: Moment | None = None
    since_id: Id | None = None


Subscriptions = answer("Subscriptions", subscriptions=list[Subscription])


@subscriptions.get("/subscriptions", answer=Subscriptions)
async def list_all_subscriptions(backend: Backend, caller: SeesSome) -> Response:
    """List the subscriptions of queues that the token may look at."""
    seen = caller.seen(await backend.client.subscriptions.list())
    return reply(
        subscriptions=[subscription for subscription in seen if caller.may("look", subscription.subscription)]
    )


@subscriptions.get("/queues/{queue}/subscriptions", answer=Subscriptions)
async def list_subscriptions(queue: QueueName, backend: Backend, caller: MayLook) -> Response:
    """List the subscriptions of a queue that the token may look at."""
    listed = await backend.client.subscriptions.list(queue)
    return reply(
        subscriptions=[
            subscription for subscription in listed if caller.may("look", subscription.subscription)
        ]
    )


@subscriptions.put(
    "/queues/{queue}/subscriptions/{name}",
    answer=answer("NewSubscription", queue=str, subscription=str),
    errors=(409,),
)
async def create_subscription(
    queue: QueueName,
    name: SubscriptionName,
    backend: Backend,
    caller: MayManage,
    options: Subscribed | None = None,
) -> Response:
    """Create a subscription: from now on the queue gets every message of this one; requires `manage` on both."""
    caller.check("manage", name)
    options = options or Subscribed()
    await backend.client.subscriptions.create(name, queue, **asdict(options))
    return reply(queue=queue, subscription=name)


add_doors(routes, "topic")
