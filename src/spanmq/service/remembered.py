"""A cache of answers, so that not every request has to query the database."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from time import monotonic
from typing import Final, Generic, TypeVar

KEPT_MAX: Final = 10_000

Answer = TypeVar("Answer")


class Remembered(Generic[Answer]):
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
        self._known[key] = now + self._lasting(answer), answer
        self._known.move_to_end(key)
        while len(self._known) > KEPT_MAX:
            self._known.popitem(last=False)
        return answer

    def _lasting(self, answer: Answer) -> float:
        expires_at = self._expiry(answer)
        if expires_at is None:
            return self._seconds
        return min(self._seconds, (expires_at - datetime.now(UTC)).total_seconds())
