"""The reasons for an operator's attention in a queue, the most urgent first, each with a link to its page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spanmq.model import Attention
from spanmq_service.dashboard.visit import Visit
from spanmq_service.dashboard.wording import SHORT, address

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
class Problem:
    """A badge, a sentence, and the page on which something can be done about it; `rank` 0 is the most urgent."""

    rank: int
    badge: str
    words: str
    href: str
    is_bad: bool
    is_stop: bool


async def problems_of(visit: Visit, queues: Sequence[str] | None = None) -> dict[str, list[Problem]]:
    """Return the problems of these queues, or (None) of all that the visitor may look at, by the queue's name."""
    return by_queue(visit.seen(await visit.backend.client.health.attention(queues)))


def by_queue(reasons: Iterable[Attention]) -> dict[str, list[Problem]]:
    """Return the problems of each queue, the most urgent first."""
    found: dict[str, list[Problem]] = {}
    for each in reasons:
        words = each.words if len(each.words) <= 2 * SHORT else f"{each.words[: 2 * SHORT - 1]}…"
        problem = Problem(
            each.rank,
            each.title,
            words,
            address(PATHS.get(each.reason, "/queue/messages"), queue=each.queue),
            is_bad=each.level == "problem" or each.reason == "no_worker",
            is_stop=each.reason in STOPS,
        )
        found.setdefault(each.queue, []).append(problem)
    return {queue: sorted(problems, key=lambda each: each.rank) for queue, problems in found.items()}
