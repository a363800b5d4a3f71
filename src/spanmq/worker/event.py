"""Events of a worker: small, frozen values for logs, metrics and tests. No I/O here."""

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from operator import call
from typing import Final, TypeVar, dataclass_transform

__all__ = [
    "BreakerClosed",
    "BreakerOpened",
    "BreakerTried",
    "CallFailed",
    "ConnectionBroken",
    "ConnectionRestored",
    "Event",
    "HandlerOverran",
    "HandlerSlow",
    "LeaseExtended",
    "LeaseLost",
    "MessageHandled",
    "MessageSettled",
    "MessagesReceived",
    "SettlingStarted",
    "ShardJoined",
    "ShardLeft",
    "WorkerStarted",
    "WorkerStopped",
    "WorkerStopping",
]

logger = logging.getLogger("spanmq")
Kind = TypeVar("Kind")


@dataclass_transform(frozen_default=True)
def event(kind: type[Kind]) -> type[Kind]:
    """Make an event of a class: a frozen dataclass."""
    return dataclass(frozen=True, slots=True)(kind)


@event
class WorkerStarted:
    """The worker is connected and begins to receive."""

    worker: str
    queues: tuple[str, ...]


@event
class WorkerStopping:
    """The worker receives no more; `reason` is the name of a signal, "asked", "command", "empty" or an error."""

    worker: str
    reason: str


@event
class WorkerStopped:
    """The worker holds no more messages."""

    worker: str
    settled: int


@event
class ShardJoined:
    """A shard was added: the worker now receives from it."""

    queue: str


@event
class ShardLeft:
    """A removed shard is empty or dropped: the worker no longer receives from it."""

    queue: str


@event
class MessagesReceived:
    """`count` messages were received under one lease."""

    queue: str
    lease_id: int
    count: int


@event
class MessageHandled:
    """A handler is done with a message, which is now to be settled. `task` is its task, if it is for one."""

    queue: str
    message_id: int
    attempt: int
    seconds: float
    task: str | None = None


@event
class SettlingStarted:
    """A call to the database that settles `count` messages of a lease begins."""

    queue: str
    lease_id: int
    count: int


@event
class MessageSettled:
    """The outcome of a message in the database: acked, retrying, dead, released, cancelled or stale.

    "unknown" is a stale one that an earlier settlement, on a connection that broke, or the transaction of its
    handler may have acked. `seconds` is the handler's time; `category`, `error_class`, `error` and `traceback`
    describe its failure. `task` is the task that the message is for, if it is for one.
    """

    queue: str
    message_id: int
    outcome: str
    attempt: int
    seconds: float
    task: str | None = None
    category: str | None = None
    error_class: str | None = None
    error: str | None = None
    traceback: str | None = None


@event
class LeaseExtended:
    """A lease holds `count` messages for another `seconds`."""

    queue: str
    lease_id: int
    count: int
    seconds: float


@event
class LeaseLost:
    """A lease expired or was revoked: `count` messages are no longer held, and those not begun are dropped."""

    queue: str
    lease_id: int
    count: int


@event
class HandlerOverran:
    """A handler exceeded its time limit: its message was failed, and a new slot replaces its slot."""

    queue: str
    message_id: int
    attempt: int
    seconds: float
    task: str | None = None


@event
class HandlerSlow:
    """A handler runs unusually long, and runs on: longer than `usual` or near its `limit`, in seconds.

    `usual` is the time within which 99 of 100 of its task ended.
    """

    queue: str
    message_id: int
    attempt: int
    seconds: float
    task: str | None = None
    usual: float | None = None
    limit: float | None = None


@event
class BreakerOpened:
    """The worker receives nothing from this queue for `pause_seconds`: a dependency is down.

    `failures` messages in a row, none of which had failed before, failed because of it; `error` is the error of the
    last one.
    """

    queue: str
    pause_seconds: float
    failures: int
    error: str | None = None


@event
class BreakerTried:
    """Many messages in a row failed, or the pause is over: some of the newest are tried."""

    queue: str


@event
class BreakerClosed:
    """A message was handled, or a command has closed the breaker: the queue is received from."""

    queue: str


@event
class ConnectionBroken:
    """The database does not answer; the next attempt follows in `retry_in` seconds.

    `server` is its name, if the queue is sharded.
    """

    error: str
    retry_in: float
    server: str | None = None


@event
class ConnectionRestored:
    """The database answers again, after `attempts` attempts."""

    attempts: int
    server: str | None = None


@event
class CallFailed:
    """A call failed for another reason than the connection.

    The next attempt follows in `retry_in` seconds; with None there is no other, and the lease ends by itself.
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
    | HandlerSlow
    | BreakerOpened
    | BreakerTried
    | BreakerClosed
    | ConnectionBroken
    | ConnectionRestored
    | CallFailed
)
# An observer may have a method `hears_routine`, which returns whether it uses routine events: those of a
# message that was handled, acked or released. If no observer does, these events are not created.
Observer = Callable[[Event], None]
ROUTINE_OUTCOMES: Final = frozenset({"acked", "released"})


def name_of(event: Event) -> str:
    """Return the name of an event in logs and metrics, for example `message_settled`."""
    return _snake_case(type(event).__name__)


@cache
def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class EventBus:
    """Passes each event to all observers, in the event loop's thread; exceptions of an observer are logged."""

    __slots__ = ("_always_hears", "_asked", "_observers")

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)
        asked = [getattr(observer, "hears_routine", None) for observer in self._observers]
        self._always_hears = None in asked
        self._asked: list[Callable[[], bool]] = [hears for hears in asked if hears is not None]

    def hears_routine(self) -> bool:
        """Return whether any observer uses routine events now."""
        return self._always_hears or any(map(call, self._asked))

    def emit(self, event: Event) -> None:
        """Call all observers."""
        for observer in self._observers:
            try:
                observer(event)
            except Exception:  # any error of an observer
                logger.exception("observer_failed event=%s", name_of(event))
