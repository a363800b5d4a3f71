"""Times of polls: the pauses of every receive, worker, stream and waiting request.

A notification ends a pause early. See docs/internals/wake-up.md.
"""

from time import monotonic
from typing import Final, Self

# The first look follows soon, when the server's throttle of notifications is over, each further one after
# twice the time.
FIRST_SECONDS: Final = 0.005
GROWTH: Final = 2.0
# The longest pause of a process that may receive no notifications.
LONGEST_SECONDS: Final = 0.5
# A worker that receives notifications looks for all its queues at once, and less often: first for a transaction that
# began long ago and may commit at any time. From 5 ms on it made a fifth more looks, and had messages no sooner.
HEARD_FIRST_SECONDS: Final = 0.012
HEARD_GROWTH: Final = 10.0
# The longest pause of a process that receives notifications. Messages that become visible within 4 s are announced at
# once, so no earlier look is needed; others are asked for ahead within this time.
HEARD_SECONDS: Final = 3.0
# A pause of at least this length is worth the question when a message becomes visible; a shorter one takes no
# longer than the answer.
AHEAD_SECONDS: Final = 0.1
# The minimal pause after that: a due message may be locked by another session.
DUE_SECONDS_MIN: Final = 0.001


class Due:
    """The time at which the next message becomes visible; read before a poll, which then finds those in between."""

    __slots__ = ("_at",)

    def __init__(self, seconds: float | None = None) -> None:
        self._at = float("inf") if seconds is None else monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Return whether that time has passed."""
        return self._at <= monotonic()

    def within(self, seconds: float) -> float:
        """Return `seconds`, or the time until then if that is shorter."""
        return min(seconds, max(self._at - monotonic(), DUE_SECONDS_MIN))


class Polling:
    """The pauses of one wait: `first` seconds (None: 5 ms), each further one `growth` times as long, up to `longest`.

    Before a look, `is_asking` says whether to ask when the next message becomes visible, and set `due`; `pause` is how
    long to wait after it, and `paused` is told whether an announcement ended that.
    """

    __slots__ = ("_first", "_growth", "_interval", "_is_announced", "due", "is_asking", "longest")

    def __init__(
        self, longest: float = LONGEST_SECONDS, *, first: float | None = None, growth: float = GROWTH
    ) -> None:
        self.longest = longest
        self._first = FIRST_SECONDS if first is None else first
        self._growth = growth
        self._interval = self._first
        self._is_announced = False
        self.due = Due()
        self.is_asking = self._first >= AHEAD_SECONDS

    @classmethod
    def of_worker(cls, longest: float | None = None, *, is_heard: bool = True) -> Self:
        """Return those of a worker, up to `longest` seconds if it has such a setting."""
        if not is_heard:
            return cls(LONGEST_SECONDS if longest is None else longest)
        longest = HEARD_SECONDS if longest is None else longest
        return cls(longest, first=HEARD_FIRST_SECONDS, growth=HEARD_GROWTH)

    def restart(self) -> None:
        """Begin again with the first pause: messages come."""
        self._interval = self._first

    @property
    def seconds(self) -> float:
        """The pause without regard to what becomes due."""
        # An announced message that was not found may become visible in a moment: ask soon.
        return min(self._interval, AHEAD_SECONDS) if self._is_announced else self._interval

    @property
    def pause(self) -> float:
        """The pause, which ends when a message becomes due."""
        return self.due.within(self.seconds)

    def paused(self, is_announced: bool = False) -> None:
        """Note the end of a pause, and whether an announcement ended it."""
        self._interval = min(self._interval * self._growth, self.longest)
        self._is_announced = is_announced
        # A visible message that cannot be received (paused, behind others) must not cause one look after another.
        self.is_asking = self._interval >= AHEAD_SECONDS and not is_announced and not self.due.is_over
        self.due = Due()
