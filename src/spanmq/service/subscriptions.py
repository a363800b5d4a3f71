"""Routes of subscriptions: queues that receive a copy of every message of another queue."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import AwareDatetime
from starlette.responses import Response

from spanmq.model import Subscription
from spanmq.service.access import Guarded
from spanmq.service.failure import described
from spanmq.service.json_text import reply
from spanmq.service.parts import Behind, Given, MayLook, MayManage, QueueName, SeesSome, answer

routes = APIRouter(prefix="/v1", tags=["queues"], route_class=Guarded)

SubscriptionName = Annotated[str, Path(min_length=1, max_length=47)]


class Subscribed(Given):
    """With `waiting`, the queue also gets the messages that are not settled yet; with `since`, those sent since."""

    waiting: bool = False
    since: AwareDatetime | None = None


Subscriptions = answer("Subscriptions", subscriptions=list[Subscription])


@routes.get("/subscriptions", response_model=Subscriptions)
async def list_all_subscriptions(backend: Behind, caller: SeesSome) -> Response:
    """List the subscriptions of queues that the token may look at."""
    found = await backend.client.subscriptions.list()
    seen = [each for each in found if caller.may("look", each.queue)]
    return reply(subscriptions=[each for each in seen if caller.may("look", each.subscription)])


@routes.get("/queues/{queue}/subscriptions", response_model=Subscriptions)
async def list_subscriptions(queue: QueueName, backend: Behind, caller: MayLook) -> Response:
    """List the subscriptions of a queue that the token may look at."""
    found = await backend.client.subscriptions.list(queue)
    return reply(subscriptions=[each for each in found if caller.may("look", each.subscription)])


@routes.put(
    "/queues/{queue}/subscriptions/{name}",
    response_model=answer("NewSubscription", queue=str, subscription=str),
    responses=described(409),
)
async def create_subscription(
    queue: QueueName,
    name: SubscriptionName,
    backend: Behind,
    caller: MayManage,
    given: Subscribed | None = None,
) -> Response:
    """Create a subscription: from now on the queue gets every message of this one; requires `manage` on both."""
    caller.check("manage", name)
    given = given or Subscribed()
    await backend.client.subscriptions.create(name, queue, waiting=given.waiting, since=given.since)
    return reply(queue=queue, subscription=name)
