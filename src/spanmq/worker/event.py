"""What a worker tells about itself: small, frozen values for logs, metrics and tests. No I/O here."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import call
from typing import Final

logger = logging.getLogger("spanmq")


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """The worker is connected and begins to receive."""

    worker: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerStopping:
    """The worker takes no more; `reason` is a signal's name, "asked" or an error."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerStopped:
    """The worker holds nothing any more."""

    worker: str
    settled: int


@dataclass(frozen=True, slots=True)
class ShardJoined:
    """A shard was added: from now on it is received from."""

    queue: str


@dataclass(frozen=True, slots=True)
class ShardLeft:
    """A shard that was removed is empty, or dropped: it is received from no more."""

    queue: str


@dataclass(frozen=True, slots=True)
class MessagesReceived:
    """So many messages came under one lease."""

    queue: str
    lease_id: int
    count: int


@dataclass(frozen=True, slots=True)
class MessageHandled:
    """A handler is through with a message: from now on it is to be settled."""

    queue: str
    message_id: int
    attempt: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SettlingStarted:
    """A call that settles `count` messages of a lease goes to the database."""

    queue: str
    lease_id: int
    count: int


@dataclass(frozen=True, slots=True)
class MessageSettled:
    """What the database made of a message: acked, retrying, dead, released or stale.

    "unknown" is a stale one whose settlement had been tried before on a connection that broke: that one may
    have taken effect. `seconds` is the handler's time; `category`, `error_class`, `error` and `traceback`
    are its failure.
    """

    queue: str
    message_id: int
    outcome: str
    attempt: int
    seconds: float
    category: str | None = None
    error_class: str | None = None
    error: str | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseExtended:
    """A lease holds `count` messages for another `seconds`."""

    queue: str
    lease_id: int
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A lease ran out or was taken away: `count` messages are another's now, those that wait are dropped."""

    queue: str
    lease_id: int
    count: int


@dataclass(frozen=True, slots=True)
class HandlerOverran:
    """A handler took longer than it may: its message was nacked, its slot has a successor."""

    queue: str
    message_id: int
    attempt: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BreakerOpened:
    """A dependency fails too often: nothing is received from this queue for `pause_seconds`.

    `failures` of the last `messages` had it as their reason; `error` is the text of the last one.
    """

    queue: str
    pause_seconds: float
    failures: int
    messages: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class BreakerTried:
    """The pause is over: one message is let through."""

    queue: str


@dataclass(frozen=True, slots=True)
class BreakerClosed:
    """The dependency works again."""

    queue: str


@dataclass(frozen=True, slots=True)
class ConnectionBroken:
    """The database does not answer; the next try comes in `retry_in` seconds."""

    error: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class ConnectionRestored:
    """The database answers again, after `attempts` tries."""

    attempts: int


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A call failed for another reason than the connection.

    The next try comes in `retry_in` seconds; with None there is none, and the lease ends by itself.
    """

    queue: str
    error: str
    retry_in: float | None


Event = (
    WorkerStarted
    | WorkerStopping
    | WorkerStopped
    | ShardJoined
    | ShardLeft
    | MessagesReceived
    | MessageHandled
    | SettlingStarted
    | MessageSettled
    | LeaseExtended
    | LeaseLost
    | HandlerOverran
    | BreakerOpened
    | BreakerTried
    | BreakerClosed
    | ConnectionBroken
    | ConnectionRestored
    | CallFailed
)
# One that has a method `hears_routine` is asked by it whether it looks at the routine: at a message that was
# handled, and one that was acked or released. While nobody does, these events are not even made.
Observer = Callable[[Event], None]
ROUTINE_OUTCOMES: Final = frozenset({"acked", "released"})


def name_of(event: Event) -> str:
    """Give the name of an event in logs and metrics: `message_settled`."""
    name = type(event).__name__
    if name not in _NAMES:
        _NAMES[name] = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return _NAMES[name]


_NAMES: dict[str, str] = {}


class Seam:
    """Passes each event to all observers, in the event loop's thread; what one of them raises is logged."""

    __slots__ = ("_always_hears", "_asked", "_observers")

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)
        asked = [getattr(observer, "hears_routine", None) for observer in self._observers]
        self._always_hears = None in asked
        self._asked: list[Callable[[], bool]] = [each for each in asked if each is not None]

    def hears_routine(self) -> bool:
        """Tell whether any observer looks at the routine, now."""
        return self._always_hears or any(map(call, self._asked))

    def emit(self, event: Event) -> None:
        """Tell all observers."""
        for observer in self._observers:
            try:
                observer(event)
            except Exception:  # the observer's own affair, whatever it is
                logger.exception("observer_failed event=%s", name_of(event))
