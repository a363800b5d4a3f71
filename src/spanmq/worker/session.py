"""The worker's connection to the database: clients that are replaced when the server does not answer."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from spanmq.client import AsyncClient, Client
from spanmq.client.dsn import Timeouts
from spanmq.client.outage import Outage
from spanmq.client.password import Password
from spanmq.codec.body import Codec, Decoder
from spanmq.codec.encryption import Encryption
from spanmq.errors import ConnectionFailedError, ConnectionLostError, SpanmqError
from spanmq.model import Leased
from spanmq.worker.event import ConnectionBroken, ConnectionRestored, EventBus
from spanmq.worker.inbox import Inbox

logger = logging.getLogger("spanmq.worker")

FIRST_RETRY_SECONDS: Final = 0.05
RETRY_SECONDS_MAX: Final = 5.0
# A pool without a free connection for this time is replaced.
POOL_SECONDS: Final = 5.0
# How long a stop waits for what was cancelled, if the server does not confirm it.
LEFTOVER_SECONDS: Final = 3.0

Result = TypeVar("Result")
ClientCall = Callable[[AsyncClient], Awaitable[Result]]


def backoff(attempt: int) -> float:
    """Return the seconds before a call that the server refused is repeated, with jitter."""
    longest = min(FIRST_RETRY_SECONDS * 2.0 ** min(attempt, 20), RETRY_SECONDS_MAX)
    return random.uniform(0.2, 1.0) * longest


@dataclass(eq=False, kw_only=True)
class Session:
    """Provides a working client, and replaces it when it fails.

    Its connections are closed when a server is silent for the time that `timeouts` say.
    """

    # It may hold a password, and psycopg logs what a callback belongs to.
    dsn: str = field(repr=False)
    timeouts: Timeouts
    decoder: Decoder
    pool_size: int
    threads: int
    pooler: bool
    password: Password | None
    bus: EventBus
    inbox: Inbox
    # The name of the server, if the queue is sharded.
    server: str | None = None

    def __post_init__(self) -> None:
        """Begin without a connection."""
        self._encryption = Encryption.from_environment()
        self.codec = Codec(decoder=self.decoder, encryption=self._encryption)
        self._client: AsyncClient | None = None
        self._thread_client: Client | None = None
        self._mending: asyncio.Task[None] | None = None
        self._is_whole = asyncio.Event()
        self._leftovers: set[asyncio.Future[Any]] = set()
        self._outage = Outage()
        # A queue that is received from: used to warm up new sessions.
        self._queue: str | None = None

    def warm_for(self, queue: str) -> None:
        """Make new sessions ready for this queue, which is received from."""
        self._queue = queue

    async def start(self) -> None:
        """Connect; raises ConnectionFailedError if no server answers."""
        await self._install(await self._connect())

    async def stop(self) -> None:
        """Close all clients."""
        if self._mending is not None:
            self._mending.cancel()
            await asyncio.wait([self._mending])
        self._is_whole.clear()
        await self._discard()
        if self._leftovers:
            await asyncio.wait(self._leftovers, timeout=LEFTOVER_SECONDS)

    async def client(self) -> AsyncClient:
        """Return the client, as soon as there is one that works."""
        while self._client is None:
            await self._is_whole.wait()
        return self._client

    def thread_client(self) -> Client:
        """Return the client for plain functions that take a connection."""
        if self._thread_client is None:
            raise ConnectionFailedError("the worker has no connection now")
        return self._thread_client

    async def run(self, call: ClientCall[Result]) -> Result:
        """Make one call with a working client; raises the call's errors."""
        client = await self.client()
        task = asyncio.ensure_future(call(client))
        try:
            # A task of its own: a cancellation that comes together with the pool's connection is lost in it, in
            # asyncio.wait_for of Python 3.11.
            await asyncio.wait([task])
        except asyncio.CancelledError:
            self._keep(task)
            task.cancel()
            self._keep(task)
            raise
        try:
            return task.result()
        except (ConnectionFailedError, ConnectionLostError) as lost:
            self.broken(client, lost)
            raise

    def broken(self, client: AsyncClient, error: BaseException) -> None:
        """Replace this client, unless that is done or under way."""
        if client is self._client:
            self._client = None
            self._is_whole.clear()
            self._mending = self.inbox.begin(self._mend(client, error), "reconnecting")

    async def _mend(self, old: AsyncClient, error: BaseException) -> None:
        self._keep(asyncio.ensure_future(old.close(abandon=True)))
        attempt = 0
        while True:
            if pause := self._outage.failed():
                self.bus.emit(ConnectionBroken(" ".join(str(error).split()), pause, self.server))
                await asyncio.sleep(pause)
            attempt += 1
            try:
                client = await self._connect()
            except SpanmqError as again:
                # Any: a database that is being restored has no schema yet, or lacks a right.
                error = again
                continue
            await self._install(client)
            self._outage.end()
            self.bus.emit(ConnectionRestored(attempt, self.server))
            return

    async def _connect(self) -> AsyncClient:
        client = AsyncClient(
            self.dsn,
            decoder=self.decoder,
            encryption=self._encryption,
            pool_size=self.pool_size,
            maintain_interval=1.0,
            timeout=POOL_SECONDS,
            pooler=self.pooler,
            password=self.password,
            timeouts=self.timeouts,
            on_connect=None if self.pooler else self._warm,
        )
        try:
            # Includes the first call: a pooler answers before its server does.
            await client.open()
            await client.admin.version()
        except BaseException:
            self._keep(asyncio.ensure_future(client.close(abandon=True)))
            raise
        return client

    async def _warm(self, connection: object) -> None:
        """Make the first calls of a new session before a message waits for them.

        A session compiles each function at its first call: 6 ms of CPU for a receive, then 0.4 ms.
        """
        async with AsyncClient(connection=connection) as client:
            with suppress(SpanmqError):  # for example, the queue was dropped: not an error of the connection
                if self._queue is not None:
                    await client.receive(self._queue, 0)
                    await client.ack(Leased(self._queue, 1, []))

    async def _install(self, client: AsyncClient) -> None:
        before = self._thread_client
        if self.threads:
            self._thread_client = Client(
                self.dsn,
                decoder=self.decoder,
                encryption=self._encryption,
                pool_size=self.threads,
                timeout=POOL_SECONDS,
                listen=False,
                pooler=self.pooler,
                password=self.password,
                timeouts=self.timeouts,
            )
        self._client = client
        self._is_whole.set()
        if before is not None:
            # The calls of handlers that have begun there may still end.
            self._keep(asyncio.ensure_future(asyncio.to_thread(before.close)))

    async def _discard(self) -> None:
        client, thread_client = self._client, self._thread_client
        self._client = self._thread_client = None
        if client is not None:
            await client.close(abandon=True)
        if thread_client is not None:
            await asyncio.to_thread(thread_client.close, abandon=True)

    def _keep(self, future: asyncio.Future[Any]) -> None:
        """Keep a reference until the future ends, and retrieve its error so that asyncio does not log it."""

        def ended(done: asyncio.Future[Any]) -> None:
            self._leftovers.discard(done)
            if not done.cancelled() and (error := done.exception()) is not None:
                logger.debug("leftover_failed error=%s", error)

        self._leftovers.add(future)
        future.add_done_callback(ended)
