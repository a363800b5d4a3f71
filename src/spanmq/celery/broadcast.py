"""Queues that end with their consumer: places in a log of what was sent to an exchange.

A queue of ours is shared and stays. So that a killed worker leaves nothing behind, a queue that AMQP would delete with
its consumer (of remote control, of events, of a Broadcast) is not stored at all: its consumer peeks into one queue for
each exchange, the log, from which nothing is received and in which messages expire.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from spanmq.celery.routing import expression_of, key_of
from spanmq.client import Client
from spanmq.errors import QueueNotFoundError
from spanmq.model import Message

# How long messages can be read from a log.
LOG_SECONDS: Final = 300.0
# How long a message with a lower id than one that was read may be committed after it.
LATE_SECONDS: Final = 2.0
# Messages of one look.
LOOK_MAX: Final = 1000


def log_of(exchange: str) -> str:
    """Return the name of the log of an exchange."""
    return f"{exchange}.broadcast"


def is_log(queue: str) -> bool:
    """Return whether a queue is a log."""
    return queue.endswith(".broadcast")


def is_brief(queue: str, *, exclusive: bool, arguments: Any) -> bool:
    """Return whether a queue ends with its consumer: an exclusive one, one that expires, a Broadcast's own."""
    return exclusive or "x-expires" in (arguments or {}) or queue.startswith("bcast.")


@dataclass(eq=False)
class Place:
    """A place in a log: all up to the id `after` was read, and of the later ones those in `seen`, and when."""

    after: int
    seen: dict[int, float] = field(default_factory=dict)
    patterns: dict[str, re.Pattern[str]] = field(default_factory=dict)

    def read(self, messages: list[Message], now: float) -> list[Message]:
        """Return those that were not read before; `now` is the monotonic clock's.

        Ids have gaps while a sender has not committed: the place stays before a gap for a while.
        """
        fresh = [message for message in messages if message.message_id not in self.seen]
        self.seen.update((message.message_id, now) for message in fresh)
        for message_id in sorted(self.seen):
            if message_id > self.after + 1 and self.seen[message_id] > now - LATE_SECONDS:
                break
            self.after = message_id
            del self.seen[message_id]
        return fresh


class Cursor:
    """What the consumer of one such queue reads, from its first binding on."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self.waiting: deque[Message] = deque()

    def bind(self, client: Client, exchange: str, pattern: str) -> None:
        """Read what is sent to an exchange and matches a pattern; makes the log of the exchange."""
        log = log_of(exchange)
        if log not in self._places:
            newest = client.peek(log, 1, newest_first=True)
            self._places[log] = Place(newest[0].message_id if newest else 0)
        self._places[log].patterns[pattern] = expression_of(pattern)

    def unbind(self, exchange: str, pattern: str) -> None:
        """Read no more of what matches this pattern."""
        if (place := self._places.get(log_of(exchange))) is not None:
            place.patterns.pop(pattern, None)

    def take(self, client: Client, quantity: int) -> list[Message]:
        """Return up to `quantity` messages for the queue."""
        if not self.waiting:
            for log, place in self._places.items():
                try:
                    messages = client.peek(log, LOOK_MAX, after=place.after)
                except QueueNotFoundError:  # it was dropped
                    continue
                news = place.read(messages, monotonic())
                self.waiting += [message for message in news if _matches(place, message)]
        return [self.waiting.popleft() for _ in range(min(quantity, len(self.waiting)))]


def _matches(place: Place, message: Message) -> bool:
    try:
        information = message.body["properties"]["delivery_info"]
        key = key_of(information["exchange"], information["routing_key"])
    except (KeyError, TypeError, AttributeError):
        return False
    return any(pattern.fullmatch(key) for pattern in place.patterns.values())
