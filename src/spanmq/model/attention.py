"""A reason for which a queue needs an operator, and its text."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
# What the functions count up to.
COUNTED_MAX: Final = 1_000
RECENT_MAX: Final = 10_000

Reason = Literal[
    "no_worker",
    "stopped",
    "breaker_open",
    "dead_letters",
    "blocked_groups",
    "failing",
    "paused",
    "late",
]
# The reasons, the most urgent first, and their titles.
REASONS: Final[dict[str, str]] = {
    "no_worker": "no worker",
    "stopped": "stopped",
    "breaker_open": "breaker open",
    "dead_letters": "dead letters",
    "blocked_groups": "groups blocked",
    "failing": "failing",
    "paused": "paused",
    "late": "late",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One reason why a `queue` needs an operator's attention.

    `level` is "problem" where messages are lost or are not delivered for long, else "warning". `n` counts messages,
    dead letters or groups; `recent` are the dead letters of the last hour. `seconds` is how long the oldest visible
    message has waited, at the last sample. An open circuit breaker has `until`, and in `detail` the last error.
    """

    queue: str
    reason: Reason
    level: Literal["problem", "warning"]
    n: int
    recent: int | None
    seconds: float | None
    until: datetime | None
    detail: str | None

    @property
    def rank(self) -> int:
        """Return the place of the reason: 0 is the most urgent."""
        return list(REASONS).index(self.reason) if self.reason in REASONS else len(REASONS)

    @property
    def title(self) -> str:
        """Return the reason in a word or two."""
        return REASONS.get(self.reason, self.reason.replace("_", " "))

    @property
    def words(self) -> str:
        """Return a sentence about the reason."""
        n = f"{self.n:,}{' or more' if self.n >= COUNTED_MAX and self.reason in ('failing', 'blocked_groups') else ''}"
        messages = f"{n} message{'' if self.n == 1 else 's'}"
        since = "" if self.seconds is None else f", the oldest for {duration(self.seconds)}"
        match self.reason:
            case "no_worker":
                return f"{messages} waiting{since}, and no worker receives."
            case "stopped":
                return f"{messages} waiting{since}. Workers run, and receive nothing."
            case "breaker_open":
                tried = "" if self.until is None else f"; it tries again {_until(self.until)}"
                error = f": {self.detail}" if self.detail else ""
                return f"A worker stopped receiving after failures{error}; {messages} waiting{tried}."
            case "dead_letters":
                many = f"{self.recent or 0:,}{' or more' if (self.recent or 0) >= RECENT_MAX else ''}"
                letters = f"{n} dead letter{'' if self.n == 1 else 's'} waiting to be redriven or discarded"
                return f"{letters}, {many} of them from the last hour." if self.recent else f"{letters}."
            case "blocked_groups":
                return f"Groups that wait for a dead letter: {n}."
            case "failing":
                return f"{messages} waiting for another attempt after a failure."
            case "paused":
                return f"{messages} waiting until it is resumed."
            case "late":
                waited = "long" if self.seconds is None else duration(self.seconds)
                return f"{messages} visible; the oldest has waited for {waited}."
        return f"{self.title}: {n}."


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldNotices:
    """The notices of a target, which one process has until `held_until`, and what was `announced` to it."""

    held_until: datetime
    announced: Any


def hindrance(reasons: Iterable[Attention]) -> Attention | None:
    """Return the reason that keeps a queue from delivering visible messages, among its `reasons`; None without one."""
    stops = ("paused", "breaker_open", "no_worker", "stopped")
    stopping = sorted(
        (reason for reason in reasons if reason.reason in stops),
        key=lambda reason: stops.index(reason.reason),
    )
    return stopping[0] if stopping else None


def duration(seconds: float | None) -> str:
    """Return a length of time by its two largest units: 3 h 5 min, or 20 ms; a dash for None."""
    if seconds is None:
        return "\N{EN DASH}"
    seconds = max(seconds, 0.0)
    if 0 < seconds < 0.0995:
        return f"{max(round(seconds * 1000), 1)} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    left, parts = round(seconds), []
    for size, unit in UNITS:
        if left >= size:
            parts.append(f"{int(left // size)} {unit}")
            left -= int(left // size * size)
        if len(parts) == 2:
            break
    return " ".join(parts)


def _until(moment: datetime) -> str:
    seconds = (moment - datetime.now(UTC)).total_seconds()
    return f"in {duration(seconds)}" if seconds > 0 else "now"
