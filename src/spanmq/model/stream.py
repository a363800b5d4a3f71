"""Bulk consumers of queues: streams and jobs of the pipeline."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A stream that consumes a queue: one checkpoint of it.

    It has claimed batches up to `batch`, those up to `settled` are done, and it holds `held` messages. Its
    last call was at `seen_at`, to the minute.
    """

    queue: str
    receiver_id: str
    label: str | None
    state: str
    batch: int
    settled: int
    held: int
    created_at: datetime
    opened_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """A run of a job of the pipeline; `queue` is None if it has several queues.

    `state` is "running", "succeeded", "failed", or "lost": not heard of (`seen_at`) for two minutes.
    """

    run_id: int
    job: str
    queue: str | None
    target: str | None
    begun_by: str
    state: str
    begun_at: datetime
    seen_at: datetime
    ended_at: datetime | None
    done: int | None
    report: dict[str, Any] | None
    error: str | None
