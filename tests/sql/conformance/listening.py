"""Listening without waiting for what does not come."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
from tests.patience import WAIT_SECONDS
from tests.sql.queue import Connection

SENTINEL = "listening_done"


class Listener:
    """A session that listens to channels; `heard()` gives what was sent since the last time."""

    def __init__(self, connection: Connection, channels: tuple[str, ...]) -> None:
        self._connection = connection
        for channel in (*channels, SENTINEL):
            connection.execute(b'listen "%s"' % channel.encode())

    def heard(self, sender: Connection) -> list[tuple[str, str]]:
        """Return (channel, payload) of all that was committed before this call, oldest first.

        The sender's sentinel comes after all of it: notifications arrive in the order of commits.
        """
        # Other listeners hear it, too.
        own = uuid4().hex
        sender.execute("select pg_notify(%s, %s)", [SENTINEL, own])
        heard: list[tuple[str, str]] = []
        for notification in self._connection.notifies(timeout=WAIT_SECONDS):
            if notification.payload == own:
                return heard
            if notification.channel != SENTINEL:
                heard.append((notification.channel, notification.payload))
        raise AssertionError(f"the sentinel did not come within {WAIT_SECONDS:g} s")


@contextmanager
def listening(dsn: str, *channels: str) -> Iterator[Listener]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield Listener(connection, channels)
