"""The client of a connection of kombu, or of a result backend."""

import os
from collections.abc import Mapping
from typing import Any

from spanmq.client import Client
from spanmq.client.environment import default_dsn


class BrokerSession:
    """A client for each process, because Celery's workers fork; it connects when it is first used.

    `url` is the broker's: after `spanmq://` it goes on as `postgresql://` does. With nothing after it the DSN is that
    of any client. `options` are the transport's: `connection`, of the caller's transaction, `pool_size`, `pooler`.
    """

    def __init__(self, url: str | None, options: Mapping[str, Any]) -> None:
        self._rest = (url or "").partition("://")[2]
        self._options = options
        self._clients: dict[int, Client] = {}
        self.is_joined = options.get("connection") is not None
        self.can_listen = not (self.is_joined or options.get("pooler"))

    @property
    def dsn(self) -> str:
        """The DSN of the database."""
        return f"postgresql://{self._rest}" if self._rest else default_dsn()

    @property
    def client(self) -> Client:
        """The client of this process; after `close` another one, for acks of tasks that still run."""
        # Without a lock, which another thread may hold at a fork: a second client has not connected.
        process = os.getpid()
        return self._clients.get(process) or self._clients.setdefault(process, self._new())

    def close(self) -> None:
        """Close the client of this process."""
        if (client := self._clients.pop(os.getpid(), None)) is not None:
            client.close()

    def _new(self) -> Client:
        if self.is_joined:
            return Client(connection=self._options["connection"])
        pool_size, pooler = int(self._options.get("pool_size", 10)), bool(self._options.get("pooler"))
        # It does not listen: the upkeep does, on one connection for all queues.
        return Client(self.dsn, pool_size=pool_size, timeout=5.0, pooler=pooler, listen=False)
