"""The transport of kombu: connections and channels. A channel sends, receives and settles with calls of the client."""

import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from amqp.protocol import queue_declare_ok_t
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.url import maybe_sanitize_url
from kombu.utils.uuid import uuid

from spanmq.celery.broadcast import LOG_SECONDS, Cursor, is_brief, is_log, log_of
from spanmq.celery.envelope import enclose, headers_of, open_envelope, options_of
from spanmq.celery.holding import BATCH, Held, Leases
from spanmq.celery.routing import key_of, pattern_of
from spanmq.celery.session import Session
from spanmq.celery.watch import Watch
from spanmq.errors import TEMPORARY, MissingPrivilegeError, NotPossibleError, SpanmqError
from spanmq.version import __version__

# Pauses between looks, without news: of stored queues, of logs for as long as replies are awaited, and of other logs.
STORED_SECONDS: Final = 1.0
REPLY_SECONDS: Final = 0.05
LOG_PAUSE_SECONDS: Final = 0.5
# How often an event loop asks whether a pause is over.
TICK_SECONDS: Final = 0.25
# How long a blocking consumer without room waits: an ack may be due in its own thread.
FULL_SECONDS: Final = 0.05
LEASE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of a channel."""

    tag: str
    queue: str
    no_ack: bool
    callback: Callable[[virtual.Message], Any]


class Channel(virtual.Channel):
    """A channel: queues are ours, bindings are topics, and `qos` holds what is not acked."""

    QoS = Held
    supports_fanout = True

    def __init__(self, connection: "Transport", **options: Any) -> None:
        super().__init__(connection, **options)
        self.session = connection.session
        self.consumers: dict[str, Consumer] = {}
        # Received, and not delivered to a callback yet.
        self.arrived: deque[tuple[Consumer, virtual.Message]] = deque()

    # Queues and bindings.

    def prepare_queue_arguments(self, arguments: Mapping[str, Any], **options: Any) -> Mapping[str, Any]:
        """Return the arguments of a queue, which say whether it expires, in RabbitMQ's words."""
        prepared: Mapping[str, Any] = to_rabbitmq_queue_arguments(arguments, **options)
        return prepared

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> queue_declare_ok_t:
        """Create a queue, unless the role may not: then it has to exist. With `passive` only count its messages."""
        queue = queue or f"amq.gen-{uuid()}"
        count = 0
        if is_brief(queue, exclusive=exclusive, arguments=arguments):
            self.connection.cursors.setdefault(queue, Cursor())
        elif passive:
            count = self.session.client.queues.metrics(queue).queue_length
        elif not self.session.is_joined:
            with suppress(MissingPrivilegeError):
                self.session.client.queues.create(queue)
        return queue_declare_ok_t(queue, count, 0)

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **options: Any
    ) -> None:
        """Bind a queue to an exchange, unless the role may not: then another one has to."""
        exchange = exchange or "amq.direct"
        client = self.session.client
        pattern = pattern_of(self.typeof(exchange).type, exchange, routing_key)
        cursor = self.connection.cursors.get(queue)
        with suppress(MissingPrivilegeError):
            if cursor is not None:
                log = log_of(exchange)
                client.queues.create(log)
                client.queues.set_policy(log, drop_expired=True)
                client.topics.bind(pattern_of("fanout", exchange, ""), log)
            elif not self.session.is_joined:
                client.topics.bind(pattern, queue)
        if cursor is not None:
            cursor.bind(client, exchange, pattern)

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **options: Any
    ) -> None:
        """Remove the binding of a queue to an exchange."""
        exchange = exchange or "amq.direct"
        pattern = pattern_of(self.typeof(exchange).type, exchange, routing_key)
        if (cursor := self.connection.cursors.get(queue)) is not None:
            cursor.unbind(exchange, pattern)
        else:
            self.session.client.topics.unbind(pattern, queue)

    def queue_purge(self, queue: str, **options: Any) -> int:
        """Remove all messages of a queue, those of other consumers too; return their number."""
        if queue in self.connection.cursors:
            return 0
        return self.session.client.queues.purge(queue)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **options: Any) -> None:
        """Drop a queue with its messages."""
        if self.connection.cursors.pop(queue, None) is not None:
            return
        if not (if_empty and self.session.client.queues.metrics(queue).queue_length):
            self.session.client.queues.drop(queue)

    def after_reply_message_received(self, queue: str) -> None:
        """Keep the place in the log: the next replies come to the same queue."""

    # Sending.

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **options: Any
    ) -> None:
        """Send a message into the queue `routing_key`, or into all that are bound to an exchange."""
        body, _ = self.encode_body(message["body"], None if isinstance(message["body"], str) else "base64")
        enclosed = enclose(message, exchange, routing_key) | {"body": body}
        headers, sent = headers_of(message), options_of(message)
        client = self.session.client
        if not exchange:
            client.send(routing_key, enclosed, headers=headers, **sent)
            return
        bound = {binding.queue for binding in client.topics.match(key_of(exchange, routing_key))}
        if not bound:
            return
        with client.transaction() as together:
            for queue in sorted(bound):
                if is_log(queue):
                    together.send(queue, enclosed, expires_in=LOG_SECONDS)
                else:
                    together.send(queue, enclosed, headers=headers, **sent)

    # Receiving.

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **options: Any
    ) -> None:
        """Deliver messages of a queue to a callback."""
        self.consumers[consumer_tag] = Consumer(consumer_tag, queue, no_ack, callback)
        self.connection.attend()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Deliver no more to a consumer; what it was about to get goes back to the queue."""
        if self.consumers.pop(consumer_tag, None) is None:
            return
        left = [message for consumer, message in self.arrived if consumer.tag == consumer_tag]
        self.arrived = deque(each for each in self.arrived if each[0].tag != consumer_tag)
        for message in left:
            self.qos.reject(message.delivery_tag, requeue=True)

    def basic_get(self, queue: str, no_ack: bool = False, **options: Any) -> virtual.Message | None:
        """Return a message of a queue, if there is one."""
        messages = self.take(queue, 1, no_ack)
        return messages[0] if messages else None

    def take(self, queue: str, quantity: int, no_ack: bool) -> list[virtual.Message]:
        """Receive up to `quantity` messages; with `no_ack` they are gone from the queue."""
        client, leases = self.session.client, self.connection.leases
        cursor = self.connection.cursors.get(queue)
        if cursor is not None:
            received = cursor.take(client, quantity)
        else:
            received = client.receive(queue, quantity, lease=leases.seconds, slots=quantity)
            if no_ack:
                client.ack(received)
            else:
                leases.add(received)
        messages = []
        for message in received:
            tag = uuid()
            if (payload := open_envelope(message, tag)) is not None:
                messages.append(self.Message(payload, channel=self))
                if not no_ack:
                    self.qos.append(message, tag, cursor)
            elif cursor is None and not no_ack:
                leases.settle("reject", message)
        return messages

    def drain_events(
        self, timeout: float | None = None, callback: Any = None, is_due: Callable[[str], bool] | None = None
    ) -> int:
        """Deliver what has arrived, and messages of each queue that is due; return how many."""
        count = self._deliver()
        for consumer in [*self.consumers.values()]:
            room = BATCH if consumer.no_ack else self.qos.room
            if room and consumer.tag in self.consumers and (is_due is None or is_due(consumer.queue)):
                messages = self.take(consumer.queue, room, consumer.no_ack)
                self.arrived += [(consumer, message) for message in messages]
                if messages:
                    # The next time the others come first.
                    self.consumers[consumer.tag] = self.consumers.pop(consumer.tag)
                count += self._deliver()
        return count

    def _deliver(self) -> int:
        count = 0
        while self.arrived:
            consumer, message = self.arrived.popleft()
            count += 1
            consumer.callback(message)
        return count


class Transport(virtual.Transport):
    """A connection of kombu: a client, the leases of all its channels, and what wakes it.

    Options (`broker_transport_options`): `visibility_timeout`, the seconds of a lease, which heartbeats extend;
    `polling_interval`, the seconds between looks without news; `pool_size`; `pooler`, as the client has it.
    """

    Channel = Channel
    can_parse_url = True
    driver_type = "spanmq"
    driver_name = "spanmq"
    connection_errors = (*virtual.Transport.connection_errors, *TEMPORARY)
    channel_errors = (*virtual.Transport.channel_errors, SpanmqError)
    recoverable_connection_errors = TEMPORARY
    recoverable_channel_errors = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset({"direct", "topic", "fanout"})
    )
    polling_interval = STORED_SECONDS

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        settings = client.transport_options
        self.session = Session(client.hostname, settings)
        self.leases = Leases(self.session, float(settings.get("visibility_timeout") or LEASE_SECONDS))
        # By the names of queues that end with their consumers.
        self.cursors: dict[str, Cursor] = {}
        self.has_failed = False
        self._due: dict[str, float] = {}
        self._woken = threading.Event()
        self._watch: Watch | None = None
        self._loop: Any = None
        self._is_closed = False

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Return the address for a person to read; its parameters may have a password, too."""
        return uri if include_password else maybe_sanitize_url(uri.partition("?")[0], mask)

    def driver_version(self) -> str:
        """Return the version of spanmq."""
        return __version__

    def establish_connection(self) -> Any:
        """Connect; raises ConnectionFailedError if no server answers."""
        self.session.client.open()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close the channels, which returns what they hold, and the client."""
        self._is_closed = True
        if self._watch is not None:
            self._watch.stop()
        self.leases.stop()
        with suppress(*TEMPORARY):
            super().close_connection(connection)
        self.session.close()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver messages; raises socket.timeout if none comes within `timeout` seconds."""
        deadline = float("inf") if timeout is None else monotonic() + timeout
        self._woken.set()
        while not self._drain():
            remaining = deadline - monotonic()
            has_room = any(channel.qos.can_consume() for channel in self.channels if channel.consumers)
            if remaining <= 0 or not has_room:
                self._woken.wait(max(min(remaining, FULL_SECONDS), 0.0))
                raise socket.timeout
            pause = min(self._due.values(), default=float("inf")) - monotonic()
            self._woken.wait(max(min(remaining, pause, self.polling_interval), 0.0))

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver messages in an event loop of kombu."""
        self._loop = loop
        loop.call_repeatedly(TICK_SECONDS, self.pump)
        self.wake()

    def pump(self) -> None:
        """Deliver messages that are there, and call again soon if there were any."""
        if not self._is_closed and self._drain():
            self._loop.call_soon(self.pump)

    def wake(self) -> None:
        """Look for messages soon: one may have come, or there is room for more."""
        self._woken.set()
        if self._watch is not None:
            self._watch.changed()
        if self._loop is not None and not self._is_closed:
            self._loop.call_soon(self.pump)

    def attend(self) -> None:
        """Look for messages soon, and begin what a connection with consumers needs."""
        if self.session.is_joined:
            raise NotPossibleError("a connection that is part of your transaction only sends")
        queues = self._stored_queues(with_room=False)
        if queues:
            self.leases.begin()
        if queues and self._watch is None and self.session.can_listen:
            self._watch = Watch(self.session.dsn, self._stored_queues, self.wake, self.polling_interval)
        self.wake()

    def _stored_queues(self, *, with_room: bool = True) -> list[str]:
        return [
            consumer.queue
            for channel in [*self.channels]
            for consumer in [*channel.consumers.values()]
            if consumer.queue not in self.cursors and not (with_room and channel.qos.room == 0)
        ]

    def _drain(self) -> int:
        """Deliver messages of queues that are due, or all if woken; return how many."""
        is_woken = self._woken.is_set()
        self._woken.clear()

        def is_due(queue: str) -> bool:
            now = monotonic()
            if not is_woken and now < self._due.get(queue, 0.0):
                return False
            self._due[queue] = now + self._pause_of(queue)
            return True

        try:
            return sum(channel.drain_events(is_due=is_due) for channel in [*self.channels])
        except TEMPORARY:
            self.has_failed = True
            raise

    def _pause_of(self, queue: str) -> float:
        if queue not in self.cursors:
            return float(self.polling_interval)
        return REPLY_SECONDS if ".reply." in queue else LOG_PAUSE_SECONDS
