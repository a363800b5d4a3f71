"""The clients that send when the caller has no connection."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import isawaitable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from spanmq.client import AsyncClient, Client
from spanmq.client.environment import default_dsn
from spanmq.client.password import Password
from spanmq.codec.encryption import Encryption
from spanmq.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class LoopClient:
    """A client of an event loop, which alone can close it: that is the rest of the generator `end`."""

    dsn: Any
    client: AsyncClient
    end: AsyncGenerator[None, None]


class Clients:
    """One client a process, one for each event loop, closed when the loop ends."""

    def __init__(
        self, dsn: str | Callable[[], str] | None, place: Callable[[], Any] | None, options: Mapping[str, Any]
    ) -> None:
        self.dsn = dsn
        self._place = place
        self._options = {**options}
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._process = 0

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
        of_loop = _clients_of(asyncio.get_running_loop())
        before = of_loop.get(self)
        if before is not None and before.dsn == self.dsn:
            return before.client
        # Of psycopg.
        connections: WeakSet[Any] = WeakSet()
        on_connect = self._options.get("on_connect")

        async def connected(connection: Any) -> None:
            connections.add(connection)
            if on_connect is not None and isawaitable(result := on_connect(connection)):
                await result

        options = {**self._options, "on_connect": connected}
        client = AsyncClient(self.address(), encryption=self.encryption, **options)
        end = _closing(client, connections)
        of_loop[self] = LoopClient(self.dsn, client, end)
        # From here on the loop knows it, and runs the rest of it when it shuts down.
        await anext(end)
        if before is not None:
            await before.end.aclose()
        return client

    def of(self, connection: Any = None, session: Any = None) -> Client:
        """Return a client for the caller's transaction, else that of the process."""
        within = one_of(connection, session)
        if within is None and self._place is not None:
            within = self._place()
        if within is None:
            return self.client()
        return Client(connection=within, encryption=self.encryption)

    async def of_async(self, connection: Any = None, session: Any = None) -> AsyncClient:
        """Return a client for the caller's transaction, else that of the loop."""
        within = one_of(connection, session)
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
        if (own := _clients_of(asyncio.get_running_loop()).pop(self, None)) is not None:
            await own.end.aclose()


def _clients_of(loop: asyncio.AbstractEventLoop) -> WeakKeyDictionary[Clients, LoopClient]:
    """Return the clients of a loop, which refer to it: only the loop itself may refer to them."""
    clients: WeakKeyDictionary[Clients, LoopClient] = vars(loop).setdefault(
        "_spanmq_clients", WeakKeyDictionary()
    )
    return clients


async def _closing(client: AsyncClient, connections: WeakSet[Any]) -> AsyncGenerator[None, None]:
    """Close a client when the loop shuts down its asynchronous generators, as `asyncio.run` does at its end."""
    try:
        yield
    finally:
        try:
            await client.close()
        finally:
            # When the loop has cancelled the tasks of the pool, it closes no connection.
            for connection in connections:
                await connection.close()


def one_of(connection: Any, session: Any) -> Any:
    """Return the one of the two that the caller named, or None."""
    if connection is not None and session is not None:
        raise InvalidArgumentError("a task is sent through a connection or a session, not both")
    return session if connection is None else connection
