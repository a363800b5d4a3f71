"""One pool of slots for all queues of a worker: how many messages of which queue to receive. No I/O here."""

from heapq import heapify, heappop, heappush
from typing import Final

from spanmq.worker.setting import Settings

# Prefetched messages are withheld from other workers: a worker prefetches at most what its handlers handle in
# this time.
AHEAD_SECONDS: Final = 0.1
# The share of the average handling time that each new message replaces.
FORGETTING: Final = 0.05


class Share:
    """The share of one queue in the pool: messages that a handler has or waits for, and requested messages.

    A slot holds one message, more of fast ones. `is_ready` says that the queue may have a message; `at_most`
    limits how many are held, if it is given. `retries` of those held were received before: they may be slow, however
    fast others are, and where handlers take batches, each is one.
    """

    __slots__ = (
        "_batch",
        "_concurrency",
        "_in_batches",
        "_limit",
        "_retry_seconds",
        "_seconds",
        "asked",
        "at_most",
        "guaranteed",
        "held",
        "is_ready",
        "parked",
        "passed",
        "retries",
        "weight",
    )

    def __init__(self, queue: str, settings: Settings) -> None:
        self.weight = settings.weights.get(queue, 1.0)
        self.guaranteed = settings.guaranteed.get(queue, 0)
        self.held = self.asked = self.retries = 0
        # Those of `held` that wait for another message of their group or kind: they occupy no slot.
        self.parked = 0
        self.is_ready = False
        self.at_most: int | None = None
        # The slots that this queue has been given so far, divided by its weight: the least comes first.
        self.passed = 0.0
        self._limit = settings.limits.get(queue)
        self._concurrency = settings.concurrency
        self._batch = settings.batch
        self._in_batches = settings.in_batches
        self._seconds = self._retry_seconds = AHEAD_SECONDS  # nothing is known yet: assume slow handlers

    def record(self, seconds: float, *, is_retry: bool = False) -> None:
        """Record how long a handler took for a message."""
        if is_retry:
            self._retry_seconds += (seconds - self._retry_seconds) * FORGETTING
        else:
            self._seconds += (seconds - self._seconds) * FORGETTING

    @property
    def per_slot(self) -> int:
        """The messages that one slot holds, including the one being handled."""
        return self._batch if self._in_batches else self._ahead(self._seconds)

    @property
    def retries_per_slot(self) -> int:
        """The same, of messages that were received before."""
        return 1 if self._in_batches else self._ahead(self._retry_seconds)

    def _ahead(self, seconds: float) -> int:
        if self._limit is not None:
            return 1
        return max(1, min(self._batch // self._concurrency, int(AHEAD_SECONDS / max(seconds, 1e-9))))

    @property
    def working(self) -> int:
        """The messages held or asked for that are not parked; the batches, if handlers take batches."""
        return self.slots if self._in_batches else self.held - self.parked + self.asked

    @property
    def slots(self) -> int:
        """The slots that this queue occupies."""
        return -(-self._others // self.per_slot) + -(-self.retries // self.retries_per_slot)

    @property
    def refill(self) -> int:
        """The messages that the only slot of this queue has room for, if half of it is empty; else 0."""
        others = self._others
        spare = self.per_slot - others
        return spare if spare >= others > 0 and not (self._in_batches or self.retries) else 0

    @property
    def _others(self) -> int:
        """The messages held or asked for that are neither parked nor were received before."""
        return max(self.held - self.retries - self.parked + self.asked, 0)

    @property
    def ceiling(self) -> int:
        """The slots that this queue may occupy."""
        return self._concurrency if self._limit is None else self._limit

    @property
    def room_for_retries(self) -> int:
        """Return the number of further retries that may be held while other messages wait: half of the slots."""
        return max((self.ceiling * self.retries_per_slot + 1) // 2 - self.retries, 0)

    @property
    def room(self) -> int:
        """The messages that may be received, whatever slots are free; parked ones count, too."""
        most = self.ceiling * self.per_slot
        return max(0, min(most if self.at_most is None else self.at_most, most) - self.held - self.asked)


class Pool:
    """The shares of all queues.

    A free slot goes to the queue with the fewest for its weight, of those that may have a message and are
    below their limit. A guaranteed slot is left to its queue.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._shares: dict[str, Share] = {}
        # Those that are ready, or occupy something: few of many queues.
        self._active: dict[str, Share] = {}
        self._guaranteed = 0
        self._passed = 0.0
        # Whether all handlers were busy, or no slot was left, at the last division.
        self.is_full = False

    def join(self, queue: str) -> Share:
        """Return the share of a queue, which takes part from now on."""
        share = self._shares.get(queue)
        if share is None:
            share = self._shares[queue] = Share(queue, self._settings)
            self._guaranteed += share.guaranteed
        share.at_most = None
        return share

    def leave(self, queue: str) -> None:
        """Receive no more from a queue; it takes part as long as it holds messages."""
        self._shares[queue].at_most = 0

    def ready(self, queue: str) -> None:
        """Record that a queue may have a message."""
        share = self._active[queue] = self._shares[queue]
        share.is_ready = True

    def exhausted(self, queue: str) -> None:
        """Record that a queue has no message now."""
        self._shares[queue].is_ready = False

    def quantities(self) -> dict[str, int]:
        """Return how many messages to receive now, of each queue from which any are to be received."""
        concurrency = self._settings.concurrency
        slots: dict[str, int] = {}
        line: list[tuple[float, float, str]] = []
        free = concurrency - self._guaranteed
        working = 0
        for queue, share in [*self._active.items()]:
            if share.held or share.asked:
                slots[queue] = occupied = share.slots
                free -= max(0, occupied - share.guaranteed)
                working += share.working
            elif share.is_ready:
                slots[queue] = occupied = 0
            else:
                del self._active[queue]
                continue
            # One that holds nothing has room: hundreds of queues may be ready.
            has_room = (not share.held and share.at_most is None) or share.room
            if share.is_ready and not share.asked and has_room:
                line.append((occupied / share.weight, share.passed, queue))
        granted: dict[str, int] = {}
        ready = [queue for *_, queue in line]
        heapify(line)
        while line and (free > 0 or self._guaranteed):
            _, passed, queue = heappop(line)
            share = self._active[queue]
            more = granted.get(queue, 0)
            occupied = slots[queue] + more
            if occupied >= share.ceiling or more * share.per_slot >= share.room:
                continue
            if occupied >= share.guaranteed:
                if free <= 0:
                    continue
                free -= 1
            granted[queue] = more + 1
            heappush(line, ((occupied + 1) / share.weight, passed, queue))
        # While all handlers are busy, a receive waits until half of the messages are used up.
        is_busy = working >= concurrency
        self.is_full = is_busy or free <= 0
        quantities = {
            queue: count * self._active[queue].per_slot
            for queue, count in granted.items()
            if not is_busy or count >= slots[queue]
        }
        # A slot that waits for no other queue is refilled before it is empty: its handler does not wait for a receive.
        if all(slots[queue] or queue in granted for queue in ready):
            refills = {queue: self._active[queue].refill for queue in ready if queue not in granted}
            quantities |= {queue: count for queue, count in refills.items() if count}
        return {
            queue: min(count, self._active[queue].room, self._settings.batch)
            for queue, count in quantities.items()
        }

    def asked(self, queue: str, quantity: int) -> None:
        """Record that `quantity` messages are being received."""
        share = self._active[queue] = self._shares[queue]
        share.asked = quantity
        # A queue that had no messages for a time does not catch up on it.
        share.passed = max(share.passed, self._passed)
        self._passed = share.passed
        share.passed += -(-quantity // share.per_slot) / share.weight
