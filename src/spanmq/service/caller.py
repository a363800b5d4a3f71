"""Callers, and the lookups of their tokens and keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from starlette.types import Scope as AsgiScope

from spanmq.client._async.admin import PREFIX, hash_of
from spanmq.model import AccessKey, Token
from spanmq.service.refusal import forbidden
from spanmq.service.remembered import Remembered

if TYPE_CHECKING:
    from spanmq.client import AsyncClient
    from spanmq.service.guesses import Guesses

Verb = Literal["send", "receive", "look", "manage"]
VERBS: Final[tuple[Verb, ...]] = ("send", "receive", "look", "manage")


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller and its rights; names of queues are compared without regard to case, as in the database."""

    name: str
    queues: tuple[str, ...]
    verbs: frozenset[str]
    expires_at: datetime | None = None

    def may(self, verb: Verb, queue: str | None) -> bool:
        """Return whether the caller has the verb for a queue, or with None for all queues, which needs `*`."""
        if verb not in self.verbs:
            return False
        if "*" in self.queues:
            return True
        return queue is not None and any(_fits(pattern, queue) for pattern in self.queues)

    def check(self, verb: Verb, queue: str | None) -> None:
        """Raise 403 if the caller lacks the verb, with the same message whether the queue exists or not."""
        if not self.may(verb, queue):
            raise forbidden(verb, queue)


IDENTITY: Final = "spanmq.identity"
EVERYBODY: Final = Caller("", ("*",), frozenset(VERBS))


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    # Only * is special: brackets and question marks are literal.
    return re.compile(".*".join(map(re.escape, text.lower().split("*"))), re.DOTALL)


def _fits(pattern: str, queue: str) -> bool:
    return _pattern(pattern).fullmatch(queue.lower()) is not None


class Tokens:
    """Looks tokens up, and caches the answers for some seconds, or until a token is revoked."""

    def __init__(self, client: AsyncClient, cached_for: float, guesses: Guesses) -> None:
        self._client = client
        self._guesses = guesses
        self._known: Remembered[Caller | None] = Remembered(cached_for, expiry_of)

    def forget(self) -> None:
        """Discard the cached answers."""
        self._known.forget()

    async def caller_of(self, secret: str, scope: AsgiScope) -> Caller | None:
        """Return the caller with that secret, or None if it is not valid; raises 429 after many wrong
        secrets.
        """
        if not secret.startswith(PREFIX):
            return None
        # The cache, like the database, contains hashes only.
        key = hash_of(secret)

        async def ask() -> Caller | None:
            token = await self._client.admin.tokens.check(secret)
            return None if token is None else caller_of(token)

        return await self._known.get(key, lambda: self._guesses.look_up(scope, key, ask))


class Keys:
    """Looks up access keys of the SQS protocol, and caches them as long as tokens."""

    def __init__(self, client: AsyncClient, cached_for: float, guesses: Guesses) -> None:
        self._client = client
        self._guesses = guesses
        self._known: Remembered[AccessKey | None] = Remembered(cached_for, expiry_of)

    def forget(self) -> None:
        """Discard the cached answers."""
        self._known.forget()

    async def find(self, access_key_id: str, scope: AsgiScope) -> AccessKey | None:
        """Return the key with that id, or None if it is not valid; raises 429 after many wrong ids."""

        async def ask() -> AccessKey | None:
            return await self._client.admin.keys.find(access_key_id)

        return await self._known.get(
            access_key_id, lambda: self._guesses.look_up(scope, f"key {access_key_id}", ask)
        )

    async def get(self, access_key_id: str) -> AccessKey | None:
        """Return the key with an id that the service itself has stored, or None if it is not valid."""
        return await self._known.get(access_key_id, lambda: self._client.admin.keys.find(access_key_id))


def expiry_of(known: Caller | AccessKey | None) -> datetime | None:
    """Return when a token or a key expires."""
    return None if known is None else known.expires_at


def caller_of(token: Token) -> Caller:
    """Return the caller that a token stands for."""
    return Caller(token.name, tuple(token.queues), frozenset(token.verbs), token.expires_at)


def caller_of_key(key: AccessKey) -> Caller:
    """Return the caller that an access key stands for."""
    return Caller(key.access_key_id, tuple(key.queues), frozenset(key.verbs))
