"""Wrong secrets: many of them from one client are refused before each costs a query of the database."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, TypeVar

from starlette.types import Scope

from spanmq.service.admission import address_of
from spanmq.service.refusal import Refusal

# Wrong secrets that an address may send at once, and how many of them are forgiven in a second.
WRONG_MAX: Final = 20
FORGOTTEN_PER_SECOND: Final = 0.1
# How long a secret that was right is exempt, whatever its address does.
RIGHT_SECONDS: Final = 3600.0
KEPT_MAX: Final = 10_000

Owner = TypeVar("Owner")


class Guesses:
    """Counts wrong secrets by address; looks up unproven ones `at_once` at a time.

    A secret that is wrong repeatedly counts once, so that a client with an expired token harms no other. A
    secret that was right within the last hour is always looked up. Secrets are stored as hashes only.
    """

    def __init__(self, at_once: int) -> None:
        self._turns = asyncio.Semaphore(at_once)
        # Wrong secrets by address, and when each was counted.
        self._wrong_of: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._wrong: OrderedDict[str, None] = OrderedDict()
        self._right: OrderedDict[str, float] = OrderedDict()

    async def look_up(
        self, scope: Scope, secret: str, ask: Callable[[], Awaitable[Owner | None]]
    ) -> Owner | None:
        """Return what `ask` returns for a secret's hash; raises 429 if its address has guessed too often."""
        if self._right.get(secret, 0.0) > monotonic():
            return self._learn(secret, await ask())
        address = address_of(scope)
        is_new = secret not in self._wrong
        if is_new:
            # Counted before the answer, so that concurrent guesses count together.
            self._count(address)
        found = None
        try:
            async with self._turns:
                found = await ask()
        except BaseException:
            if is_new:
                self._add(address, -1)
            raise
        if found is not None and is_new:
            self._add(address, -1)
        return self._learn(secret, found)

    def _learn(self, secret: str, found: Owner | None) -> Owner | None:
        if found is None:
            self._right.pop(secret, None)
            _keep(self._wrong, secret, None)
        else:
            self._wrong.pop(secret, None)
            _keep(self._right, secret, monotonic() + RIGHT_SECONDS)
        return found

    def _count(self, address: str) -> None:
        if self._level(address) > WRONG_MAX - 1:
            raise Refusal(
                429,
                "too_many_failures",
                "too many wrong secrets came from this address",
                hint="A token that was right here within the last hour is not refused.",
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


Value = TypeVar("Value")


def _keep(known: OrderedDict[str, Value], key: str, value: Value) -> None:
    known[key] = value
    known.move_to_end(key)
    while len(known) > KEPT_MAX:
        known.popitem(last=False)
