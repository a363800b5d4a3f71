"""The circuit breaker of a queue: while nothing can be handled, because a dependency is down, nothing is received.

Pure decisions: the caller passes the time.
"""

import secrets
from dataclasses import dataclass
from typing import Literal

from spanmq.errors import InvalidArgumentError

Change = Literal["tried", "opened", "closed"]
BreakerState = Literal["closed", "trial", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """The numbers of a circuit breaker: it opens if `failures` messages in a row fail, then up to `tries` newest ones.

    A message counts at its first attempt, and if its failure is a DEPENDENCY. Any success ends the row. While it is
    open, the worker receives nothing for `pause` seconds, then tries the newest messages again; the first success
    closes it. Raises InvalidArgumentError for numbers that are not positive.
    """

    failures: int = 50
    tries: int = 10
    pause: float = 5.0

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for settings with which it would never open, or never close."""
        counts: dict[str, object] = {"failures": self.failures, "tries": self.tries}
        for name, value in counts.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidArgumentError(f"the breaker's {name} must be an integer from 1, got {value!r}")
        if not 0 < self.pause <= 3600:
            raise InvalidArgumentError(
                f"the breaker's pause must be above 0 and at most 3600 s, got {self.pause!r}"
            )


class Breaker:
    """Closed: messages are received. Trial: a few of the newest, of which one that is handled closes it. Open: none.

    It opens only after a trial: what fails may be a block of messages of one kind, with others behind it. Without a
    `policy` it stays closed.
    """

    __slots__ = ("_due_at", "_failed", "_policy", "_trying", "error", "failures", "number", "state")

    def __init__(self, policy: BreakerPolicy | None) -> None:
        self.state: BreakerState = "closed"
        self._policy = policy
        # Messages that failed at their first attempt since the last one that was handled, and the text of the last.
        self.failures = 0
        self.error: str | None = None
        # Drawn when it opens, 0 while it is closed: a command closes this opening only.
        self.number = 0
        # The messages of the trial that are not decided yet, and whether one failed.
        self._trying = 0
        self._failed = False
        # The end of the pause, or of the time that the trial has.
        self._due_at = 0.0

    @property
    def tries(self) -> int:
        """The messages to receive for the trial now: none while others are tried."""
        return 0 if self._policy is None or self._trying else self._policy.tries

    @property
    def pause(self) -> float:
        """The length of a pause, in seconds."""
        return 0.0 if self._policy is None else self._policy.pause

    def succeeded(self) -> Change | None:
        """Record a message that was handled, or failed for good: no dependency was the reason."""
        self.failures = 0
        return self.close()

    def failed(self, now: float, *, is_counted: bool, error: str) -> Change | None:
        """Record a failure; `is_counted`: of a first attempt, because of a dependency."""
        self._failed = True
        if not is_counted or self._policy is None:
            return None
        self.failures += 1
        self.error = error
        if self.state == "closed" and self.failures >= self._policy.failures:
            return self._try(now)
        return None

    def trying(self, count: int, now: float) -> None:
        """Record the messages that were received for a trial."""
        self._trying += count
        self._failed = False
        self._due_at = now + self.pause

    def tried(self, count: int, now: float) -> Change | None:
        """Record that messages of a trial are decided; without a success, the last one opens the breaker."""
        self._trying = max(self._trying - count, 0)
        if self.state == "trial" and not self._trying and self._failed:
            self.state = "open"
            self.number = self.number or secrets.randbits(62) + 1
            self._due_at = now + self.pause
            return "opened"
        return None

    def look(self, now: float) -> Change | None:
        """Start a trial when the pause is over, or when the one before lasts as long: its handlers are slow."""
        if now >= self._due_at and (self.state == "open" or (self.state == "trial" and self._trying)):
            return self._try(now)
        return None

    def close(self) -> Change | None:
        """Close it, by a success or by a command."""
        if self.state == "closed":
            return None
        self.state = "closed"
        self.failures = self.number = 0
        return "closed"

    def remaining(self, now: float) -> float:
        """Return the seconds until the next trial."""
        return max(self._due_at - now, 0.0)

    def _try(self, now: float) -> Change:
        self.state = "trial"
        self._trying = 0
        self._due_at = now
        return "tried"
