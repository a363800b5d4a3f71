"""Messages that channels hold until they are acked, the heartbeats of their leases, and the wait for new ones."""

import logging
import threading
from functools import partial
from time import monotonic
from typing import Any, Final, Literal

from spanmq.celery.broadcast import Cursor
from spanmq.celery.session import BrokerSession
from spanmq.client.single_connection import KeptClient
from spanmq.errors import TEMPORARY, MissingPrivilegeError, SpanmqError
from spanmq.model import Message

logger = logging.getLogger("spanmq.celery")

# Messages of one receive.
BATCH: Final = 100
# Pauses after a wait that no notification ended: a server that refuses the wait is not asked without one.
GAP_SECONDS: Final = 0.02
# Steps of maintenance in a row, so that heartbeats are in time.
STEPS_MAX: Final = 20

Verb = Literal["ack", "reject", "requeue", "release"]


class Upkeep:
    """A thread beside a transport: it waits for messages, extends leases, and runs maintenance.

    It wakes the transport when a message may have come, and at least every `polling_interval` seconds. A lease of
    `lease_seconds` is extended while it holds messages. A settlement that fails for now is tried again.
    """

    def __init__(self, transport: Any, lease_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self._transport = transport
        self._session: BrokerSession = transport.session
        self._pause = min(transport.polling_interval, lease_seconds / 6)
        self._extended_at = 0.0
        self._unsettled: list[tuple[Verb, list[Message]]] = []
        self._is_stopped = False
        self.changed = threading.Event()
        self._thread: threading.Thread | None = None
        self._maintains = True

    def begin(self) -> None:
        """Begin, unless it was begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spanmq upkeep", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop, after a wait that is under way; the leases end by themselves."""
        self._is_stopped = True
        self.changed.set()
        if self._thread is not None:
            self._thread.join(self._pause + 1.0)

    def settle(self, verb: Verb, messages: list[Message]) -> None:
        """Settle messages; if the server does not answer now, later.

        A requeue counts as an attempt, a release does not.
        """
        client = self._session.client
        try:
            if verb == "reject":
                outcomes = client.reject(messages, "rejected by the consumer", category="PERMANENT")
            elif verb == "requeue":
                outcomes = client.nack(messages, "requeued by the consumer", retry_in=0)
            else:
                outcomes = client.ack(messages) if verb == "ack" else client.release(messages)
        except TEMPORARY as error:
            logger.warning("settling_delayed verb=%s messages=%d error=%r", verb, len(messages), str(error))
            self._unsettled.append((verb, messages))
            return
        if stale := [settlement.message_id for settlement in outcomes if settlement.outcome == "stale"]:
            logger.warning("lease_lost verb=%s queue=%s message_ids=%r", verb, messages[0].queue, stale)

    def _run(self) -> None:
        kept = KeptClient(self._session.dsn, application_name="spanmq celery")
        failing: set[str] = set()
        while not self._is_stopped:
            failed = set()
            # Each for itself: without a connection to listen, leases are extended all the same.
            for step in (partial(self._wait, kept), self._extend, self._settle_again, self._maintain):
                try:
                    step()
                except SpanmqError as error:
                    failed.add(name := type(error).__name__)
                    if name not in failing:
                        logger.warning("upkeep_failed error_class=%s error=%r", name, str(error))
                    self.changed.wait(self._pause)
            failing = failed
        kept.close()

    def _wait(self, kept: KeptClient) -> None:
        self.changed.clear()
        if (queues := self._transport.queues_with_room()) and self._session.can_listen:
            is_announced = kept.wait(queues, self._pause)
            self._transport.wake()
            self.changed.clear()
            self.changed.wait(0 if is_announced else GAP_SECONDS)
            return
        # No room: senders wake other processes.
        kept.wait_no_more()
        self.changed.wait(self._pause)
        self._transport.wake()

    def _extend(self) -> None:
        if monotonic() < self._extended_at + self.lease_seconds / 3:
            return
        self._extended_at = monotonic()
        held = [channel.qos for channel in [*self._transport.channels]]
        messages = [message for _, unsettled in self._unsettled for message in unsettled]
        messages += [message for qos in held for message in qos.stored()]
        leases: dict[tuple[str, int], list[Message]] = {}
        for message in messages:
            leases.setdefault((message.queue, message.lease_id or 0), []).append(message)
        for (queue, lease_id), leased in leases.items():
            extended = self._session.client.extend(leased, self.lease_seconds)
            is_lost = all(message.outcome == "stale" for message in extended)
            # What was settled meanwhile is not lost.
            if is_lost and (count := sum(qos.forget(queue, lease_id) for qos in held)):
                logger.warning("lease_lost queue=%s messages=%d", queue, count)

    def _settle_again(self) -> None:
        again, self._unsettled = self._unsettled, []
        for verb, messages in again:
            self.settle(verb, messages)

    def _maintain(self) -> None:
        try:
            for _ in range(STEPS_MAX if self._maintains else 0):
                if self._is_stopped or not self._session.client.admin.maintain():
                    return
        except MissingPrivilegeError:
            self._maintains = False  # left to others


class ChannelQos:
    """What kombu calls the quality of service of a channel: its messages by delivery tag, and how many it may hold.

    A `prefetch_count` of 0 means no limit. Acks may come from any thread.
    """

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        self.prefetch_count = prefetch_count
        self._transport = channel.connection
        self._messages: dict[str, tuple[Message, Cursor | None]] = {}

    @property
    def room(self) -> int:
        """How many messages the next receive may return."""
        return min(max(self.prefetch_count - len(self._messages), 0), BATCH) if self.prefetch_count else BATCH

    def append(self, message: Message, tag: str, cursor: Cursor | None) -> None:
        """Hold a message until it is settled; one that came from a log has a cursor."""
        self._messages[tag] = (message, cursor)

    def ack(self, delivery_tag: str) -> None:
        """Ack a message."""
        self._settle("ack", delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Return a message to its queue, until its attempts are used up, or make it a dead letter."""
        self._settle("requeue" if requeue else "reject", delivery_tag)

    def release(self, delivery_tag: str) -> None:
        """Return a message that was not delivered to its queue."""
        self._settle("release", delivery_tag)

    def stored(self) -> list[Message]:
        """Return the messages that have leases; those of logs have none."""
        return [message for message, cursor in [*self._messages.values()] if cursor is None]

    def forget(self, queue: str, lease_id: int) -> int:
        """Hold the messages of a lost lease no longer; return their number."""
        lost = [
            tag
            for tag, (message, _) in [*self._messages.items()]
            if (message.queue, message.lease_id) == (queue, lease_id)
        ]
        return sum(self._messages.pop(tag, None) is not None for tag in lost)

    def restore_unacked(self) -> None:
        """Return all messages to their queues."""
        stored, self._messages = self.stored(), {}
        if stored:
            self._transport.upkeep.settle("release", stored)

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Return all messages to their queues at the end of the channel.

        Not after a failure of the connection: tasks still run, and may ack until the leases end.
        """
        if not self._transport.has_failed:
            self.restore_unacked()

    def _settle(self, verb: Verb, tag: str) -> None:
        was_full = not self.room
        message, cursor = self._messages.pop(tag, (None, None))
        if message is not None and cursor is None:
            self._transport.upkeep.settle(verb, [message])
        elif message is not None and cursor is not None and verb in {"requeue", "release"}:
            cursor.waiting.appendleft(message)
        if was_full or verb == "requeue":
            self._transport.wake()
