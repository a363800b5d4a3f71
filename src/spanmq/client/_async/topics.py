"""Topics and subscriptions: `client.topics` and `client.subscriptions`."""

from __future__ import annotations

from collections.abc import Iterable

from spanmq import tracing
from spanmq.client import call as argument
from spanmq.client import calls
from spanmq.client._async.connection import AsyncLink
from spanmq.client.call import Call, Delay, Seconds, flag, given, listed, nothing
from spanmq.codec import batch
from spanmq.codec.batch import EachGroup, EachHeaders
from spanmq.codec.body import Codec, Headers, encode_headers
from spanmq.model import Routed, Subscription, TopicBinding

BINDING = {"queue": "queue_name", "expression": "compiled_regex"}


class AsyncTopics:
    """Send to every queue that is bound to a topic, and bind queues."""

    def __init__(self, link: AsyncLink, codec: Codec) -> None:
        self._link = link
        self._codec = codec

    async def bind(self, pattern: str, queue: str) -> None:
        """Route messages of the topics that match to a queue; does nothing if it is bound already."""
        arguments = argument.text("pattern", pattern), argument.queue_name("queue_name", queue)
        await self._link.run(nothing("bind_topic", queue, *arguments, native=False))

    async def unbind(self, pattern: str, queue: str) -> bool:
        """Remove a binding; return whether it existed."""
        arguments = argument.text("pattern", pattern), argument.queue_name("queue_name", queue)
        return await self._link.run(Call("unbind_topic", arguments, flag, queue, native=False))

    async def match(self, routing_key: str) -> list[TopicBinding]:
        """List the bindings that a routing key matches; sends nothing."""
        arguments = (argument.text("routing_key", routing_key),)
        return await self._link.run(
            Call("test_routing", arguments, listed(TopicBinding, **BINDING), native=False)
        )

    async def send(
        self,
        routing_key: str,
        body: object,
        *,
        headers: Headers | None = None,
        group: str | None = None,
        delay: Seconds | None = None,
    ) -> int:
        """Send a message to every queue with a pattern that matches; return the number of these queues."""
        with tracing.sending("send_topic", routing_key) as sending:
            encoded = self._codec.of(f"topic {routing_key}").encode(body)
            sent_headers = encode_headers(sending.one(headers), group)
            count = await self._link.run(calls.send_topic(routing_key, encoded, sent_headers, delay))
            sending.sent_many(count)
            return count

    async def send_batch(
        self,
        routing_key: str,
        bodies: Iterable[object],
        *,
        headers: EachHeaders = None,
        group: EachGroup = None,
        delay: Delay | None = None,
    ) -> list[Routed]:
        """Send any number of messages to every queue with a pattern that matches, all or none."""
        with tracing.sending("send_batch_topic", routing_key) as sending:
            codec = self._codec.of(f"topic {routing_key}")
            chunks = batch.chunks(batch.encode(codec, bodies, sending.each(headers), group))
            routed = await self._link.run_all(
                calls.send_batch_topic(routing_key, chunk, delay) for chunk in chunks
            )
            sending.sent_many(len(routed))
            return routed

    async def list(self, queue: str | None = None) -> list[TopicBinding]:
        """List the bindings of one queue, or of all."""
        arguments = given(argument.queue_name, "queue_name", queue)
        read = listed(TopicBinding, **BINDING)
        return await self._link.run(Call("list_topic_bindings", arguments, read, queue, native=False))


class AsyncSubscriptions:
    """Queues that get every message of another queue."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def create(self, name: str, queue: str, *, waiting: bool = False) -> None:
        """Create the queue `name`, which gets every message of `queue` from now on, without a second copy.

        With `waiting` also those that are unsettled there now. From then on it is a queue like any other,
        except that nothing is sent into it; `queues.drop` drops it. One that exists stays as it is. Waits
        for open transactions that have sent into `queue`: QueueBusyError if one does not end. Raises
        NotPossibleError for the name of another queue and for a subscription of a subscription.
        """
        arguments = (
            argument.queue_name("name", name),
            argument.queue_name("queue", queue),
            *given(argument.boolean, "waiting", waiting or None),
        )
        await self._link.run(nothing("create_subscription", queue, *arguments))

    async def list(self, queue: str | None = None) -> list[Subscription]:
        """List the subscriptions of a queue, or of all."""
        arguments = given(argument.queue_name, "queue", queue)
        read = listed(Subscription, queue="queue_name")
        return await self._link.run(Call("list_subscriptions", arguments, read, queue, native=True))
