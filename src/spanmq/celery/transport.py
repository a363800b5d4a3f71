"""The transport of kombu: connections and channels. A channel sends, receives and settles with calls of the client."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final, NamedTuple

from amqp.protocol import queue_declare_ok_t
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.url import maybe_sanitize_url
from kombu.utils.uuid import uuid

from spanmq.celery.broadcast import LOG, LOG_SECONDS, Cursor, is_brief
from spanmq.celery.envelope import enclosed, key_of, opened, options_of, pattern_of
from spanmq.celery.holding import BATCH, ChannelQos, Upkeep
from spanmq.celery.session import BrokerSession
from spanmq.errors import TEMPORARY, MissingPrivilegeError, NotPossibleError, SpanmqError

# Pauses between looks at queues without news, between looks at logs, and at logs of a connection that has only these.
POLL_SECONDS: Final = 1.0
LOG_PAUSE_SECONDS: Final = 0.5
REPLY_PAUSE_SECONDS: Final = 0.05
# How long a caller without room for messages waits: acks may be due in its own thread.
FULL_SECONDS: Final = 0.05
LEASE_SECONDS: Final = 60.0


class Consumer(NamedTuple):
    """A consumer of a channel."""

    tag: str
    queue: str
    no_ack: bool
    callback: Callable[[virtual.Message], Any]


class Channel(virtual.Channel):
    """A channel: queues are ours, bindings are topics, and `qos` holds what is not acked."""

    QoS = ChannelQos
    supports_fanout = True

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self.transport: Transport = connection
        self.session: BrokerSession = connection.session
        self.consumers: dict[str, Consumer] = {}
        # Received, and not delivered to its consumer yet.
        self.arrived: deque[tuple[Consumer, virtual.Message]] = deque()

    # Queues and bindings.

    def prepare_queue_arguments(self, arguments: Mapping[str, Any], **options: Any) -> Any:
        """Return the arguments of a queue in RabbitMQ's words; they say whether it expires."""
        return to_rabbitmq_queue_arguments(arguments, **options)

    def queue_declare(
        self, queue: str | None = None, passive: bool = False, arguments: Any = None, **options: Any
    ) -> queue_declare_ok_t:
        """Create a queue, unless the role may not: then it has to exist. With `passive` only count its messages."""
        queue, count = queue or f"amq.gen-{uuid()}", 0
        if is_brief(queue, arguments, exclusive=options.get("exclusive", False)):
            self.transport.cursors.setdefault(queue, Cursor())
        elif passive:
            count = self.session.client.queues.metrics(queue).length
        elif not self.session.is_joined:
            with suppress(MissingPrivilegeError):
                self.session.client.queues.create(queue)
        return queue_declare_ok_t(queue, count, 0)

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", **options: Any
    ) -> None:
        """Bind a queue to an exchange, unless the role may not: then another one has to."""
        exchange = exchange or "amq.direct"
        pattern = pattern_of(self.typeof(exchange).type, exchange, routing_key)
        if (cursor := self.transport.cursors.get(queue)) is not None:
            cursor.bind(self.session.client, exchange, pattern)
        elif not self.session.is_joined:
            with suppress(MissingPrivilegeError):
                self.session.client.topics.bind(pattern, queue)

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", **options: Any
    ) -> None:
        """Remove the binding of a queue to an exchange."""
        exchange = exchange or "amq.direct"
        pattern = pattern_of(self.typeof(exchange).type, exchange, routing_key)
        if (cursor := self.transport.cursors.get(queue)) is not None:
            cursor.unbind(exchange, pattern)
        else:
            self.session.client.topics.unbind(pattern, queue)

    def queue_purge(self, queue: str, **options: Any) -> int:
        """Remove all messages of a queue, those that consumers hold too; return their number."""
        return 0 if queue in self.transport.cursors else self.session.client.queues.purge(queue)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **options: Any
    ) -> None:
        """Drop a queue with its messages."""
        if self.transport.cursors.pop(queue, None) is not None:
            return
        if not (if_empty and self.session.client.queues.metrics(queue).length):
            self.session.client.queues.drop(queue)

    def after_reply_message_received(self, queue: str) -> None:
        """Keep the place in the log: the next replies come to the same queue."""

    # Sending.

    def basic_publish(self, message: Any, exchange: str, routing_key: str, **options: Any) -> None:
        """Send a message into the queue `routing_key`, or into all queues that are bound to an exchange."""
        body = message["body"]
        text = body if isinstance(body, str) else self.encode_body(body, "base64")[0]
        body, sent = enclosed(message, exchange, routing_key, text), options_of(message)
        if not exchange:
            self.session.client.send(routing_key, body, **sent)
        elif bound := self.session.client.topics.match(key_of(exchange, routing_key)):
            with self.session.client.transaction() as client:
                for queue in sorted({binding.queue for binding in bound}):
                    client.send(queue, body, **({"expires_in": LOG_SECONDS} if queue.endswith(LOG) else sent))

    # Receiving.

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **options: Any
    ) -> None:
        """Deliver messages of a queue to a callback."""
        self.consumers[consumer_tag] = Consumer(consumer_tag, queue, no_ack, callback)
        self.transport.attend()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Deliver no more to a consumer."""
        self.consumers.pop(consumer_tag, None)

    def basic_get(self, queue: str, no_ack: bool = False, **options: Any) -> virtual.Message | None:
        """Return a message of a queue, if there is one."""
        return next(iter(self.take(queue, 1, no_ack)), None)

    def take(self, queue: str, quantity: int, no_ack: bool) -> list[virtual.Message]:
        """Receive up to `quantity` messages; with `no_ack` they are acked at once."""
        client, upkeep = self.session.client, self.transport.upkeep
        if (cursor := self.transport.cursors.get(queue)) is not None:
            received = cursor.take(client, quantity)
        else:
            received = client.receive(queue, quantity, lease=upkeep.lease_seconds, slots=quantity)
            if no_ack:
                client.ack(received)
            else:
                upkeep.begin()
        messages = []
        for message in received:
            tag = uuid()
            payload = opened(message, tag)
            if payload is not None:
                messages.append(self.Message(payload, channel=self))
            if not no_ack:
                self.qos.append(message, tag, cursor)
                if payload is None:
                    self.qos.reject(tag)
        return messages

    def drain(self, *, logs: bool) -> int:
        """Receive messages from `logs` or else of stored queues, and deliver what has arrived; return how many."""
        for tag, consumer in [*self.consumers.items()]:
            room = BATCH if consumer.no_ack else self.qos.room
            if room and (consumer.queue in self.transport.cursors) is logs:
                messages = self.take(consumer.queue, room, consumer.no_ack)
                self.arrived += [(consumer, message) for message in messages]
                # Next time the others come first.
                self.consumers[tag] = self.consumers.pop(tag)
        count = len(self.arrived)
        while self.arrived:
            consumer, message = self.arrived.popleft()
            if consumer.tag in self.consumers:
                consumer.callback(message)
            else:
                self.qos.release(message.delivery_tag)
        return count


class Transport(virtual.Transport):
    """A connection of kombu: a client, what holds the messages of all its channels, and what wakes it.

    Options (`broker_transport_options`): `visibility_timeout`, the seconds of a lease, which heartbeats extend;
    `polling_interval`, the longest pause between looks at a queue in seconds; `pool_size`; `pooler`, as for clients.
    """

    Channel = Channel
    can_parse_url = True
    driver_type = driver_name = "spanmq"
    connection_errors = (*virtual.Transport.connection_errors, *TEMPORARY)
    channel_errors = (*virtual.Transport.channel_errors, SpanmqError)
    recoverable_connection_errors = TEMPORARY
    recoverable_channel_errors = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset({"direct", "topic", "fanout"})
    )
    polling_interval = POLL_SECONDS

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        settings = client.transport_options
        self.session = BrokerSession(client.hostname, settings)
        lease_seconds = float(settings.get("visibility_timeout") or LEASE_SECONDS)
        self.upkeep = Upkeep(self, lease_seconds)
        # By the names of queues that end with their consumers.
        self.cursors: dict[str, Cursor] = {}
        self.has_failed = False
        self._woken = threading.Event()
        self._loop: Any = None
        self._is_closed = False

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Return the address for a person to read; its parameters may have a password, too."""
        return uri if include_password else maybe_sanitize_url(uri.partition("?")[0], mask)

    def establish_connection(self) -> Any:
        """Connect; raises ConnectionFailedError if no server answers."""
        self.session.client.open()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close the channels, which returns what they hold, and the client."""
        self._is_closed = True
        self.upkeep.stop()
        super().close_connection(connection)
        self.session.close()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver messages; raises socket.timeout if none comes within `timeout` seconds."""
        deadline = float("inf") if timeout is None else monotonic() + timeout
        self._woken.set()
        while not self._drain():
            remaining, pause = deadline - monotonic(), self.polling_interval
            if self.cursors:
                pause = LOG_PAUSE_SECONDS if self.queues_with_room() else REPLY_PAUSE_SECONDS
            if not any(channel.qos.room for channel in self.channels if channel.consumers):
                self._woken.wait(max(min(remaining, FULL_SECONDS), 0.0))
                raise TimeoutError
            if remaining <= 0:
                raise TimeoutError
            self._woken.wait(min(remaining, pause))

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver messages in an event loop of kombu."""
        self._loop = loop
        loop.call_repeatedly(LOG_PAUSE_SECONDS, self.pump)
        self.wake()

    def pump(self) -> None:
        """Deliver messages that have come, and again soon if there were any."""
        if not self._is_closed and self._drain():
            self.wake()

    def wake(self) -> None:
        """Look for messages soon: one may have come, or there is room for more."""
        self._woken.set()
        self.upkeep.changed.set()
        if self._loop is not None and not self._is_closed:
            self._loop.call_soon(self.pump)

    def attend(self) -> None:
        """Look for messages soon, and wait for them from now on."""
        if self.session.is_joined:
            raise NotPossibleError("a connection that is part of your transaction only sends")
        if self.queues_with_room():
            self.upkeep.begin()
        self.wake()

    def queues_with_room(self) -> list[str]:
        """Return the stored queues of consumers that may hold more."""
        consumers = [
            consumer
            for channel in [*self.channels]
            if channel.qos.room
            for consumer in [*channel.consumers.values()]
        ]
        return [consumer.queue for consumer in consumers if consumer.queue not in self.cursors]

    def _drain(self) -> int:
        """Deliver messages of logs, and then those of queues, if woken; return how many."""
        is_woken = self._woken.is_set()
        self._woken.clear()
        channels = [*self.channels]
        try:
            # First, because a command, such as to revoke a task, may have been sent before the task.
            count: int = sum(channel.drain(logs=True) for channel in channels)
            count += sum(channel.drain(logs=False) for channel in channels if is_woken)
            return count
        except TEMPORARY:
            self.has_failed = True
            raise
