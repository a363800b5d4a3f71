"""Sessions of the pages. A session stands for a token, and has the rights of that token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.types import Scope

from spanmq.client._async.admin import PREFIX, hash_of
from spanmq.service.caller import EVERYBODY, Caller, caller_of, expiry_of
from spanmq.service.remembered import Remembered

if TYPE_CHECKING:
    from spanmq.client import AsyncClient
    from spanmq.service.gate import Gate
    from spanmq.service.guesses import Guesses
    from spanmq.service.settings import Settings


class Sessions:
    """Looks sessions up, and caches the answers as long as those for tokens."""

    def __init__(self, client: AsyncClient, gate: Gate, guesses: Guesses, settings: Settings) -> None:
        self._client = client
        self._gate = gate
        self._guesses = guesses
        self.are_needed = settings.with_tokens
        self._known: Remembered[Caller | None] = Remembered(settings.token_cache, expiry_of)

    async def open(self, secret: str, seconds: float, scope: Scope) -> str | None:
        """Return the key of a new session, or None if the secret is wrong; raises 429 after many wrong
        secrets.
        """
        if not secret.startswith(PREFIX):
            return None

        async def ask() -> str | None:
            return await self._client.admin.tokens.open_session(secret, seconds=seconds)

        return await self._guesses.look_up(scope, hash_of(secret), ask)

    async def caller_of(self, key: str | None, scope: Scope) -> Caller | None:
        """Return the caller, or None if the session is not valid; raises 429 if the caller has too many
        requests at once.
        """
        if not self.are_needed:
            return EVERYBODY
        if key is None or not key.startswith(PREFIX):
            return None

        hashed = hash_of(key)

        async def ask() -> Caller | None:
            token = await self._client.admin.tokens.check_session(key)
            return None if token is None else caller_of(token)

        caller = await self._known.get(hashed, lambda: self._guesses.look_up(scope, hashed, ask))
        if caller is not None:
            self._gate.count(scope, caller)
        return caller

    async def close(self, key: str) -> None:
        """End a session; takes effect in this process at once."""
        await self._client.admin.tokens.close_session(key)
        self.forget()

    def forget(self) -> None:
        """Discard the cached answers."""
        self._known.forget()
