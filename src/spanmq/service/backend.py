"""What all requests share: one client with its pool, the long polls, the tokens and the limits."""

import asyncio
import logging
from contextvars import Context

from starlette.requests import Request

from spanmq.client import AsyncClient
from spanmq.client.dsn import Timeouts, with_timeouts
from spanmq.codec.body import RawJson
from spanmq.codec.encryption import Encryption
from spanmq.errors import ConnectionFailedError
from spanmq.service.access_changes import heed_access
from spanmq.service.caller import Caller
from spanmq.service.credentials import Credentials, Remembered
from spanmq.service.gate import Gate
from spanmq.service.measures import Measures
from spanmq.service.patterns import Patterns
from spanmq.service.settings import Settings
from spanmq.service.sqs.store import SqsQueue
from spanmq.service.waiting import Waiting

logger = logging.getLogger("spanmq.service")


class Backend:
    """Created before the event loop runs, opened and closed within it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        limits = Timeouts(lock=min(5.0, settings.statement_timeout), statement=settings.statement_timeout)
        self._dsn = with_timeouts(settings.dsn, limits, application_name="spanmq service")
        self.encryption = Encryption.from_environment()
        # Bodies are passed through as the database returns them: the service does not parse them.
        self.client = AsyncClient(
            self._dsn,
            pool_size=settings.pool_size,
            maintain_interval=1.0,
            timeout=settings.pool_timeout,
            decoder=RawJson,
            encryption=self.encryption,
            timeouts=None,  # the DSN has the service's
            answer_bytes_max=settings.answer_bytes_max,
        )
        self.waiting = Waiting(self.client)
        self.patterns = Patterns(self.client, settings.pool_size)
        # A connection of its own: whether the database answers does not depend on the load of the pool.
        self._probe = AsyncClient(
            self._dsn, pool_size=1, timeout=settings.pool_timeout, listen=False, timeouts=None
        )
        self._probing: asyncio.Task[str] | None = None
        self.gate = Gate(settings)
        self.credentials = Credentials(self.client, self.gate, settings)
        # The queues of the SQS protocol, by name in lower case.
        self.sqs_queues: Remembered[SqsQueue] = Remembered(settings.token_cache, lambda _: None)
        # Set when a move task may have been started, here or by another service.
        self.moves_changed = asyncio.Event()
        self.measures = Measures(self.gate)
        self.gate.on_answered = self.measures.answered
        self.is_stopping = False
        # Held while a large request is parsed.
        self.parsing = asyncio.Lock()
        self._heeding: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect. If the database is not available, requests are refused until it is."""
        self._heeding = asyncio.create_task(heed_access(self._dsn, self._forget))
        try:
            await self.client.open()
        except ConnectionFailedError as error:
            logger.warning("database_away error=%r", error.message)

    def _forget(self) -> None:
        self.credentials.forget()
        self.sqs_queues.forget()
        self.moves_changed.set()

    async def queues_of(self, caller: Caller) -> list[str] | None:
        """Return the names of the queues that a caller may look at, None for all: only these are asked about."""
        if caller.may("look", None):
            return None
        return [each.name for each in await self.client.queues.list() if caller.may("look", each.name)]

    async def check_database(self) -> None:
        """Raise a SpanmqError unless the database answers; those that ask at once share an answer."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe.admin.version(), context=Context())
        await asyncio.shield(self._probing)

    def stop(self) -> None:
        """Answer the waiting requests, and report that the service is no longer ready."""
        self.is_stopping = True
        self.waiting.stop()

    async def close(self) -> None:
        """Close all connections and stop all background tasks."""
        self.stop()
        if self._heeding is not None:
            self._heeding.cancel()
        await self.waiting.join()
        await self._probe.close()
        await self.client.close()


async def backend_of(request: Request) -> Backend:
    """Return the backend of a request. This is async because FastAPI runs other dependencies in a thread."""
    backend: Backend = request.app.state.backend
    return backend
