"""How many messages a worker takes ahead of its handlers. Decides only."""

from __future__ import annotations

from typing import Final

# Messages that wait in a worker are missed by others: as many as are handled in so many seconds, no more.
AHEAD_SECONDS: Final = 0.1
# Of what is known of a handler's time, so much is forgotten with each message.
FORGETTING: Final = 0.05


class Appetite:
    """Knows how long handlers take, and says how many messages to hold: one a slot, and what goes fast.

    At most `batch` messages are held, unless there are more slots, and at most `call` come at once.
    """

    __slots__ = ("_batch", "_call", "_concurrency", "_seconds")

    def __init__(self, *, concurrency: int, batch: int, call: int) -> None:
        self._concurrency = concurrency
        self._batch = batch
        self._call = call
        self._seconds = AHEAD_SECONDS  # nothing is known yet: as if they were slow

    def resize(self, concurrency: int, batch: int) -> None:
        """Take another share of the slots: there are more queues now, or fewer."""
        self._concurrency = concurrency
        self._batch = batch

    def record(self, seconds: float) -> None:
        """Note how long a handler took."""
        self._seconds += (seconds - self._seconds) * FORGETTING

    def wanted(self) -> int:
        """Give the number of messages to hold, begun ones included."""
        ahead = AHEAD_SECONDS * self._concurrency / max(self._seconds, 1e-9)
        return max(self._concurrency, min(self._batch, int(ahead)))

    def quantity(self, held: int) -> int:
        """Give the number of messages to receive now; 0: enough is there.

        While every handler has something to do, a call waits until it is worth it: for half of the lot.
        """
        missing = self.wanted() - held
        if held < self._concurrency or missing * 2 >= self.wanted():
            return max(0, min(missing, self._call))
        return 0
