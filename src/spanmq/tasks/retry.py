"""The decision about a message whose task failed. No I/O here."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from spanmq.client.argument import duration
from spanmq.errors import InvalidArgumentError, UnknownTaskError
from spanmq.worker.failure import Category, HandlerFailure, RetryIn, checked_category, judge

PAUSE_SECONDS_MAX: Final = 3600.0
# Another version of the program may have the task: by the queue's backoff and its attempts.
OURS: Final[Mapping[type[BaseException], str]] = {
    UnknownTaskError: "UNKNOWN",
    InvalidArgumentError: "PERMANENT",
}
FINAL: Final = ("PERMANENT", "BUSINESS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The number of attempts of a failed task, and the pauses between them.

    After `max_attempts` attempts its message is a dead letter; None leaves that to the policy of the queue.
    The pause is `backoff` seconds, twice as many after each attempt, at most an hour, up to half of it less
    at random; or what the function `backoff` returns for the attempt (1, 2, …); None: by the policy of the
    queue. `on` maps exceptions to categories, the nearest class counts. `give_up` are those that make a dead
    letter at once. Raises InvalidArgumentError for values that are not valid.
    """

    max_attempts: int | None = None
    backoff: float | Callable[[int], float] | None = None
    on: Mapping[type[BaseException], Category] = field(default_factory=dict)
    give_up: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for what means nothing."""
        check_number("max_attempts", self.max_attempts, 1)
        if not callable(self.backoff):
            check_number("backoff", self.backoff, 0.0)
        if not isinstance(self.give_up, tuple):
            raise InvalidArgumentError(f"give_up must be a tuple, got {self.give_up!r}")
        kinds: tuple[object, ...] = (*self.on, *self.give_up)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise InvalidArgumentError(f"`on` and `give_up` have classes of exceptions, got {kind!r}")
        for category in self.on.values():
            checked_category(category)

    def judge(self, error: BaseException, attempt: int) -> HandlerFailure:
        """Decide what an `error` in this `attempt` (1, 2, …) means; return the failure that is reported.

        Raises InvalidArgumentError for a bad result of `backoff`.
        """
        failure = judge(error, {**OURS, **self.on})
        if isinstance(error, UnknownTaskError) or failure.verb == "reject":
            return failure
        if isinstance(error, self.give_up) and not isinstance(error, RetryIn):
            return replace(failure, verb="reject", category=failure.category or "PERMANENT")
        if failure.category in FINAL:
            return failure
        if self.max_attempts is not None and attempt >= self.max_attempts:
            # Not PERMANENT, which a reject without a category is: that it was tried often is not that it never works.
            return replace(failure, verb="reject", category=failure.category or "UNKNOWN")
        if failure.retry_in is None and self.backoff is not None:
            return replace(failure, retry_in=self.pause(attempt))
        return failure

    def pause(self, attempt: int) -> float:
        """Return the seconds between this `attempt` (1, 2, …) and the next.

        Raises InvalidArgumentError for a bad result of `backoff`.
        """
        if callable(self.backoff):
            return duration("backoff", self.backoff(attempt)).total_seconds()
        longest = min((self.backoff or 0.0) * 2.0 ** min(attempt - 1, 40), PAUSE_SECONDS_MAX)
        return random.uniform(0.5, 1.0) * longest


def check_number(name: str, value: object, least: float) -> None:
    """Raise InvalidArgumentError unless a value is None or a number from `least`: an int if that is one."""
    kind: Any = int if isinstance(least, int) else int | float
    if value is not None and not (isinstance(value, kind) and type(value) is not bool and value >= least):
        raise InvalidArgumentError(
            f"{name} must be {'an integer' if kind is int else 'a number'} from {least:g}, or None, got {value!r}"
        )
