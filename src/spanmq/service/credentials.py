"""Lookups of the tokens, sessions and access keys that requests come with."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from starlette.types import Scope

from spanmq.client import call as argument
from spanmq.client.call import Argument, Call, Rows, first, flag, made
from spanmq.client.secret import PREFIX, hash_of, new_secret
from spanmq.model import AccessKey, Token
from spanmq.service.caller import EVERYBODY, Caller
from spanmq.service.guesses import Guesses
from spanmq.service.remembered import Remembered

if TYPE_CHECKING:
    from spanmq.client import AsyncClient
    from spanmq.service.gate import Gate
    from spanmq.service.settings import Settings


class Credentials:
    """Looks up tokens, sessions and access keys; caches the answers for some seconds, or until one is revoked."""

    def __init__(self, client: AsyncClient, gate: Gate, settings: Settings) -> None:
        self._client = client
        self._gate = gate
        # Lookups of secrets that may be wrong leave half of the pool to other queries.
        self._guesses = Guesses(max(1, settings.pool_size // 2))
        self._tokens: Remembered[Caller | None] = Remembered(settings.token_cache, _expiry_of)
        self._sessions: Remembered[Caller | None] = Remembered(settings.token_cache, _expiry_of)
        self._keys: Remembered[AccessKey | None] = Remembered(settings.token_cache, _expiry_of)
        self.are_needed = settings.with_tokens

    def forget(self) -> None:
        """Discard the cached answers."""
        for known in (self._tokens, self._sessions, self._keys):
            known.forget()

    async def caller_of_token(self, secret: str, scope: Scope) -> Caller | None:
        """Return the caller with that secret, or None if it is not valid; raises 429 after many wrong
        secrets.
        """
        return await self._caller_of(self._tokens, secret, scope, "check_token", "secret_hash")

    async def caller_of_session(self, key: str | None, scope: Scope) -> Caller | None:
        """Return the caller of a session of the pages, which has the rights of its token; None if it is not
        valid. Raises 429 after many wrong keys, and if the caller has too many requests at once.
        """
        if not self.are_needed:
            return EVERYBODY
        asked = "check_session", "key_hash"
        caller = None if key is None else await self._caller_of(self._sessions, key, scope, *asked)
        if caller is not None:
            self._gate.count(scope, caller)
        return caller

    async def open_session(self, secret: str, seconds: float, scope: Scope) -> str | None:
        """Return the key of a new session of the token with that secret, or None if it is not valid; raises
        429 after many wrong secrets. The session ends after `seconds`, or with its token or that secret.
        """
        if not secret.startswith(PREFIX):
            return None
        key, secret_hash = new_secret(), hash_of(secret)
        arguments = (
            argument.text("secret_hash", secret_hash),
            argument.text("key_hash", hash_of(key)),
            argument.seconds("seconds", seconds),
        )
        ask = partial(self._ask, "open_session", *arguments)
        return None if await self._guesses.look_up(scope, secret_hash, ask) is None else key

    async def close_session(self, key: str) -> None:
        """End a session; takes effect in this process at once."""
        key_hash = argument.text("key_hash", hash_of(key))
        await self._client.admin.run(Call("close_session", (key_hash,), flag, native=True))
        self._sessions.forget()

    async def find_key(self, access_key_id: str, scope: Scope) -> AccessKey | None:
        """Return the access key with that id, or None if it is not valid; raises 429 after many wrong ids."""
        ask = partial(self._find_key, access_key_id)
        return await self._keys.get(
            access_key_id, lambda: self._guesses.look_up(scope, f"key {access_key_id}", ask)
        )

    async def own_key(self, access_key_id: str) -> AccessKey | None:
        """Return the key with an id that the service itself has stored, or None if it is not valid."""
        return await self._keys.get(access_key_id, partial(self._find_key, access_key_id))

    async def _caller_of(
        self,
        known: Remembered[Caller | None],
        secret: str,
        scope: Scope,
        function: str,
        name: str,
    ) -> Caller | None:
        if not secret.startswith(PREFIX):
            return None
        # The cache, like the database, contains hashes only.
        key = hash_of(secret)

        async def ask() -> Caller | None:
            token = await self._ask(function, argument.text(name, key))
            if token is None:
                return None
            return Caller(token.name, tuple(token.queues), frozenset(token.verbs), token.expires_at)

        return await known.get(key, lambda: self._guesses.look_up(scope, key, ask))

    async def _ask(self, function: str, *arguments: Argument) -> Token | None:
        return await self._client.admin.run(Call(function, arguments, first(Token), native=True))

    async def _find_key(self, access_key_id: str) -> AccessKey | None:
        def read(rows: Rows) -> AccessKey | None:
            found = made(AccessKey, [row | {"access_key_id": access_key_id} for row in rows.records()])
            return found[0] if found else None

        arguments = (argument.text("access_key_id", access_key_id),)
        return await self._client.admin.run(Call("find_access_key", arguments, read, native=True))


def _expiry_of(known: Caller | AccessKey | None) -> datetime | None:
    """Return when a token or a key expires."""
    return None if known is None else known.expires_at
