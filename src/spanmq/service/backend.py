"""What stands behind all requests: one client with its pool, the long polls, the tokens, the limits."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from starlette.requests import Request

from spanmq.body import RawJson
from spanmq.client_async import AsyncClient
from spanmq.encryption import Encryption
from spanmq.errors import ConnectionFailedError, SpanmqError
from spanmq.listen_access import heed_access
from spanmq.message import AccessKey
from spanmq.service.access import Tokens
from spanmq.service.failure import describe
from spanmq.service.gate import Gate
from spanmq.service.measures import Measures
from spanmq.service.remembered import Remembered
from spanmq.service.sessions import Sessions
from spanmq.service.waiting import Waiting
from spanmq.timeouts import Timeouts, with_timeouts

if TYPE_CHECKING:
    from spanmq.service.settings import Settings

logger = logging.getLogger("spanmq.service")


class Backend:
    """Made before the event loop runs, opened and closed within it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        limits = Timeouts(lock=min(5.0, settings.statement_timeout), statement=settings.statement_timeout)
        self._dsn = with_timeouts(settings.dsn, limits, application_name="spanmq service")
        # Bodies go through as the server gives them: nobody here looks into them.
        self.client = AsyncClient(
            self._dsn,
            pool_size=settings.pool_size,
            timeout=settings.pool_timeout,
            decoder=RawJson,
            encryption=Encryption.from_environment(),
        )
        self.waiting = Waiting(self.client)
        self.tokens = Tokens(self.client, settings.token_cache)
        self.keys: Remembered[AccessKey | None] = Remembered(settings.token_cache)
        self.gate = Gate(settings)
        self.sessions = Sessions(self.client, self.gate, settings)
        self.measures = Measures(self.gate)
        self.gate.measures = self.measures
        self.is_stopping = False
        self._heeding: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect; a database that is away now may come later, and until then requests are told so."""
        if self.settings.with_tokens:
            self._heeding = asyncio.create_task(heed_access(self._dsn, self._forget))
        try:
            await self.client.open()
        except ConnectionFailedError as error:
            logger.warning("database_away error=%r", error.message)

    def explain(self, error: SpanmqError) -> tuple[int, str]:
        """Give the status and the words for an error, as pages show it."""
        status, body = describe(error)
        return status, body["error"]["message"]

    def stop(self) -> None:
        """Answer who waits, and be ready for no more."""
        self.is_stopping = True
        self.waiting.stop()

    async def close(self) -> None:
        """Let go of everything."""
        self.stop()
        if self._heeding is not None:
            self._heeding.cancel()
        await self.waiting.join()
        await self.client.close()

    def _forget(self) -> None:
        self.tokens.forget()
        self.keys.forget()
        self.sessions.forget()
        # Who waits was looked at when he came.
        self.waiting.recall()


async def backend_of(request: Request) -> Backend:
    """Give what stands behind a request; async, for FastAPI gives other dependencies to a thread."""
    backend: Backend = request.app.state.backend
    return backend
