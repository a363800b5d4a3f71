# Generated from src/spanmq/client/_async/listener.py by tools/generate_sync.py: change that file.

"""Waiting for messages: in the client, not in a statement, which would hold a snapshot and a connection.

A waiting receiver announces itself in the database, and a sender that sees this notifies it. A wait ends with
a notification or with the next poll. Polls continue in any case, because a sender that checked too early does
not notify; and one is made when the next delayed message, retry or lease becomes due. See
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

from spanmq.client import calls
from spanmq.client._sync.connection import Link, execute
from spanmq.client.call import Call, Seconds, duration, is_missing_function
from spanmq.client.concurrency import AHEAD_SECONDS, FIRST_POLL_SECONDS, Due, Event, Job
from spanmq.errors import ConnectionFailedError, ConnectionLostError, SpanmqError
from spanmq.model import Message

logger = logging.getLogger("spanmq")

# How long a new queue's LISTEN may wait for the connection: psycopg's wait cannot be interrupted.
SLICE_SECONDS: Final = 0.1
# How long an announcement of a waiting receiver is valid; it is repeated when a third of the time is over.
AWAIT_SECONDS: Final = 30.0
# After the last waiter the connection is kept for the next one.
LINGER_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 5.0

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
    call: Call[list[Message]],
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
    ahead = partial(link.run, calls.look_ahead(call.queue)) if call.native else None
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
    interval = FIRST_POLL_SECONDS
    is_announced = False
    while True:
        # In this order: an announcement during the poll ends the next wait.
        announced.clear()
        due = Due()
        if ahead is not None and interval >= AHEAD_SECONDS and not is_announced:
            due = Due(ahead())
        found = look()
        remaining = deadline - monotonic()
        if is_enough(found) or remaining <= 0:
            return found
        pause = heard_seconds if heard_seconds is not None and announced.is_heard else due.within(interval)
        is_announced = announced.wait(min(pause, remaining))
        interval = min(interval * 2, poll_interval)


def announcements_of(listener: Listener | None, queue: str) -> AbstractContextManager[Announcement]:
    """Return, for a block, an event that is set at announcements; without a listener it never is."""
    return nullcontext(Announcement()) if listener is None else listener.announcements(queue)


def channel_of(queue: str) -> str:
    """Return the channel that PGMQ notifies."""
    return f"pgmq.q_{queue.lower()}.INSERT"


class Listener:
    """One connection that listens for all waiting tasks, from the first wait until a while after the last.

    While no connection is available, waits only poll; that is logged once. `announce` is the call that
    announces a waiting receiver and returns the channel: for messages, or for settlements.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Connection[Any]]],
        announce: Callable[[str, Seconds], Call[str]] = calls.await_messages,
    ) -> None:
        self._connect = connect
        self._announce_call = announce
        self._events: dict[str, set[Announcement]] = {}
        self._lock = Lock()  # of _events and _job; held for no longer than a look
        self._job: Job | None = None
        self._wanted = Event()
        self._stopped = Event()
        self._warned = False

    @contextmanager
    def announcements(self, queue: str) -> Iterator[Announcement]:
        """Yield an event that is set when a message of the queue is announced, and when listening begins.

        Clear it, poll for messages, and wait for it: in this order, and at most for a poll interval. Senders
        notify while a task is in its `wait`: the event may be kept while messages are processed.
        """
        name = queue.lower()
        event = Announcement()
        with self._lock:
            self._events.setdefault(name, set()).add(event)
            if self._job is None and not self._stopped.is_set():
                self._job = Job(self._run, "spanmq listener")
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
            except (psycopg.Error, ConnectionFailedError, ConnectionLostError) as error:
                if not self._warned:
                    name = type(error).__name__
                    logger.warning(
                        "listening_failed error_class=%s error=%r; polling goes on", name, str(error)
                    )
                self._warned = True
                self._stopped.wait(RETRY_SECONDS)
            with self._lock:
                if self._stopped.is_set() or not self._events:
                    self._job = None
                    return

    def _listen(self, connection: Connection[Any]) -> None:
        channels = Channels(connection, self._announce_call)
        try:
            while not self._stopped.is_set():
                self._wanted.clear()
                with self._lock:
                    # A queue that is new here has just been waited for, or is about to be.
                    wanted = [
                        name
                        for name, events in self._events.items()
                        if channels.is_new(name) or any(event.is_awaited() for event in events)
                    ]
                    idle = not self._events
                for name in wanted:
                    if channels.attend(name):
                        # Messages between the last poll and this point were not announced: poll again.
                        self._announce(name)
                self._tell(channels.is_native)
                if idle:
                    if not self._wanted.wait(LINGER_SECONDS):
                        return
                    continue
                for notification in connection.notifies(timeout=SLICE_SECONDS):
                    self._announce(channels.queue_of(notification.channel))
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


class Channels:
    """What one connection listens to, and until when it has said so."""

    def __init__(
        self,
        connection: Connection[Any],
        announce: Callable[[str, Seconds], Call[str]] = calls.await_messages,
    ) -> None:
        self._connection = connection
        self._announce_call = announce
        self._queues: dict[str, str] = {}  # by channel
        self._awaited_until: dict[str, float] = {}
        self.is_native = True

    def is_new(self, queue: str) -> bool:
        """Return whether no announcement has been made for a queue yet."""
        return queue not in self._awaited_until

    def queue_of(self, channel: str) -> str:
        """Return the queue of a channel."""
        return self._queues.get(channel, "")

    def attend(self, queue: str) -> bool:
        """Listen and announce it, unless that was done a moment ago; return whether senders did not know yet."""
        until = self._awaited_until.get(queue, 0.0)
        now = monotonic()
        if until - now > AWAIT_SECONDS * 2 / 3:
            return False
        self._awaited_until[queue] = now + AWAIT_SECONDS
        channel = channel_of(queue)
        if self.is_native:
            call = self._announce_call(queue, AWAIT_SECONDS)
            try:
                # The first call only returns the channel: nothing listens yet.
                channel = execute(self._connection, call, relaxed=True)
                if channel not in self._queues:
                    self._hear(queue, channel)
                    execute(self._connection, call, relaxed=True)
            except ConnectionLostError:
                raise
            except SpanmqError as error:
                # Upstream PGMQ, or a schema of an older release; else `receive` says what is wrong.
                self.is_native = not is_missing_function(error, call)
                self._awaited_until[queue] = now + RETRY_SECONDS
                channel = channel_of(queue)
        if self.is_native:
            return until < now
        if channel in self._queues:
            return False
        self._hear(queue, channel)
        return True

    def _hear(self, queue: str, channel: str) -> None:
        self._connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
        self._queues[channel] = queue
