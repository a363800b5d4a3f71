"""The pauses before a lost server is connected to again: one rule for workers, listeners and the pools of clients.

A refused connection costs the server nothing, and one that it answers with "starting up" a millisecond, so pauses
need only spread the connections that succeed: over a tenth of the time that everything has waited for anyway.
"""

import random
from collections.abc import Callable
from time import monotonic
from typing import Final

# The longest pause as a share of the time for which the outage has lasted, and its limits.
SHARE: Final = 0.1
PAUSE_SECONDS_MIN: Final = 0.5
PAUSE_SECONDS_MAX: Final = 5.0
# A connection that breaks sooner does not end an outage: the next attempts do not start with short pauses again.
STABLE_SECONDS: Final = 1.0


class Outage:
    """An outage of a server, from the first failure of a connection until one works.

    `draw` returns a random number between two others.
    """

    __slots__ = ("_began_at", "_clock", "_draw", "_ended_at")

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._clock = clock
        self._draw = draw
        self._began_at: float | None = None
        self._ended_at: float | None = None

    def failed(self) -> float:
        """Record that a connection broke, or could not be made; return the seconds until the next attempt.

        The first attempt follows at once.
        """
        now = self._clock()
        # Read once: the threads of a pool share this object.
        ended_at, self._ended_at = self._ended_at, None
        is_over = ended_at is not None and now - ended_at >= STABLE_SECONDS
        began_at = self._began_at
        if began_at is None or is_over:
            self._began_at = now
            return 0.0
        longest = min(max(PAUSE_SECONDS_MIN, SHARE * (now - began_at)), PAUSE_SECONDS_MAX)
        return self._draw(longest / 2, longest)

    def first_pause(self) -> float:
        """Return the seconds of a pause that follows the first attempt, drawn anew."""
        return self._draw(PAUSE_SECONDS_MIN / 2, PAUSE_SECONDS_MIN)

    def end(self) -> None:
        """Record that a connection works."""
        if self._began_at is not None and self._ended_at is None:
            self._ended_at = self._clock()
