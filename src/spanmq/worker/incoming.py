"""The events that the parts of a worker put into its inbox. Those for observers are in `event`."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spanmq.model import Message
from spanmq.worker.effect import Receive
from spanmq.worker.inbox import PartFailed
from spanmq.worker.job import Job, Lease, Progressed, Verdict

# Of receives and polls.


@dataclass(slots=True)
class Received:
    """A receive ended that was begun at the time `begun_at`, with messages or without."""

    asked: Receive
    messages: list[Message]
    begun_at: float


@dataclass(slots=True)
class ReceiveFailed:
    """A receive failed; `error` is None if the connection was lost."""

    asked: Receive
    error: Exception | None


@dataclass(slots=True)
class QueueReady:
    """A queue may have a message; `is_woken`: it was not only polled."""

    queue: str
    is_woken: bool


@dataclass(slots=True)
class QueueEmpty:
    """A queue has no message for any process."""

    queue: str


@dataclass(slots=True)
class PolicySeen:
    """A queue is ordered, or it is not."""

    queue: str
    is_ordered: bool


@dataclass(slots=True)
class QueuesJoined:
    """Queues of a server are polled from now on."""

    server: str
    queues: Collection[str]
    # Whether the worker has started already: these are new shards.
    is_later: bool = False


@dataclass(slots=True)
class QueueLeft:
    """A shard is to be received from no more."""

    queue: str


# Of handlers.


@dataclass(slots=True)
class HandlerEnded:
    """A slot is done with a job, whose handler may not have been called."""

    job: Job
    verdict: Verdict


@dataclass(slots=True)
class AloneBegun:
    """The delivery of a reserved message has begun; without `messages` it has not."""

    job: Job
    messages: list[Message]


@dataclass(slots=True)
class HandlersLooked:
    """It is time to look which handlers exceed their limits."""


# Of leases and settlements.


@dataclass(slots=True)
class SettlementEnded:
    """A call settled `count` messages of a lease; `is_returned`: some of them will be visible again."""

    server: str
    lease: Lease
    count: int
    is_returned: bool


@dataclass(slots=True)
class ExtensionEnded:
    """A lease was extended at a time for `seconds`, and holds `count` messages; None after an error."""

    lease: Lease
    count: int | None
    begun_at: float
    seconds: float


@dataclass(slots=True)
class CancelAsked:
    """Messages of these queues may have been cancelled that a receiver holds."""

    queues: Collection[str]


@dataclass(slots=True)
class CancelsFound:
    """Messages of a lease have left it; True for those that others may have."""

    lease: Lease
    gone: Mapping[int, bool]


# Of commands, the start and the end.


@dataclass(slots=True)
class CommandAsked:
    """A command asks something of this worker: the next report to the server returns it."""

    server: str


@dataclass(slots=True)
class BreakerCloseAsked:
    """A command closes the breaker of a queue."""

    queue: str


@dataclass(slots=True)
class StopAsked:
    """A command stops this worker."""


@dataclass(slots=True)
class Started:
    """All parts of the worker run."""


@dataclass(slots=True)
class Stopping:
    """Nothing more is to be received."""


@dataclass(slots=True)
class ReceivesEnded:
    """No receive is under way any more: what no handler has begun is to be released."""


@dataclass(slots=True)
class GraceEnded:
    """Handlers that still run are to be cancelled."""


InboxEvent = (
    Received
    | ReceiveFailed
    | QueueReady
    | QueueEmpty
    | PolicySeen
    | QueuesJoined
    | QueueLeft
    | HandlerEnded
    | Progressed
    | AloneBegun
    | HandlersLooked
    | SettlementEnded
    | ExtensionEnded
    | CancelAsked
    | CancelsFound
    | CommandAsked
    | BreakerCloseAsked
    | StopAsked
    | Started
    | Stopping
    | ReceivesEnded
    | GraceEnded
    | PartFailed
)
