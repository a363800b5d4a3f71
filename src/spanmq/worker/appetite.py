"""How many messages a worker prefetches. Pure decisions without I/O."""

from typing import Final

# Prefetched messages are withheld from other workers: a worker prefetches at most what its handlers handle in
# this time.
AHEAD_SECONDS: Final = 0.1
# The share of the average handling time that each new message replaces.
FORGETTING: Final = 0.05


class Appetite:
    """Measures how long handlers take, and decides how many messages to hold: one for each slot, more of fast
    ones.

    At most `batch` messages are held, unless there are more slots, and at most `call` are received at once.
    """

    __slots__ = ("_batch", "_call", "_concurrency", "_seconds")

    def __init__(self, *, concurrency: int, batch: int, call: int) -> None:
        self._concurrency = concurrency
        self._batch = batch
        self._call = call
        self._seconds = AHEAD_SECONDS  # nothing is known yet: assume slow handlers

    def resize(self, concurrency: int, batch: int) -> None:
        """Set this queue's share of the slots, which changes with the number of queues."""
        self._concurrency = concurrency
        self._batch = batch

    def record(self, seconds: float) -> None:
        """Record how long a handler took."""
        self._seconds += (seconds - self._seconds) * FORGETTING

    def wanted(self) -> int:
        """Return the number of messages to hold, including those being handled."""
        ahead = AHEAD_SECONDS * self._concurrency / max(self._seconds, 1e-9)
        return max(self._concurrency, min(self._batch, int(ahead)))

    def quantity(self, held: int) -> int:
        """Return the number of messages to receive now; 0 if enough are held.

        While all handlers are busy, the next receive waits until half of the messages are used up.
        """
        missing = self.wanted() - held
        if held < self._concurrency or missing * 2 >= self.wanted():
            return max(0, min(missing, self._call))
        return 0
