"""Queues that end with their consumer: positions in a log of what was sent to an exchange.

A queue of ours is shared and stays. So that a killed worker leaves nothing behind, a queue that AMQP deletes with its
consumer (of remote control, of events, of a Broadcast) is not stored: its consumer peeks into one queue for each
exchange, its log, from which nothing is received and in which messages expire.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

from spanmq.celery.envelope import expression_of, key_of, options_of, pattern_of
from spanmq.client import Client
from spanmq.model import Message

# How long messages can be read from a log.
LOG_SECONDS: Final = 300.0
# How long after a message one with a lower id may be committed, and is still read.
LATE_SECONDS: Final = 2.0
# The shortest pause between looks.
GAP_SECONDS: Final = 0.01
# Messages of one look.
LOOK_MAX: Final = 1000
# What the names of logs end with.
LOG: Final = ".broadcast"


def is_brief(queue: str, arguments: Any, *, exclusive: bool) -> bool:
    """Return whether a queue ends with its consumer: it is exclusive, or expires, or is a Broadcast's own."""
    return exclusive or "x-expires" in (arguments or {}) or queue.startswith("bcast.")


@dataclass(eq=False)
class LogPosition:
    """A position in a log: all ids up to `after` were read, and later ones in `seen`, with the time of that."""

    after: int
    seen: dict[int, float] = field(default_factory=dict)
    patterns: dict[str, re.Pattern[str]] = field(default_factory=dict)

    def news(self, messages: list[Message], now: float) -> list[Message]:
        """Return those of the messages after the position that were not read before; `now` is a monotonic clock's.

        Ids have gaps while a sender has not committed: the position stays before a gap for a while.
        """
        fresh = [message for message in messages if message.message_id not in self.seen]
        self.seen.update((message.message_id, now) for message in fresh)
        for message_id in sorted(self.seen):
            if message_id > self.after + 1 and self.seen[message_id] > now - LATE_SECONDS:
                break
            self.after = message_id
            del self.seen[message_id]
        return fresh

    def matches(self, message: Message) -> bool:
        """Return whether a message was sent to a queue of this position, and has not expired."""
        properties = message.body["properties"]
        seconds = float(properties.get("expiration") or "inf") / 1000
        if seconds < (datetime.now(UTC) - message.enqueued_at).total_seconds():
            return False
        key = key_of(properties["delivery_info"]["exchange"], properties["delivery_info"]["routing_key"])
        return any(pattern.fullmatch(key) for pattern in self.patterns.values())


class Cursor:
    """What the consumer of one such queue reads, from its first binding on."""

    def __init__(self) -> None:
        self._positions: dict[str, LogPosition] = {}
        self.waiting: deque[Message] = deque()
        self._looked_at = 0.0

    def bind(self, client: Client, exchange: str, pattern: str) -> None:
        """Read what is sent to an exchange and matches a pattern, from now on; create the log of the exchange."""
        log = exchange + LOG
        all_of_it = pattern_of("fanout", exchange, "")
        if all_of_it not in {binding.pattern for binding in client.topics.list(log)}:
            client.queues.create(log)
            client.queues.set_policy(log, drop_expired=True)
            client.topics.bind(all_of_it, log)
        if log not in self._positions:
            newest = client.peek(log, 1, newest_first=True)
            self._positions[log] = LogPosition(newest[0].message_id if newest else 0)
        self._positions[log].patterns[pattern] = expression_of(pattern)

    def unbind(self, exchange: str, pattern: str) -> None:
        """Read no more of what matches a pattern."""
        if (position := self._positions.get(exchange + LOG)) is not None:
            position.patterns.pop(pattern, None)

    def take(self, client: Client, quantity: int) -> list[Message]:
        """Return up to `quantity` messages."""
        is_due = not self.waiting and monotonic() >= self._looked_at + GAP_SECONDS
        if is_due:
            self._looked_at = monotonic()
        for log, position in self._positions.items() if is_due else ():
            messages = client.peek(log, LOOK_MAX, after=position.after)
            news = filter(position.matches, position.news(messages, monotonic()))
            self.waiting += sorted(news, key=lambda message: -options_of(message.body)["priority"])
        return [self.waiting.popleft() for _ in range(min(quantity, len(self.waiting)))]
