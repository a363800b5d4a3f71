# Generated from src/spanmq/client/_async/listener.py by tools/generate_sync.py: change that file.

"""Waiting for messages: in the client, not in a statement, which would hold a snapshot and a connection.

A process with waiting receivers announces itself in the database, and a sender that sees this wakes one such
process. A wait ends with a notification or with the next poll. Polls continue in any case, because a sender that
checked too early does not notify; and one is made when the next delayed message, retry or lease becomes due. See
docs/internals/wake-up.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection, sql

from spanmq.client import functions
from spanmq.client._sync.connection import Link, execute
from spanmq.client.argument import Seconds, duration
from spanmq.client.call import SqlCall, is_missing_function, missing
from spanmq.client.concurrency import BackgroundTask, Event
from spanmq.client.connection import typed
from spanmq.client.outage import Outage
from spanmq.client.polling import Due, Polling
from spanmq.client.registration import Registration
from spanmq.errors import (
    ConnectionFailedError,
    ConnectionLostError,
    NotSupportedByUpstreamError,
    ServerReadOnlyError,
    SpanmqError,
)
from spanmq.model import Message
from spanmq.model.queue import folded

logger = logging.getLogger("spanmq")

# How long a new queue's LISTEN may wait for the connection: psycopg's wait cannot be interrupted.
SLICE_SECONDS: Final = 0.1
# How long an announcement of a waiting receiver is valid; it is repeated when a third of the time is over.
AWAIT_SECONDS: Final = 30.0
# After the last waiter the connection is kept for the next one.
LINGER_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 5.0
# How often a connection that only listens asks whether its server is still there.
HEARTBEAT_SECONDS: Final = 10.0
# Errors after which it listens on a new connection.
BROKEN: Final = (ConnectionFailedError, ConnectionLostError, ServerReadOnlyError)

Found = TypeVar("Found")


class Announcement:
    """An event that knows whether a task waits for it; without one, senders need not notify.

    `is_heard` says whether a connection listens: otherwise only polling finds a message.
    """

    __slots__ = ("_event", "_waiting", "_woke_at", "is_heard")

    def __init__(self) -> None:
        self.is_heard = False
        self._event = Event()
        self._waiting = 0
        self._woke_at = float("-inf")

    def set(self) -> None:
        """End the waits."""
        self._event.set()

    def clear(self) -> None:
        """Reset the event, so that `wait` waits again."""
        self._event.clear()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until set, for up to `seconds`; return whether it is set."""
        self._waiting += 1
        try:
            return self._event.wait(seconds)
        finally:
            self._waiting -= 1
            self._woke_at = monotonic()

    def is_awaited(self) -> bool:
        """Return whether a task waits, or did a moment ago."""
        return self._waiting > 0 or monotonic() - self._woke_at < SLICE_SECONDS


def receive_within(
    link: Link,
    listener: Listener | None,
    call: SqlCall[list[Message]],
    wait: Seconds | None,
    poll_interval: float,
) -> list[Message]:
    """Receive; wait up to `wait` seconds for the first message."""
    if wait is None:
        return link.run(call)
    deadline = monotonic() + duration("wait", wait).total_seconds()
    if (messages := link.run(call)) or call.queue is None:
        return messages
    # PGMQ's own functions are there without ours.
    ahead = partial(link.run, functions.look_ahead(call.queue)) if call.native else None
    with announcements_of(listener, call.queue) as announced:
        return look_until(partial(link.run, call), bool, announced, deadline, poll_interval, ahead=ahead)


def look_until(
    look: Callable[[], Found],
    is_enough: Callable[[Found], bool],
    announced: Announcement,
    deadline: float,
    poll_interval: float,
    *,
    ahead: Callable[[], float | None] | None = None,
    heard_seconds: float | None = None,
) -> Found:
    """Look until what is found is enough, or the monotonic clock passes the deadline; return what was found.

    `ahead` returns the seconds until the next message becomes visible. While a connection listens, the pauses
    are `heard_seconds` long, if that is given.
    """
    polling = Polling(poll_interval)
    while True:
        # In this order: an announcement during the poll ends the next wait.
        announced.clear()
        if ahead is not None and polling.is_asking:
            polling.due = Due(ahead())
        result = look()
        remaining = deadline - monotonic()
        if is_enough(result) or remaining <= 0:
            return result
        pause = heard_seconds if heard_seconds is not None and announced.is_heard else polling.pause
        polling.paused(announced.wait(min(pause, remaining)))


def announcements_of(listener: Listener | None, queue: str) -> AbstractContextManager[Announcement]:
    """Return, for a block, an event that is set at announcements; without a listener it never is."""
    return nullcontext(Announcement()) if listener is None else listener.announcements(queue)


def channel_of(queue: str) -> str:
    """Return the channel that PGMQ notifies."""
    return f"pgmq.q_{folded(queue)}.INSERT"


class Listener:
    """One connection that listens for all waiting tasks, from the first wait until a while after the last.

    While no connection is available, waits only poll; that is logged once. It waits for messages, or for what
    `announce` announces, a call that returns the channel of a queue: for settlements.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Connection[Any]]],
        announce: Callable[[str, Seconds], SqlCall[str]] | None = None,
    ) -> None:
        self._connect = connect
        self._announce_call = announce
        self._events: dict[str, set[Announcement]] = {}
        self._lock = Lock()  # of _events and _job; held for no longer than a look
        self._job: BackgroundTask | None = None
        self._wanted = Event()
        self._stopped = Event()
        self._outage = Outage()
        self._warned = False

    @contextmanager
    def announcements(self, queue: str) -> Iterator[Announcement]:
        """Yield an event that is set when a message of the queue is announced, and when listening begins.

        Clear it, poll for messages, and wait for it: in this order, and at most for a poll interval. Senders
        notify while a task is in its `wait`: the event may be kept while messages are processed.
        """
        name = folded(queue)
        event = Announcement()
        with self._lock:
            self._events.setdefault(name, set()).add(event)
            if self._job is None and not self._stopped.is_set():
                self._job = BackgroundTask(self._run, "spanmq listener")
        self._wanted.set()
        try:
            yield event
        finally:
            with self._lock:
                self._events[name].discard(event)
                if not self._events[name]:
                    del self._events[name]

    def stop(self) -> None:
        """Stop listening; waiting tasks continue to poll."""
        self._stopped.set()
        self._wanted.set()

    def join(self) -> None:
        """Wait until it has stopped."""
        if (job := self._job) is not None:
            job.join()

    def _run(self) -> None:
        while True:
            try:
                with self._connect() as connection:
                    self._listen(connection)
            except (psycopg.Error, *BROKEN) as error:
                # The client that closes ends the connection.
                if not self._warned and not self._stopped.is_set():
                    name = type(error).__name__
                    logger.warning(
                        "listening_failed error_class=%s error=%r; polling goes on", name, str(error)
                    )
                self._warned = True
                self._stopped.wait(self._outage.failed())
            with self._lock:
                if self._stopped.is_set() or not self._events:
                    self._job = None
                    return

    def _listen(self, connection: Connection[Any]) -> None:
        channels: Bell | Channels = Bell(connection)
        if self._announce_call is not None:
            channels = Channels(connection, self._announce_call)
        try:
            while not self._stopped.is_set():
                self._wanted.clear()
                with self._lock:
                    # A queue that is new here has just been waited for, or is about to be.
                    queues = [
                        name
                        for name, events in self._events.items()
                        if channels.is_new(name) or any(event.is_awaited() for event in events)
                    ]
                    idle = not self._events
                try:
                    news = channels.attend(queues)
                except NotSupportedByUpstreamError:
                    channels = Channels(connection, None)
                    continue
                self._outage.end()
                # Messages between the last poll and this point were not announced: poll again.
                for name in news:
                    self._announce(name)
                self._tell(channels.is_heard)
                if idle:
                    if not self._wanted.wait(LINGER_SECONDS):
                        return
                    continue
                for notification in connection.notifies(timeout=SLICE_SECONDS):
                    self._announce(channels.queue_of(notification))
        finally:
            self._tell(False)
            if not connection.closed:  # it may go back to a pool
                connection.execute("unlisten *")

    def _announce(self, name: str) -> None:
        with self._lock:
            for event in self._events.get(name, ()):
                event.set()

    def _tell(self, is_heard: bool) -> None:
        with self._lock:
            for events in self._events.values():
                for event in events:
                    event.is_heard = is_heard


class Bell:
    """The registration of one connection as a listener for messages: sends wake it, or another listener."""

    is_heard = False

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self._registration = Registration()
        self._queues: set[str] = set()
        self._channel: str | None = None  # to which the connection listens
        self._poll_at = float("-inf")
        self._is_rung = False

    def is_new(self, queue: str) -> bool:
        """Return whether a queue is not registered yet."""
        return queue not in self._queues

    def queue_of(self, notification: psycopg.Notify) -> str:
        """Return the queue with a message."""
        self._is_rung = True
        return self._registration.names.get(int(notification.payload), "")

    def attend(self, queues: list[str]) -> list[str]:
        """Announce that tasks wait for these queues; return those to poll now.

        Raises NotSupportedByUpstreamError for upstream PGMQ.
        """
        now = monotonic()
        is_new = any(map(self.is_new, queues))
        registration = self._registration
        if is_new or (queues and registration.is_due):
            self._register([*self._queues.union(queues)])
        if self._channel is None:
            return []
        unwanted = [number for number, name in registration.names.items() if name not in queues]
        if not queues:
            if self._is_rung or self._poll_at > float("-inf"):
                # The task that was woken has left, or nothing waits any more: other processes may.
                self._is_rung, self._poll_at = False, float("-inf")
                self._run(registration.pass_on(unwanted, is_busy=True))
            return []
        if not (self._is_rung or is_new or now >= self._poll_at):
            return []
        # After a ring, too: another sender that saw this process being woken did not wake it again.
        self._is_rung, self._poll_at = False, now + AWAIT_SECONDS / 3
        polled = self._run(registration.poll())
        if polled is None or polled.ready is None:
            registration.forget()
            return queues
        if passed := [number for number in polled.ready if number in unwanted]:
            self._run(registration.pass_on(passed))
        return [*queues] if is_new else registration.queues(polled.ready)

    def wait(self, queues: list[str], seconds: float) -> bool:
        """Wait until one of these queues has a message; return False if one may have come before senders knew.

        Raises what `attend` raises, and ConnectionLostError.
        """
        if self.attend(queues):
            return False
        try:
            for notification in self._connection.notifies(timeout=max(seconds, 0.0), stop_after=1):
                self.queue_of(notification)
        except psycopg.Error as error:
            raise typed(error, self._connection) from error
        return True

    def _register(self, queues: list[str]) -> None:
        self._queues.update(queues)
        registration = self._registration
        registration.again_at = monotonic() + RETRY_SECONDS
        awaited = self._run(registration.register(queues))
        if awaited is None:
            return
        registration.registered(awaited)
        if (channel := registration.channel) != self._channel:
            self._connection.execute("unlisten *")
            if channel is not None:
                self._connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
        self._channel = channel
        self.is_heard = channel is not None

    def _run(self, call: SqlCall[Found]) -> Found | None:
        """Run a call; return None if the server refuses it, which a receive will say in other words."""
        try:
            return execute(self._connection, call, relaxed=True)
        except BROKEN:
            raise
        except SpanmqError as error:
            if is_missing_function(error, call):
                raise missing("upstream", call) from error
            return None


def hear(
    connect: Callable[[], AbstractContextManager[Connection[Any]]],
    channel: str,
    on_ring: Callable[[int | None], None],
) -> None:
    """Listen to the channel of a listener until cancelled.

    `on_ring` is called with None as soon as the connection listens, then with the id of each queue of which a
    send wakes this listener. Raises ConnectionFailedError or ConnectionLostError.
    """
    with connect() as connection:
        try:
            connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
            on_ring(None)
            while True:
                for notification in connection.notifies(timeout=HEARTBEAT_SECONDS):
                    on_ring(_number_of(notification.payload))
                # Nothing else would notice a server that is gone.
                connection.execute("select")
        except psycopg.Error as error:
            raise typed(error, connection) from error


def _number_of(payload: str) -> int:
    """Return the id in a notification, 0 for anything else: every role may notify."""
    try:
        return int(payload)
    except ValueError:
        return 0


class Channels:
    """The channels that one connection listens to, one for each queue, and until when it has announced that.

    Without `announce` these are PGMQ's.
    """

    def __init__(
        self, connection: Connection[Any], announce: Callable[[str, Seconds], SqlCall[str]] | None
    ) -> None:
        self._connection = connection
        self._announce_call = announce
        self._queues: dict[str, str] = {}  # by channel
        self._awaited_until: dict[str, float] = {}

    @property
    def is_heard(self) -> bool:
        """Return whether every message, or settlement, is announced."""
        return self._announce_call is not None

    def is_new(self, queue: str) -> bool:
        """Return whether no announcement has been made for a queue yet."""
        return queue not in self._awaited_until

    def queue_of(self, notification: psycopg.Notify) -> str:
        """Return the queue of a channel."""
        return self._queues.get(notification.channel, "")

    def attend(self, queues: list[str]) -> list[str]:
        """Listen and announce it, unless that was done a moment ago; return the queues that are new to senders."""
        return [queue for queue in queues if self._attend(queue)]

    def _attend(self, queue: str) -> bool:
        until = self._awaited_until.get(queue, 0.0)
        now = monotonic()
        if until - now > AWAIT_SECONDS * 2 / 3:
            return False
        self._awaited_until[queue] = now + AWAIT_SECONDS
        channel = channel_of(queue)
        if self._announce_call is not None:
            call = self._announce_call(queue, AWAIT_SECONDS)
            try:
                # The first call only returns the channel: nothing listens yet.
                channel = execute(self._connection, call, relaxed=True)
                if channel not in self._queues:
                    self._hear(queue, channel)
                    execute(self._connection, call, relaxed=True)
            except BROKEN:
                raise
            except SpanmqError as error:
                # Upstream PGMQ, or a schema of an older release; else the poll says what is wrong.
                if is_missing_function(error, call):
                    self._announce_call = None
                self._awaited_until[queue] = now + RETRY_SECONDS
                channel = channel_of(queue)
        if self._announce_call is not None:
            return until < now
        if channel in self._queues:
            return False
        self._hear(queue, channel)
        return True

    def _hear(self, queue: str, channel: str) -> None:
        self._connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
        self._queues[channel] = queue
