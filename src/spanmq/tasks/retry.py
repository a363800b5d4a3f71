"""What becomes of a message whose task failed. Decides only, no I/O here."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from spanmq.errors import InvalidArgumentError, UnknownTaskError
from spanmq.worker.failure import Category, Failure, RetryIn, checked_category, judge

PAUSE_SECONDS_MAX: Final = 3600.0
# Another version of the program may have the task: by the queue's backoff and its attempts.
OURS: Final[Mapping[type[BaseException], str]] = {
    UnknownTaskError: "UNKNOWN",
    InvalidArgumentError: "PERMANENT",
}
FINAL: Final = ("PERMANENT", "BUSINESS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often and how soon a task that failed is tried again.

    After `max_attempts` attempts its message is a dead letter; None leaves that to the policy of the queue.
    The pause is `backoff` seconds, twice as many after each attempt, at most an hour, up to half of it less
    at random; or what the function `backoff` returns for the attempt (1, 2, …); None: by the policy of the
    queue. `on` maps exceptions to categories, the nearest class counts. `give_up` are those that make a dead
    letter at once.
    """

    max_attempts: int | None = None
    backoff: float | Callable[[int], float] | None = None
    on: Mapping[type[BaseException], Category] = field(default_factory=dict)
    give_up: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for what means nothing."""
        attempts, backoff = self.max_attempts, self.backoff
        if attempts is not None and attempts < 1:
            raise InvalidArgumentError(f"max_attempts must be an integer from 1, or None, got {attempts!r}")
        if not (backoff is None or callable(backoff) or backoff >= 0):
            raise InvalidArgumentError(f"backoff must be seconds, a function or None, got {backoff!r}")
        for kind, category in self.on.items():
            if not issubclass(kind, BaseException):
                raise InvalidArgumentError(f"`on` maps classes of exceptions, got {kind!r}")
            checked_category(category)

    def judge(self, error: BaseException, attempt: int) -> Failure:
        """Decide what an exception in this attempt means."""
        failure = judge(error, {**OURS, **self.on})
        if isinstance(error, UnknownTaskError) or failure.verb == "reject":
            return failure
        if isinstance(error, self.give_up) and not isinstance(error, RetryIn):
            return replace(failure, verb="reject", category=failure.category or "PERMANENT")
        if failure.category in FINAL:
            return failure
        if self.max_attempts is not None and attempt >= self.max_attempts:
            return replace(failure, verb="reject")
        if failure.retry_in is None and self.backoff is not None:
            return replace(failure, retry_in=self.pause(attempt))
        return failure

    def pause(self, attempt: int) -> float:
        """Return the seconds before the next attempt."""
        if callable(self.backoff):
            return self.backoff(attempt)
        longest = min((self.backoff or 0.0) * 2.0 ** min(attempt - 1, 40), PAUSE_SECONDS_MAX)
        return random.uniform(0.5, 1.0) * longest
