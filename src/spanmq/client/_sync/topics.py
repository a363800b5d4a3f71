# Generated from src/spanmq/client/_async/topics.py by tools/generate_sync.py: change that file.

"""Topics and subscriptions: `client.topics` and `client.subscriptions`."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from spanmq import tracing
from spanmq.client import argument, functions
from spanmq.client.argument import Delay, Seconds, optional
from spanmq.client.call import optional_queue_call, queue_call
from spanmq.client.rows import BINDING_COLUMNS, first, flag, listed, nothing, only
from spanmq.codec import batch
from spanmq.codec.batch import EachGroup, EachHeaders
from spanmq.codec.body import Codec, Headers, encode_headers
from spanmq.model import Replayed, ReplayExtent, Routed, Subscription, TopicBinding

if TYPE_CHECKING:
    from spanmq.client._sync.connection import Link


class Topics:
    """Send to every queue that is bound to a topic, and bind queues."""

    def __init__(self, link: "Link", codec: Codec) -> None:
        self._link = link
        self._codec = codec

    def bind(self, pattern: str, queue: str) -> None:
        """Bind a `queue` to the topics that match a `pattern`; does nothing if it is bound already.

        In a pattern, parts are separated by dots; `*` stands for one of them, `#` for any number. Raises
        InvalidArgumentError for an invalid pattern, and QueueNotFoundError.
        """
        bound = argument.text("pattern", pattern)
        self._link.run(queue_call(queue, "bind_topic", nothing, bound, native=False))

    def unbind(self, pattern: str, queue: str) -> bool:
        """Remove the binding of a `queue` to a `pattern`; return whether it existed.

        Raises QueueNotFoundError for a queue that the role may not see.
        """
        bound = argument.text("pattern", pattern)
        return self._link.run(queue_call(queue, "unbind_topic", flag, bound, native=False))

    def match(self, routing_key: str) -> list[TopicBinding]:
        """List the bindings that a topic matches; sends nothing.

        The topic is the `routing_key`, such as "orders.new". Raises InvalidArgumentError for an invalid key.
        """
        read, key = listed(TopicBinding, **BINDING_COLUMNS), argument.text("routing_key", routing_key)
        return self._link.run(optional_queue_call(None, "test_routing", read, key, native=False))

    def send(
        self,
        routing_key: str,
        body: object,
        *,
        headers: Headers | None = None,
        group: str | None = None,
        delay: Seconds | None = None,
    ) -> int:
        """Send a message to every queue with a pattern that matches `routing_key`; return the number of these queues.

        `body`, `headers`, `group` and `delay` (seconds or a timedelta) are those of `send`, and so is what it raises;
        for an invalid key InvalidArgumentError.
        """
        with tracing.sending("send_topic", routing_key) as sending:
            encoded = self._codec.of(f"topic {routing_key}").encode(body)
            sent_headers = encode_headers(sending.one(headers), group)
            count = self._link.run(functions.send_topic(routing_key, encoded, sent_headers, delay))
            sending.sent_many(count)
            return count

    def send_batch(
        self,
        routing_key: str,
        bodies: Iterable[object],
        *,
        headers: EachHeaders = None,
        group: EachGroup = None,
        delay: Delay | None = None,
    ) -> list[Routed]:
        """Send any number of `bodies` to every queue with a pattern that matches `routing_key`, all or none.

        Return the queue and the id of each message. `headers`, `group` and `delay` are those of the client's
        `send_batch`, and so is what it raises; for an invalid key InvalidArgumentError.
        """
        with tracing.sending("send_batch_topic", routing_key) as sending:
            codec = self._codec.of(f"topic {routing_key}")
            chunks = batch.chunks(batch.encode(codec, bodies, sending.each(headers), group))
            routed = self._link.run_all(
                functions.send_batch_topic(routing_key, chunk, delay) for chunk in chunks
            )
            sending.sent_many(len(routed))
            return routed

    def list(self, queue: str | None = None) -> list[TopicBinding]:
        """List which topics go to a `queue`, or (None) to any queue that you may see.

        Raises InvalidArgumentError for a name that is not a string. [] for a queue that does not exist.
        """
        read = listed(TopicBinding, **BINDING_COLUMNS)
        return self._link.run(optional_queue_call(queue, "list_topic_bindings", read, native=False))


class Subscriptions:
    """Queues that get every message of another queue; and messages of the past, sent again."""

    def __init__(self, link: "Link") -> None:
        self._link = link

    def create(
        self,
        name: str,
        queue: str,
        *,
        waiting: bool = False,
        since: datetime | None = None,
        since_id: int | None = None,
    ) -> None:
        """Create the queue `name`, which gets every message of `queue` from now on, without a second copy.

        With `waiting` also those that are unsettled there now, with `since` also those that were sent since then,
        settled or not, with `since_id` those with this id or a higher one; NotKeptError if the log no longer has
        them (`replay_extent`). From then on it is a queue like any other, except that nothing is sent into it;
        `queues.drop` drops it. One that exists stays as it is. Waits for open transactions that have sent into
        `queue`: QueueBusyError if one does not end. Raises NotPossibleError for the name of another queue and for a
        subscription of a subscription, QueueNotFoundError, and InvalidArgumentError for more than one of the three,
        and for an id below 1 or above that of the next message.
        """
        arguments = (
            argument.queue_name("name", name),
            *optional(argument.boolean, "waiting", waiting or None),
            *optional(argument.instant, "since", since),
            *optional(argument.bigint, "since_id", since_id),
        )
        self._link.run(queue_call(queue, "create_subscription", nothing, *arguments))

    def replay_extent(self, queue: str) -> ReplayExtent | None:
        """Return how far back `replay` of a `queue` reaches and what that takes; None for a subscription.

        Raises QueueNotFoundError.
        """
        read = first(ReplayExtent, first_message_id="first_id", last_message_id="last_id")
        return self._link.run(queue_call(queue, "replay_extent", read))

    def replay(
        self,
        queue: str,
        into: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        where: str | None = None,
        after: int = 0,
        quantity: int | None = None,
        message_ids: Iterable[int] | None = None,
        dry_run: bool = False,
    ) -> Replayed:
        """Send the messages of a `queue` again `into` another one, settled or not, in the order of their ids.

        It sends messages that were sent from `since` to before `until`, as far as the log has them (policy setting
        `keep`), and whose body meets `where`, a JSON path such as `$.amount > 100`. It sends up to `quantity` of them,
        with ids above `after`, or only these `message_ids`. The header `x-spanmq-replay-of` has the old queue, id and
        `enqueued_at` of a message. One transaction: all or none. With `dry_run` they are only counted. Returns their
        number and the last id. Raises NotKeptError if the log no longer has all messages since `since`, or the first
        of `message_ids`; NotPossibleError for subscriptions, QueueFullError, InvalidArgumentError for an invalid path,
        and QueueNotFoundError.
        """
        arguments = (
            argument.queue_name("into_queue", into),
            *optional(argument.instant, "since", since),
            *optional(argument.instant, "until", until),
            *optional(argument.text, "where", where, to="match"),
            argument.bigint("after", after),
            *optional(argument.bigint, "quantity", quantity, to="qty"),
            *optional(argument.bigints, "message_ids", message_ids, to="msg_ids"),
            argument.boolean("dry_run", dry_run),
        )
        read = only(Replayed, count="n", last_message_id="last_id")
        return self._link.run(queue_call(queue, "replay", read, *arguments))

    def list(self, queue: str | None = None) -> list[Subscription]:
        """List the subscriptions of a `queue`, or (None) of all.

        Raises QueueNotFoundError, and for all queues MissingPrivilegeError without the right "look" on all.
        """
        read = listed(Subscription, queue="queue_name")
        return self._link.run(optional_queue_call(queue, "list_subscriptions", read))
