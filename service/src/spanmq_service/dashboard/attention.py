"""The reasons for an operator's attention in a queue, the most urgent first, each with a link to its page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spanmq.model import Attention
from spanmq_service.dashboard.formatting import SHORT, address
from spanmq_service.dashboard.page_request import PageRequest

# The tab on which something can be done about a reason; for others it is that of the messages.
PATHS: Final = {
    "no_worker": "/queue/receivers",
    "stopped": "/queue/receivers",
    "breaker_open": "/queue/receivers",
    "dead_letters": "/queue/dead-letters",
    "blocked_groups": "/queue/groups",
    "failing": "/queue/failing",
}
# Those that keep a queue from delivering: its tabs begin with them.
STOPS: Final = ("no_worker", "stopped", "breaker_open", "paused")


@dataclass(frozen=True, slots=True)
class QueueProblem:
    """A badge, a sentence, and the page on which something can be done about it; `rank` 0 is the most urgent."""

    rank: int
    badge: str
    words: str
    href: str
    is_bad: bool
    is_stop: bool


async def problems_of(
    request: PageRequest, queues: Sequence[str] | None = None
) -> dict[str, list[QueueProblem]]:
    """Return the problems of these queues, or (None) of all that the visitor may look at, by the queue's name."""
    return by_queue(request.seen(await request.backend.client.health.attention(queues)))


def by_queue(reasons: Iterable[Attention]) -> dict[str, list[QueueProblem]]:
    """Return the problems of each queue, the most urgent first."""
    problems: dict[str, list[QueueProblem]] = {}
    for reason in reasons:
        words = reason.words if len(reason.words) <= 2 * SHORT else f"{reason.words[: 2 * SHORT - 1]}…"
        problem = QueueProblem(
            reason.rank,
            reason.title,
            words,
            address(PATHS.get(reason.reason, "/queue/messages"), queue=reason.queue),
            is_bad=reason.level == "problem" or reason.reason == "no_worker",
            is_stop=reason.reason in STOPS,
        )
        problems.setdefault(reason.queue, []).append(problem)
    for of_queue in problems.values():
        of_queue.sort(key=lambda problem: problem.rank)
    return problems
