"""A slot of a worker: one handler at a time; and what is asked of all slots."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Protocol

from spanmq.worker.job import Job


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
