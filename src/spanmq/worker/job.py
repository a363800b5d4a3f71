"""What a worker holds: messages under a lease, a job for each call of the handler, and slots that run the jobs."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from spanmq.client.argument import Seconds
from spanmq.model import Message
from spanmq.worker.failure import HandlerFailure
from spanmq.worker.inbox import Inbox


class Lease:
    """A lease of `seconds`. Its times are of this process's monotonic clock, not of the calendar.

    `undecided` messages are waiting or being handled, `unsettled` ones are these and those whose settlement
    the database has not confirmed. `jobs` are those of its messages until all are decided. Progress of their handlers
    is put into the `inbox`, if there is one.
    """

    __slots__ = (
        "ends_at",
        "inbox",
        "is_lost",
        "jobs",
        "lease_id",
        "message_ids",
        "queue",
        "received_at",
        "seconds",
        "undecided",
        "unsettled",
    )

    def __init__(
        self,
        queue: str,
        lease_id: int,
        message_ids: Sequence[int],
        received_at: float,
        seconds: float,
        inbox: Inbox | None = None,
    ) -> None:
        self.queue = queue
        self.lease_id = lease_id
        # Those of the receive, settled or not.
        self.message_ids = message_ids
        self.received_at = received_at
        self.seconds = seconds
        self.ends_at = received_at + seconds
        self.undecided = self.unsettled = len(message_ids)
        self.is_lost = False
        self.inbox = inbox
        self.jobs: list[Job] = []


@dataclass(slots=True)
class Progressed:
    """A handler has reported its progress."""

    queue: str


class Job:
    """One call of the handler. It is decided once: by its end, by its overrun, or by being dropped.

    `is_doubtful` says that its messages may have been acked in the handler's transaction, even if that failed;
    `is_behind` that one before it in its group failed, with which the database releases it. `is_cancelled` says that
    the handler is to end, `is_taken` that this is because others may have its messages, and `is_over` that it has.
    `is_trial` says that it shows whether the breaker closes, `retries` of its messages were received before. `result`
    is JSON that is stored with the ack, and with `is_unstored` the reason why the server stores none. `progress` is the
    share and the note that the handler has reported last, `is_told` that the worker knows of it. `is_slow` says that it
    was named for taking unusually long, `is_placed` that it was passed on to the slots, and `thread` in which thread it
    runs, if not in that of its slot.
    """

    __slots__ = (
        "group",
        "is_behind",
        "is_cancelled",
        "is_decided",
        "is_doubtful",
        "is_over",
        "is_placed",
        "is_slow",
        "is_taken",
        "is_told",
        "is_trial",
        "is_unstored",
        "lease",
        "messages",
        "progress",
        "result",
        "retries",
        "seconds",
        "thread",
    )

    def __init__(self, messages: list[Message], lease: Lease, group: str | None) -> None:
        self.messages = messages
        self.lease = lease
        self.group = group
        self.is_decided = self.is_doubtful = self.is_behind = False
        self.is_cancelled = self.is_taken = self.is_over = self.is_trial = self.is_unstored = False
        self.retries = sum(message.attempt > 1 for message in messages)
        self.seconds = 0.0
        self.is_slow = self.is_placed = self.is_told = False
        self.thread: int | None = None
        self.result = ""
        self.progress: tuple[float, str] | None = None

    def report(self, share: float, note: str) -> None:
        """Take a progress of the handler, from any thread."""
        self.progress = (share, note)
        # Once until the next report, which takes the last one.
        if not self.is_told and self.lease.inbox is not None:
            self.is_told = True
            self.lease.inbox.put_from_thread(Progressed(self.lease.queue))


@dataclass(frozen=True, slots=True)
class Released:
    """The job was not handled, or its lease was lost; the attempt does not count.

    Its messages are visible again after `delay` seconds.
    """

    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Gone:
    """The database needs no report: the message is settled already, or no longer held."""

    outcome: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A success; the result of each job is stored with the ack, for `keep_for` seconds."""

    keep_for: Seconds


# The result of a job: None is a success.
Verdict = HandlerFailure | Released | Gone | Stored | None


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Stands for a body that the decoder refused."""

    error: Exception


class Slot:
    """One handler at a time."""

    __slots__ = ("is_abandoned", "job", "started_at", "task", "thread")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.started_at = 0.0
        self.is_abandoned = False
        self.task: asyncio.Task[None] | None = None
        self.thread: int | None = None

    def begin(self, job: Job, now: float) -> bool:
        """Take a job; return whether it is still undecided and its lease still valid."""
        self.started_at = now
        self.job = job
        is_ended = job.is_decided or job.is_cancelled
        return not (is_ended or job.lease.is_lost or now >= job.lease.ends_at)


def running(slots: Iterable[Slot]) -> Iterator[tuple[Slot, Job, float]]:
    """Yield the running jobs, and since when they run."""
    # An atomic copy: a thread that ends removes its slot meanwhile.
    for slot in tuple(slots):
        if (job := slot.job) is not None and not job.is_decided:
            yield slot, job, slot.started_at


class Slots(Protocol):
    """The slots of a worker, and the jobs that wait for them."""

    def add(self, job: Job) -> None:
        """Queue a job for the next free slot."""

    def take_back(self) -> list[Job]:
        """Remove and return the jobs that no slot has begun."""

    def running(self) -> Iterator[tuple[Slot, Job, float]]:
        """Yield the running jobs, and since when they run."""
