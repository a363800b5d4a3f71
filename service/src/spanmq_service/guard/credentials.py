"""Lookups of the tokens, sessions and access keys that requests come with."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Final, Generic, TypeVar

from starlette.types import Scope

from spanmq.client import AsyncClient
from spanmq.client.calls import (
    PREFIX,
    Argument,
    Rows,
    SqlCall,
    argument,
    first,
    flag,
    hash_of,
    made,
    new_secret,
)
from spanmq.model import AccessKey, Token
from spanmq_service.guard.caller import EVERYBODY, Caller
from spanmq_service.guard.gate import Gate
from spanmq_service.http.failure import Refusal
from spanmq_service.http.request_origin import address_of
from spanmq_service.settings import Settings

# Wrong secrets that an address may send at once, and how many of them are forgiven in a second.
WRONG_MAX: Final = 20
FORGOTTEN_PER_SECOND: Final = 0.1
# How long a secret that was right is exempt, whatever its address does.
RIGHT_SECONDS: Final = 3600.0
KEPT_MAX: Final = 10_000

Owner = TypeVar("Owner")
Answer = TypeVar("Answer")
Value = TypeVar("Value")


class Credentials:
    """Looks up tokens, sessions and access keys; caches the answers for some seconds, or until one is revoked."""

    def __init__(self, client: AsyncClient, gate: Gate, settings: Settings) -> None:
        self._client = client
        self._gate = gate
        # Lookups of secrets that may be wrong leave half of the pool to other queries.
        self._attempts = LoginAttempts(max(1, settings.pool_size // 2))
        self._tokens: TtlCache[Caller | None] = TtlCache(settings.token_cache, _expiry_of)
        self._sessions: TtlCache[Caller | None] = TtlCache(settings.token_cache, _expiry_of)
        self._keys: TtlCache[AccessKey | None] = TtlCache(settings.token_cache, _expiry_of)
        self.are_needed = settings.with_tokens

    def forget(self) -> None:
        """Discard the cached answers."""
        for known in (self._tokens, self._sessions, self._keys):
            known.forget()

    async def caller_of_token(self, secret: str, scope: Scope) -> Caller | None:
        """Return the caller with a secret, None if it is not valid; raises 429 after many wrong secrets."""
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
            await self._gate.acquire(scope, caller)
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
        return None if await self._attempts.look_up(scope, secret_hash, ask) is None else key

    async def close_session(self, key: str) -> None:
        """End a session; takes effect in this process at once."""
        key_hash = argument.text("key_hash", hash_of(key))
        await self._client.admin.run(SqlCall("close_session", (key_hash,), flag, native=True))
        self._sessions.forget()

    async def find_key(self, access_key_id: str, scope: Scope) -> AccessKey | None:
        """Return the access key with that id, or None if it is not valid; raises 429 after many wrong ids."""
        ask = partial(self._find_key, access_key_id)
        return await self._keys.get(
            access_key_id, lambda: self._attempts.look_up(scope, f"key {access_key_id}", ask)
        )

    async def own_key(self, access_key_id: str) -> AccessKey | None:
        """Return the key with an id that the service itself has stored, or None if it is not valid."""
        return await self._keys.get(access_key_id, partial(self._find_key, access_key_id))

    async def _caller_of(
        self, known: TtlCache[Caller | None], secret: str, scope: Scope, function: str, name: str
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

        return await known.get(key, lambda: self._attempts.look_up(scope, key, ask))

    async def _ask(self, function: str, *arguments: Argument) -> Token | None:
        return await self._client.admin.run(SqlCall(function, arguments, first(Token), native=True))

    async def _find_key(self, access_key_id: str) -> AccessKey | None:
        def read(rows: Rows) -> AccessKey | None:
            keys = made(AccessKey, [row | {"access_key_id": access_key_id} for row in rows.records()])
            return keys[0] if keys else None

        arguments = (argument.text("access_key_id", access_key_id),)
        return await self._client.admin.run(SqlCall("find_access_key", arguments, read, native=True))


def _expiry_of(known: Caller | AccessKey | None) -> datetime | None:
    """Return when a token or a key expires."""
    return None if known is None else known.expires_at


class LoginAttempts:
    """Counts wrong secrets by address; looks up unproven ones `at_once` at a time.

    A secret that is wrong repeatedly counts once, so that a client with an expired token harms no other. A
    secret that was right within the last hour is always looked up. Secrets are stored as hashes only.
    """

    def __init__(self, at_once: int) -> None:
        self._lookups = asyncio.Semaphore(at_once)
        # Wrong secrets by address, and when each was counted.
        self._wrong_of: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._wrong: OrderedDict[str, None] = OrderedDict()
        self._right: OrderedDict[str, float] = OrderedDict()

    async def look_up(
        self, scope: Scope, secret: str, ask: Callable[[], Awaitable[Owner | None]]
    ) -> Owner | None:
        """Return what `ask` returns for a secret's hash; raises 429 after too many wrong ones from its address."""
        if self._right.get(secret, 0.0) > monotonic():
            return self._learn(secret, await ask())
        address = address_of(scope)
        is_new = secret not in self._wrong
        if is_new:
            # Counted before the answer, so that concurrent attempts count together.
            self._count(address)
        owner = None
        try:
            async with self._lookups:
                owner = await ask()
        except BaseException:
            if is_new:
                self._add(address, -1)
            raise
        if owner is not None and is_new:
            self._add(address, -1)
        return self._learn(secret, owner)

    def _learn(self, secret: str, owner: Owner | None) -> Owner | None:
        if owner is None:
            self._right.pop(secret, None)
            _keep(self._wrong, secret, None)
        else:
            self._wrong.pop(secret, None)
            _keep(self._right, secret, monotonic() + RIGHT_SECONDS)
        return owner

    def _count(self, address: str) -> None:
        if self._level(address) > WRONG_MAX - 1:
            raise Refusal(
                429,
                "too_many_failures",
                "too many wrong secrets came from this address",
                hint="A token that was valid within the last hour is not refused.",
                retry_after=round(1 / FORGOTTEN_PER_SECOND),
            )
        self._add(address, 1)

    def _add(self, address: str, by: int) -> None:
        level = max(0.0, self._level(address) + by)
        if level:
            _keep(self._wrong_of, address, (level, monotonic()))
        else:
            self._wrong_of.pop(address, None)

    def _level(self, address: str) -> float:
        level, at = self._wrong_of.get(address, (0.0, 0.0))
        return max(0.0, level - (monotonic() - at) * FORGOTTEN_PER_SECOND)


def _keep(known: OrderedDict[str, Value], key: str, value: Value) -> None:
    known[key] = value
    known.move_to_end(key)
    while len(known) > KEPT_MAX:
        known.popitem(last=False)


class TtlCache(Generic[Answer]):
    """Caches answers for some seconds; beyond a number of answers the oldest are discarded.

    `expiry` returns when an answer expires; it is not cached for longer.
    """

    def __init__(self, seconds: float, expiry: Callable[[Answer], datetime | None]) -> None:
        self._seconds = seconds
        self._expiry = expiry
        self._known: OrderedDict[str, tuple[float, Answer]] = OrderedDict()
        self._times_forgotten = 0

    def forget(self) -> None:
        """Discard all answers."""
        self._known.clear()
        self._times_forgotten += 1

    async def get(self, key: str, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the cached answer, or query it."""
        now = monotonic()
        if (known := self._known.get(key)) is not None and known[0] > now:
            return known[1]
        forgotten = self._times_forgotten
        answer = await ask()
        if self._times_forgotten != forgotten:
            return answer  # it may be older than forget(): valid for this caller, but not cached
        seconds = self._seconds
        if (expires_at := self._expiry(answer)) is not None:
            seconds = min(seconds, (expires_at - datetime.now(UTC)).total_seconds())
        _keep(self._known, key, (now + seconds, answer))
        return answer
