"""The client of a connection of kombu, or of a result backend."""

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from spanmq.client import Client
from spanmq.client.environment import default_dsn

Result = TypeVar("Result")


class Session:
    """A client that connects when it is first used, anew in a process that was forked since.

    `url` is the broker's, `spanmq://` and what follows `postgresql://` in a DSN; with nothing after it the DSN is
    that of any client. `options` are the transport's.
    """

    def __init__(self, url: str | None, options: Mapping[str, Any]) -> None:
        self._rest = (url or "").partition("://")[2]
        self._connection = options.get("connection")
        self._pooler = bool(options.get("pooler"))
        self._pool_size = int(options.get("pool_size", 10))
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._process = 0
        # Of parent processes: at their end they would wait for threads that are not in this one.
        self._inherited: list[Client | None] = []
        self._is_closed = False

    @property
    def is_joined(self) -> bool:
        """Whether it is part of the caller's transaction."""
        return self._connection is not None

    @property
    def can_listen(self) -> bool:
        """Whether notifications can reach it."""
        return not self._pooler and not self.is_joined

    @property
    def dsn(self) -> str:
        """The DSN, without an extra of its own that of any client."""
        return f"postgresql://{self._rest}" if self._rest else default_dsn()

    @property
    def client(self) -> Client:
        """The client of this process."""
        if self._client is not None and self._process == os.getpid():
            return self._client
        if self._process not in {0, os.getpid()}:
            # Another thread may have had it at the fork.
            self._lock = threading.Lock()
        with self._lock:
            if self._client is None or self._process != os.getpid():
                self._inherited.append(self._client)
                self._client = self._new(self._pool_size)
                self._process = os.getpid()
            return self._client

    def late(self, function: Callable[[Client], Result]) -> Result:
        """Run a function with the client, or with one for this call after the end of the session."""
        if not self._is_closed:
            return function(self.client)
        with self._new(1) as client:
            return function(client)

    def close(self) -> None:
        """Close the client."""
        self._is_closed = True
        if self._client is not None and self._process == os.getpid() and not self.is_joined:
            self._client.close()

    def _new(self, pool_size: int) -> Client:
        if self._connection is not None:
            return Client(connection=self._connection)
        # The watch listens: one connection for all queues.
        return Client(self.dsn, pool_size=pool_size, listen=False, pooler=self._pooler)
