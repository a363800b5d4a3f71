"""Who looks at pages: sessions, which stand for tokens. What a session may do is what its token may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.types import Scope

from spanmq.service.access import EVERYBODY, Caller, caller_of
from spanmq.service.remembered import Remembered
from spanmq.token_secret import PREFIX, hash_of

if TYPE_CHECKING:
    from spanmq.client_async import AsyncClient
    from spanmq.service.gate import Gate
    from spanmq.service.settings import Settings


class Sessions:
    """Looks sessions up, and remembers the answer as long as one for a token."""

    def __init__(self, client: AsyncClient, gate: Gate, settings: Settings) -> None:
        self._client = client
        self._gate = gate
        self.are_needed = settings.with_tokens
        self._known: Remembered[Caller | None] = Remembered(settings.token_cache)

    async def open(self, secret: str, seconds: float) -> str | None:
        """Give the key of a new session for who shows a token's secret, None if that is not good."""
        return await self._client.open_session(secret, seconds=seconds) if secret.startswith(PREFIX) else None

    async def caller_of(self, key: str | None, scope: Scope) -> Caller | None:
        """Give who asks, None if nobody knows; raises 429 if he asks too much at once."""
        if not self.are_needed:
            return EVERYBODY
        if key is None or not key.startswith(PREFIX):
            return None

        async def look_up() -> Caller | None:
            found = await self._client.check_session(key)
            return None if found is None else caller_of(found)

        caller = await self._known.get(hash_of(key), look_up)
        if caller is not None:
            self._gate.count(scope, caller)
        return caller

    async def close(self, key: str) -> None:
        """End a session, here at once."""
        await self._client.close_session(key)
        self.forget()

    def forget(self) -> None:
        """Look up again from now on."""
        self._known.forget()
