"""The clients that send when the caller has no connection."""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from spanmq.client import AsyncClient, Client
from spanmq.client.environment import default_dsn
from spanmq.client.password import Password
from spanmq.codec.encryption import Encryption
from spanmq.errors import InvalidArgumentError


class Clients:
    """One client a process, one for each event loop."""

    def __init__(
        self, dsn: str | Callable[[], str] | None, place: Callable[[], Any] | None, options: Mapping[str, Any]
    ) -> None:
        self.dsn = dsn
        self._place = place
        self._options = {**options}
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._process = 0
        # Each belongs to an event loop, which alone can close it; `dsn` may change.
        self._async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Any, AsyncClient]] = (
            WeakKeyDictionary()
        )

    def address(self) -> str:
        """Return the DSN of the tasks, else the one that a client uses: SPANMQ_DSN or the embedded server."""
        return (self.dsn() if callable(self.dsn) else self.dsn) or default_dsn()

    @property
    def password(self) -> Password | None:
        """Return the function for passwords among the options of clients."""
        return self._options.get("password")

    @cached_property
    def encryption(self) -> Encryption | None:
        """Return the encryption that the environment asks for, as a worker does."""
        return Encryption.from_environment()

    def client(self) -> Client:
        """Return the client of this process."""
        with self._lock:
            if self._client is None or self._process != os.getpid():
                self._client = Client(self.address(), encryption=self.encryption, **self._options)
                self._process = os.getpid()
            return self._client

    async def async_client(self) -> AsyncClient:
        """Return the client of this event loop; close the one before if the DSN is another one now."""
        loop = asyncio.get_running_loop()
        dsn, before = self._async_clients.get(loop, (None, None))
        if before is not None and dsn == self.dsn:
            return before
        client = AsyncClient(self.address(), encryption=self.encryption, **self._options)
        self._async_clients[loop] = self.dsn, client
        if before is not None:
            await before.close()
        return client

    def of(self, connection: Any = None, session: Any = None) -> Client:
        """Return a client for the caller's transaction, else that of the process."""
        within = given(connection, session)
        if within is None and self._place is not None:
            within = self._place()
        if within is None:
            return self.client()
        return Client(connection=within, encryption=self.encryption)

    async def of_async(self, connection: Any = None, session: Any = None) -> AsyncClient:
        """Return a client for the caller's transaction, else that of the loop."""
        within = given(connection, session)
        if within is None:
            return await self.async_client()
        return AsyncClient(connection=within, encryption=self.encryption)

    def close(self) -> None:
        """Close the client of this process."""
        if self._client is not None and self._process == os.getpid():
            self._client.close()
        self._client = None

    async def close_async(self) -> None:
        """Close the client of this event loop."""
        _, client = self._async_clients.pop(asyncio.get_running_loop(), (None, None))
        if client is not None:
            await client.close()


def given(connection: Any, session: Any) -> Any:
    """Return the one of the two that the caller named, or None."""
    if connection is not None and session is not None:
        raise InvalidArgumentError("a task is sent through a connection or a session, not both")
    return session if connection is None else connection
