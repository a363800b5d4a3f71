"""The circuit breaker of a queue: while a dependency of its handlers is down, nothing is received.

Pure decisions: the caller passes the time.
"""

from collections import deque
from dataclasses import dataclass
from typing import Literal

from spanmq.errors import InvalidArgumentError

Change = Literal["opened", "tried", "closed"]
BreakerState = Literal["closed", "open", "trial"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """When the breaker opens: a share `rate` of the last `window` messages failed in category DEPENDENCY.

    Then nothing is received for `pause` seconds. The pause doubles each time that the one message of a trial
    fails too, up to `pause_max`.
    """

    rate: float = 0.5
    window: int = 20
    pause: float = 5.0
    pause_max: float = 60.0

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for settings with which it would never open, or never close."""
        if not 0 < self.rate <= 1:
            raise InvalidArgumentError(f"the breaker's rate must be above 0 and at most 1, got {self.rate}")
        if self.window < 1:
            raise InvalidArgumentError(f"the breaker's window must be at least 1, got {self.window}")
        if not 0 < self.pause <= self.pause_max:
            raise InvalidArgumentError(
                f"the breaker's pause must be above 0 and at most pause_max, got {self.pause}"
            )


class Breaker:
    """Closed: messages are received. Open: none, for a time. Trial: one message, whose outcome decides."""

    __slots__ = (
        "_failures",
        "_last",
        "_opens_at",
        "_policy",
        "opened_by",
        "pause_seconds",
        "state",
        "times_opened",
    )

    def __init__(self, policy: BreakerPolicy) -> None:
        self.state: BreakerState = "closed"
        self._policy = policy
        self._last: deque[bool] = deque()
        self._failures = 0
        # The length of the current or next pause.
        self.pause_seconds = policy.pause
        self._opens_at = 0.0
        # The failures and messages that last opened it.
        self.opened_by = (0, 0)
        self.times_opened = 0

    def record(self, failed: bool, now: float) -> Change | None:
        """Record the end of a message; `failed` says that the dependency was the reason."""
        if self.state == "open":
            return None  # begun before it opened
        if self.state == "trial":
            if failed:
                self.pause_seconds = min(self.pause_seconds * 2, self._policy.pause_max)
                self.opened_by = (1, 1)
                return self._open(now)
            self.state = "closed"
            self.pause_seconds = self._policy.pause
            return "closed"
        if not (failed or self._failures) and len(self._last) == self._policy.window:
            return None  # the usual case: one success replaces another
        self._last.append(failed)
        self._failures += failed
        if len(self._last) > self._policy.window:
            self._failures -= self._last.popleft()
        if len(self._last) == self._policy.window and self._failures >= self._policy.rate * len(self._last):
            self.opened_by = (self._failures, len(self._last))
            return self._open(now)
        return None

    def look(self, now: float) -> Change | None:
        """Start the trial when the pause is over."""
        if self.state == "open" and now >= self._opens_at:
            self.state = "trial"
            return "tried"
        return None

    def remaining(self, now: float) -> float:
        """Return the seconds until the trial."""
        return max(self._opens_at - now, 0.0)

    def _open(self, now: float) -> Change:
        self.state = "open"
        self.times_opened += 1
        self._last.clear()
        self._failures = 0
        self._opens_at = now + self.pause_seconds
        return "opened"
