# Generated from src/spanmq/client/_async/listener.py by tools/generate_sync.py: change that file.

"""Waiting for messages: in the client, never in a statement, which would pin a snapshot and a connection.

Who waits says so in the database, and a sender that sees it notifies. A wait ends there, or else at the next
look: looks go on either way, for a sender that looked too early announces nothing; and there is one when the
next delayed message, retry or lease falls due. See docs/internals/wake-up.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Final

import psycopg
from psycopg import Connection, sql

from spanmq.client import calls
from spanmq.client._sync.connection import Link, execute
from spanmq.client.call import Call, Seconds, duration, is_missing_function
from spanmq.client.concurrency import Event, Job
from spanmq.errors import ConnectionFailedError, ConnectionLostError, SpanmqError
from spanmq.model import Message

logger = logging.getLogger("spanmq")

# The first look follows soon, when the server's throttle of notifications is over, each further one after
# twice the time, up to the client's interval.
FIRST_POLL_SECONDS: Final = 0.005
# Who has to wait so long asks first when something falls due; a shorter wait is as good as the answer.
AHEAD_SECONDS: Final = 0.1
# And then it waits so long at least: what is due may be what another holds this instant.
DUE_SECONDS_MIN: Final = 0.001
# How long a new queue's LISTEN may wait for its turn on the connection: psycopg's wait can't be interrupted.
SLICE_SECONDS: Final = 0.1
# That somebody waits is said for so long, and again when a third of it is over.
AWAIT_SECONDS: Final = 30.0
# After the last waiter the connection is kept for the next one.
LINGER_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 5.0


class Announcement:
    """An event that knows whether somebody waits for it; while nobody does, senders need not notify.

    `is_heard` says whether a connection listens: else only looking finds a message.
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
        """Let `wait` wait again."""
        self._event.clear()

    def is_set(self) -> bool:
        """Tell whether `set` was called last."""
        return self._event.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until set, at most so many seconds; tell whether it is set."""
        self._waiting += 1
        try:
            return self._event.wait(seconds)
        finally:
            self._waiting -= 1
            self._woke_at = monotonic()

    def is_awaited(self) -> bool:
        """Tell whether somebody waits, or did a moment ago."""
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
    receive = partial(link.run, call)
    # PGMQ's own functions are there without ours.
    ahead = partial(link.run, calls.look_ahead(call.queue)) if call.native else None
    if listener is None:
        return receive_until(receive, Announcement(), deadline, poll_interval, ahead)
    with listener.announcements(call.queue) as announced:
        return receive_until(receive, announced, deadline, poll_interval, ahead)


def receive_until(
    receive: Callable[[], list[Message]],
    announced: Announcement,
    deadline: float,
    poll_interval: float,
    ahead: Callable[[], float | None] | None = None,
) -> list[Message]:
    """Receive until something comes or the monotonic clock passes the deadline.

    `ahead` tells in how many seconds something falls due.
    """
    interval = FIRST_POLL_SECONDS
    is_announced = False
    while True:
        # In this order: what is announced during the look ends the next wait.
        announced.clear()
        due = Due()
        if ahead is not None and interval >= AHEAD_SECONDS and not is_announced:
            due = Due(ahead())
        messages = receive()
        remaining = deadline - monotonic()
        if messages or remaining <= 0:
            return messages
        is_announced = announced.wait(min(due.within(interval), remaining))
        interval = min(interval * 2, poll_interval)


class Due:
    """When something falls due, which was asked before the look for messages: what came between is found."""

    __slots__ = ("_at",)

    def __init__(self, seconds: float | None = None) -> None:
        self._at = float("inf") if seconds is None else monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Tell whether it has fallen due."""
        return self._at <= monotonic()

    def within(self, seconds: float) -> float:
        """Give so many seconds, or fewer: those until then."""
        return min(seconds, max(self._at - monotonic(), DUE_SECONDS_MIN))


def channel_of(queue: str) -> str:
    """Give the channel that PGMQ notifies."""
    return f"pgmq.q_{queue.lower()}.INSERT"


class Listener:
    """One connection that listens for all who wait, from the first wait until a while after the last.

    While it can't be had, waits are polls and nothing else; that is logged once. `announce` is the call that
    says that somebody waits, and returns the channel: for messages, or for settlements.
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
        """Give an event that is set when a message of the queue is announced, and when listening begins.

        Clear it, look for messages, and wait for it: in this order, and never longer than a poll's interval.
        Senders announce while somebody is in its `wait`: it may be kept through times of work.
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
        """Stop listening; who still waits goes on polling."""
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
                        # What came between the last look and this was announced to nobody: look again.
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
        """Tell whether nothing has been said about a queue yet."""
        return queue not in self._awaited_until

    def queue_of(self, channel: str) -> str:
        """Give the queue that a channel is of."""
        return self._queues.get(channel, "")

    def attend(self, queue: str) -> bool:
        """Listen and say so, unless that was done a moment ago; tell whether senders did not know."""
        until = self._awaited_until.get(queue, 0.0)
        now = monotonic()
        if until - now > AWAIT_SECONDS * 2 / 3:
            return False
        self._awaited_until[queue] = now + AWAIT_SECONDS
        channel = channel_of(queue)
        if self.is_native:
            call = self._announce_call(queue, AWAIT_SECONDS)
            try:
                # The first time only to learn the channel: nobody listens yet.
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

    def look_ahead(self, queue: str) -> float | None:
        """Ask in how many seconds something of the queue falls due; None: nothing that is known of."""
        return execute(self._connection, calls.look_ahead(queue)) if self.is_native else None

    def _hear(self, queue: str, channel: str) -> None:
        self._connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
        self._queues[channel] = queue
