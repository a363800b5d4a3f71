"""What a worker does next, as values: Machine decides, Engine does. An event for observers is one, too."""

from collections.abc import Collection
from dataclasses import dataclass

from spanmq.worker.event import Event
from spanmq.worker.failure import HandlerFailure
from spanmq.worker.job import Job, Lease, Released, Slot, Stored


@dataclass(slots=True)
class Receive:
    """Receive up to `quantity` messages, of these up to `retries` (None: any number) that were received before.

    `is_trial` says that they show whether the breaker closes; `is_newest` asks for the newest messages.
    """

    queue: str
    quantity: int
    retries: int | None
    is_trial: bool = False
    is_newest: bool = False


@dataclass(slots=True)
class Settle:
    """Settle jobs of one lease, which have the same verdict."""

    server: str
    lease: Lease
    verdict: HandlerFailure | Released | Stored | None
    jobs: list[Job]


@dataclass(slots=True)
class Extend:
    """Extend a lease for this time."""

    lease: Lease
    seconds: float


@dataclass(slots=True)
class FindCancelled:
    """Ask which of these messages have left their lease."""

    lease: Lease
    ids: list[int]


@dataclass(slots=True)
class BeginAlone:
    """Begin the delivery of a reserved message."""

    job: Job


@dataclass(slots=True)
class Cancel:
    """Cancel the handler in a slot, whose end is waited for."""

    slot: Slot


@dataclass(slots=True)
class Abandon:
    """Cancel the handler in a slot, whose job is decided; `replace` opens a slot in its place."""

    slot: Slot
    replace: bool


@dataclass(slots=True)
class Poll:
    """Poll the queues of a server soon, and believe no poll under way of the queue `received`."""

    server: str
    received: str | None = None


@dataclass(slots=True)
class SetRoom:
    """The worker has a free slot, or it has none."""

    server: str
    has_room: bool


@dataclass(slots=True)
class PassOn:
    """Wake other processes for messages of these queues; `is_busy`: this one has no free slot."""

    server: str
    queues: Collection[str]
    is_busy: bool


@dataclass(slots=True)
class Report:
    """Report to a server soon."""

    server: str


@dataclass(slots=True)
class Later:
    """Put an event into the inbox at a time."""

    at: float
    event: object


@dataclass(slots=True)
class Finish:
    """Stop the worker, for a reason."""

    reason: str


@dataclass(slots=True)
class Crash:
    """End the worker with an error."""

    error: BaseException


Effect = (
    Receive
    | Settle
    | Extend
    | FindCancelled
    | BeginAlone
    | Cancel
    | Abandon
    | Poll
    | SetRoom
    | PassOn
    | Report
    | Later
    | Finish
    | Crash
    | Event
)
