"""The common part of all requests: one client with its pool, the long polls, the tokens and the limits."""

import asyncio
import logging
from contextvars import Context
from typing import Any, Final

from spanmq.client import AsyncClient
from spanmq.client.calls import Timeouts, forget, with_timeouts
from spanmq.codec import Encryption, RawJson
from spanmq.errors import ConnectionFailedError, SpanmqError
from spanmq_service.guard.access_changes import heed_access
from spanmq_service.guard.caller import Caller
from spanmq_service.guard.costly_searches import CostlySearches
from spanmq_service.guard.credentials import Credentials, TtlCache
from spanmq_service.guard.gate import Gate
from spanmq_service.measures import Measures
from spanmq_service.settings import Settings
from spanmq_service.waiting import Waiting

logger = logging.getLogger("spanmq.service")

# How long a probe waits for a connection and for answers.
PROBE_SECONDS: Final = 5.0


class Backend:
    """Created before the event loop runs, opened and closed within it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        limits = Timeouts(lock=min(5.0, settings.statement_timeout), statement=settings.statement_timeout)
        dsn = with_timeouts(settings.dsn, None, application_name="spanmq service")
        self.encryption = Encryption.from_environment()
        # Bodies are passed through as the database returns them: the service does not parse them.
        self.client = AsyncClient(
            dsn,
            pool_size=settings.pool_size,
            maintain_interval=1.0,
            timeout=settings.pool_timeout,
            decoder=RawJson,
            encryption=self.encryption,
            timeouts=limits,
            answer_bytes_max=settings.answer_bytes_max,
        )
        self.waiting = Waiting(self.client)
        self.costly_searches = CostlySearches(self.client, settings.pool_size)
        self._dsn = dsn
        self._probe = self._new_probe()
        self._former_probes: set[asyncio.Task[None]] = set()
        self._probing: asyncio.Task[None] | None = None
        self.gate = Gate(settings)
        self.credentials = Credentials(self.client, self.gate, settings)
        # Other caches that are cleared when access, or an attribute of a queue, has changed.
        self.caches: list[TtlCache[Any]] = []
        # Set when a move task may have been started, here or by another service.
        self.moves_changed = asyncio.Event()
        self.measures = Measures(self.gate)
        self.gate.on_answered = self.measures.answered
        self.is_stopping = False
        self._heeding: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect. If the database is not available, requests are refused until it is."""
        self._heeding = asyncio.create_task(heed_access(self.client, self._forget))
        try:
            await self.client.open()
        except ConnectionFailedError as error:
            logger.warning("database_away error=%r", error.message)

    def _forget(self) -> None:
        self.credentials.forget()
        for cache in self.caches:
            cache.forget()
        self.moves_changed.set()

    async def queues_of(self, caller: Caller) -> list[str] | None:
        """Return the names of the queues that a caller may look at, None for all: only these are asked about."""
        if caller.may("look", None):
            return None
        return [queue.name for queue in await self.client.queues.list() if caller.may("look", queue.name)]

    async def check_database(self) -> None:
        """Raise a SpanmqError unless the database answers, and takes writes; those that ask at once share an answer.

        Each answer comes within PROBE_SECONDS or little more, and the next question begins anew. Raises TimeoutError.
        """
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._ask(), context=Context())
            forget(self._probing)  # those that asked may all have gone
        probing = self._probing
        await asyncio.wait([probing])
        probing.result()

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._probe.admin.check_writable()
                await self._probe.admin.version()
        except (SpanmqError, TimeoutError):
            # A pool pauses between its attempts to connect. The next probe connects at once.
            closing = asyncio.create_task(self._probe.close(abandon=True))
            self._former_probes.add(closing)
            closing.add_done_callback(self._former_probes.discard)
            forget(closing)
            self._probe = self._new_probe()
            raise

    def _new_probe(self) -> AsyncClient:
        """Return a client with a connection of its own: the answer does not depend on the load of the pool."""
        return AsyncClient(self._dsn, pool_size=1, listen=False, timeouts=Timeouts(statement=PROBE_SECONDS))

    def stop(self) -> None:
        """Answer the waiting requests, and report that the service is no longer ready."""
        self.is_stopping = True
        self.waiting.stop()

    async def close(self) -> None:
        """Close all connections and stop all background tasks."""
        self.stop()
        if self._heeding is not None:
            self._heeding.cancel()
            await asyncio.wait([self._heeding])
        await self.waiting.join()
        if self._probing is not None:
            self._probing.cancel()
        await self._probe.close(abandon=True)
        if self._former_probes:
            await asyncio.wait(self._former_probes)
        await self.client.close(abandon=True)
