"""Messages that a channel holds until they are acked, and the heartbeats of their leases."""

import logging
import threading
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal

from spanmq.celery.broadcast import Cursor
from spanmq.celery.session import Session
from spanmq.client import Client
from spanmq.errors import TEMPORARY, MissingPrivilegeError, QueueNotFoundError, SpanmqError
from spanmq.model import Message

if TYPE_CHECKING:
    from spanmq.celery.transport import Channel

logger = logging.getLogger("spanmq.celery")

# Messages of one receive.
BATCH: Final = 100
# Every so often a process that consumes runs maintenance.
MAINTAIN_SECONDS: Final = 2.0
# Steps in a row, so that heartbeats are in time.
STEPS_MAX: Final = 20

Verb = Literal["ack", "reject", "release"]


@dataclass
class Lease:
    """A lease that holds messages: these ids, extended at a moment of the monotonic clock."""

    extended_at: float
    message_ids: set[int] = field(default_factory=set)


class Leases:
    """The leases of a connection: extended until their messages are settled, by a thread that also runs maintenance.

    A lease lasts `seconds`. A settlement that fails for now is tried again.
    """

    def __init__(self, session: Session, seconds: float) -> None:
        self.seconds = seconds
        self._session = session
        self._leases: dict[tuple[str, int], Lease] = {}
        self._unsettled: list[tuple[Verb, Message]] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._maintain_at = 0.0

    def begin(self) -> None:
        """Begin heartbeats and maintenance, unless that was done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spanmq heartbeat", daemon=True)
            self._thread.start()

    def add(self, messages: list[Message]) -> None:
        """Extend the leases of received messages from now on."""
        now = monotonic()
        with self._lock:
            for message in messages:
                if message.lease_id is not None:
                    lease = self._leases.setdefault((message.queue, message.lease_id), Lease(now))
                    lease.message_ids.add(message.message_id)
        self.begin()

    def forget(self, message: Message) -> None:
        """Extend the lease of a message no more for its sake."""
        with self._lock:
            key = (message.queue, message.lease_id or 0)
            if (lease := self._leases.get(key)) is not None:
                lease.message_ids.discard(message.message_id)
                if not lease.message_ids:
                    del self._leases[key]

    def settle(self, verb: Verb, message: Message) -> None:
        """Ack, reject or release a message; if the server does not answer now, later."""
        try:
            self._session.late(lambda client: _settle(client, verb, message))
        except TEMPORARY as error:
            logger.warning("settling_delayed verb=%s queue=%s error=%r", verb, message.queue, str(error))
            with self._lock:
                self._unsettled.append((verb, message))
        except SpanmqError:
            self.forget(message)
            raise
        else:
            self.forget(message)

    def stop(self) -> None:
        """Stop; the leases end by themselves."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(self.seconds)

    def _run(self) -> None:
        pause = min(self.seconds / 6, MAINTAIN_SECONDS)
        while not self._stopped.wait(pause):
            try:
                self._extend()
                self._settle_again()
                self._maintain()
            except SpanmqError as error:
                logger.warning("heartbeat_failed error_class=%s error=%r", type(error).__name__, str(error))

    def _extend(self) -> None:
        now = monotonic()
        with self._lock:
            due = [each for each in self._leases.items() if each[1].extended_at <= now - self.seconds / 3]
        for (queue, lease_id), lease in due:
            try:
                is_held = self._session.client.extend(queue, lease_id, self.seconds) > 0
            except QueueNotFoundError:
                is_held = False
            lease.extended_at = now
            if not is_held:
                with self._lock:
                    is_lost = self._leases.pop((queue, lease_id), None) is not None
                if is_lost:
                    logger.warning("lease_lost queue=%s messages=%d", queue, len(lease.message_ids))

    def _settle_again(self) -> None:
        with self._lock:
            again, self._unsettled = self._unsettled, []
        for verb, message in again:
            self.settle(verb, message)

    def _maintain(self) -> None:
        if monotonic() < self._maintain_at:
            return
        try:
            for _ in range(STEPS_MAX):
                if self._stopped.is_set() or not self._session.client.admin.maintain():
                    break
            self._maintain_at = monotonic() + MAINTAIN_SECONDS
        except MissingPrivilegeError:
            self._maintain_at = float("inf")  # left to others


def _settle(client: Client, verb: Verb, message: Message) -> None:
    if verb == "ack":
        settled = client.ack(message)
    elif verb == "reject":
        settled = client.reject(message, "rejected by the consumer", category="PERMANENT")
    else:
        settled = client.release(message)
    if settled[0].outcome == "stale":
        logger.warning("lease_lost queue=%s message_id=%d verb=%s", message.queue, message.message_id, verb)


class Held:
    """What kombu calls the quality of service of a channel: its messages by delivery tag, and how many it may hold.

    `prefetch_count` of 0 is no limit. Acks may come from any thread.
    """

    def __init__(self, channel: "Channel", prefetch_count: int = 0) -> None:
        self.prefetch_count = prefetch_count
        self._transport = channel.connection
        self._messages: dict[str, tuple[Message, Cursor | None]] = {}

    @property
    def room(self) -> int:
        """How many messages the next receive may return."""
        if not self.prefetch_count:
            return BATCH
        return min(max(self.prefetch_count - len(self._messages), 0), BATCH)

    def can_consume(self) -> bool:
        """Return whether there is room for a message."""
        return self.room > 0

    def append(self, message: Message, tag: str, cursor: Cursor | None = None) -> None:
        """Hold a message of ours until it is settled; `cursor` is that of a queue that ends with its consumer."""
        self._messages[tag] = (message, cursor)

    def ack(self, delivery_tag: str) -> None:
        """Ack the message of a tag."""
        self._settle("ack", delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Return the message of a tag to its queue, or make it a dead letter."""
        self._settle("release" if requeue else "reject", delivery_tag)

    def restore_unacked(self) -> None:
        """Return all messages to their queues."""
        for tag in [*self._messages]:
            self._settle("release", tag)

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Return all messages to their queues at the end of the channel.

        Not after a failure of the connection: tasks still run, and can ack until the leases end.
        """
        if self._transport.has_failed:
            for message, _ in self._messages.values():
                self._transport.leases.forget(message)
        else:
            self.restore_unacked()

    def _settle(self, verb: Verb, tag: str) -> None:
        message, cursor = self._messages.pop(tag, (None, None))
        if message is None:
            return
        if cursor is None:
            self._transport.leases.settle(verb, message)
        elif verb == "release":
            cursor.waiting.appendleft(message)
        self._transport.wake()
