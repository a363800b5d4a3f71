"""Waiting for messages: in the client, never in a statement, which would pin a snapshot and a connection.

A wait ends at the queue's NOTIFY, if the queue announces its messages, and else at the next poll. Polls go
on either way: a delayed message, a lease that ran out and whatever came within the throttle's interval are
announced by nobody.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from threading import Lock
from time import monotonic
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, sql

from spanmq.concurrency import AsyncEvent, AsyncJob
from spanmq.errors import ConnectionFailedError
from spanmq.message import Message

logger = logging.getLogger("spanmq")

# The first poll follows soon, each further one after twice the time, up to the client's interval.
FIRST_POLL_SECONDS: Final = 0.01
# How long a new queue's LISTEN may wait for its turn on the connection: psycopg's wait can't be interrupted.
SLICE_SECONDS: Final = 0.1
# After the last waiter the connection is kept for the next one.
LINGER_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 5.0


async def receive_until(
    receive: Callable[[], Awaitable[list[Message]]],
    announced: AsyncEvent,
    deadline: float,
    poll_interval: float,
) -> list[Message]:
    """Receive until something comes or the monotonic clock passes the deadline."""
    interval = FIRST_POLL_SECONDS
    while True:
        # In this order: what is announced during the look ends the next wait.
        announced.clear()
        messages = await receive()
        remaining = deadline - monotonic()
        if messages or remaining <= 0:
            return messages
        await announced.wait(min(interval, remaining))
        interval = min(interval * 2, poll_interval)


def channel_of(queue: str) -> str:
    """Give the channel that PGMQ notifies."""
    return f"pgmq.q_{queue.lower()}.INSERT"


class AsyncListener:
    """One connection that listens for all who wait, from the first wait until a while after the last.

    While it can't be had, waits are polls and nothing else; that is logged once.
    """

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[AsyncConnection[Any]]]) -> None:
        self._connect = connect
        self._events: dict[str, set[AsyncEvent]] = {}
        self._lock = Lock()  # of _events and _job; held for no longer than a look
        self._job: AsyncJob | None = None
        self._wanted = AsyncEvent()
        self._stopped = AsyncEvent()
        self._warned = False

    @asynccontextmanager
    async def announcements(self, queue: str) -> AsyncIterator[AsyncEvent]:
        """Give an event that is set when a message of the queue is announced, and when listening begins."""
        channel = channel_of(queue)
        event = AsyncEvent()
        with self._lock:
            self._events.setdefault(channel, set()).add(event)
            if self._job is None and not self._stopped.is_set():
                self._job = AsyncJob(self._run, "spanmq listener")
        self._wanted.set()
        try:
            yield event
        finally:
            with self._lock:
                self._events[channel].discard(event)
                if not self._events[channel]:
                    del self._events[channel]

    def stop(self) -> None:
        """Stop listening; who still waits goes on polling."""
        self._stopped.set()
        self._wanted.set()

    async def join(self) -> None:
        """Wait until it has stopped."""
        if (job := self._job) is not None:
            await job.join()

    async def _run(self) -> None:
        while True:
            try:
                async with self._connect() as connection:
                    await self._listen(connection)
            except (psycopg.Error, ConnectionFailedError) as error:
                if not self._warned:
                    logger.warning("listening_failed error=%s; polling goes on", error)
                self._warned = True
                await self._stopped.wait(RETRY_SECONDS)
            with self._lock:
                if self._stopped.is_set() or not self._events:
                    self._job = None
                    return

    async def _listen(self, connection: AsyncConnection[Any]) -> None:
        heard: set[str] = set()
        try:
            while not self._stopped.is_set():
                self._wanted.clear()
                with self._lock:
                    channels = [channel for channel in self._events if channel not in heard]
                    idle = not self._events
                for channel in channels:
                    await connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
                    heard.add(channel)
                    # What came between the last look and this was announced to nobody: look again.
                    self._announce(channel)
                if idle and not await self._wanted.wait(LINGER_SECONDS):
                    return
                async for notification in connection.notifies(timeout=SLICE_SECONDS):
                    self._announce(notification.channel)
        finally:
            if not connection.closed:  # it may go back to a pool
                await connection.execute("unlisten *")

    def _announce(self, channel: str) -> None:
        with self._lock:
            for event in self._events.get(channel, ()):
                event.set()
