"""The state of queues: exact where counting is cheap, otherwise from the last sample. The head of a queue's tabs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from spanmq.errors import QueueNotFoundError
from spanmq.model import LatestStatistics, QueueCount
from spanmq_service.backend import Backend
from spanmq_service.dashboard.attention import QueueProblem, problems_of
from spanmq_service.dashboard.page_request import PageRequest

# A queue that had more when it was sampled is not looked at: it would be in vain.
BACKLOG_MAX: Final = 20_000
# Messages that are counted in a queue, and in all queues of a page.
RUNS_MAX: Final = 200
RUNS_OF_ALL: Final = 2_000
# The path and the label of each tab.
TABS: Final = (
    ("/queue", "Overview"),
    ("/queue/messages", "Messages"),
    ("/queue/failing", "Failing"),
    ("/queue/dead-letters", "Dead letters"),
    ("/queue/receivers", "Receivers"),
    ("/queue/groups", "Groups"),
    ("/queue/policy", "Policy"),
    ("/queue/storage", "Storage"),
    ("/queue/changes", "Changes"),
)


@dataclass(frozen=True, slots=True)
class QueueState:
    """One queue. `is_exact`: the counts are current; otherwise of `sampled_at`, or unknown (None).

    `hidden` messages are `delayed` or `failed`, which are known apart only where the counts are exact.
    """

    queue: str
    is_exact: bool
    backlog: int | None
    visible: int | None
    in_flight: int | None
    hidden: int | None
    delayed: int | None
    failed: int | None
    dead_letters: int
    sent_total: int
    oldest_ready_seconds: float | None
    sent_rate: float
    settled_rate: float
    failed_rate: float
    sampled_at: datetime | None
    blocked_groups: int
    failing: int
    workers: int
    is_paused: bool
    breaker_open_until: datetime | None

    @property
    def failing_now(self) -> int:
        """Return how many messages wait for another attempt, up to 1,000 where they are not counted exactly."""
        return self.failing if self.failed is None else self.failed


async def queue_states(backend: Backend, names: Sequence[str] | None = None) -> list[QueueState]:
    """Return the state of these queues, or (None) of all as of their last samples, without counting.

    Queues that do not exist are left out.
    """
    latest = await backend.client.health.latest(names)
    if names is None:
        return [_state_of(sample, None) for sample in latest]
    small = [sample.queue for sample in latest if sample.backlog <= BACKLOG_MAX]
    if not small:
        return [_state_of(sample, None) for sample in latest]
    most = max(min(RUNS_MAX, RUNS_OF_ALL // len(small)), 1)
    counts = {count.queue: count for count in await backend.client.inspect.count(small, most=most)}
    return [_state_of(sample, counts.get(sample.queue)) for sample in latest]


def _state_of(latest: LatestStatistics, exact: QueueCount | None) -> QueueState:
    seconds = latest.duration_seconds or 1.0
    is_exact = exact is not None and exact.is_exact
    is_known = is_exact or latest.sampled_at is not None
    counts: QueueCount | LatestStatistics = exact if exact is not None and is_exact else latest
    backlog, visible, in_flight = (counts.backlog, counts.visible, counts.in_flight)
    hidden = None
    if backlog is not None and visible is not None and in_flight is not None:
        hidden = max(backlog - visible - in_flight, 0)
    return QueueState(
        queue=latest.queue,
        is_exact=is_exact,
        backlog=backlog if is_known else None,
        visible=visible if is_known else None,
        in_flight=in_flight if is_known else None,
        hidden=hidden if is_known else None,
        delayed=exact.delayed if exact is not None and is_exact else None,
        failed=exact.failed if exact is not None and is_exact else None,
        dead_letters=latest.dead_letters,
        sent_total=latest.sent_total,
        # For an empty queue, the last sample may include messages that have since been settled.
        oldest_ready_seconds=latest.oldest_ready_seconds if visible else None,
        sent_rate=latest.sent / seconds,
        settled_rate=latest.settled / seconds,
        failed_rate=latest.failed / seconds,
        sampled_at=latest.sampled_at,
        blocked_groups=latest.blocked_groups,
        failing=latest.failing,
        workers=latest.workers,
        is_paused=latest.is_paused,
        breaker_open_until=latest.breaker_open_until,
    )


@dataclass(frozen=True, slots=True)
class QueueHead:
    """The head of a queue's tabs: its name as it was created, its state, its problems, and all tabs."""

    queue: str
    state: QueueState
    problems: list[QueueProblem]
    tabs: tuple[tuple[str, str], ...] = TABS


async def head_of(request: PageRequest) -> QueueHead:
    """Return the head of the queue that the URL names; raises QueueNotFoundError if it does not exist."""
    name = request.queue
    states, problems = await asyncio.gather(
        queue_states(request.backend, [name]), problems_of(request, [name])
    )
    if not states:
        raise QueueNotFoundError(f"queue {name!r} does not exist", queue=name)
    return QueueHead(states[0].queue, states[0], problems.get(states[0].queue, []))
