"""The common head of the tabs of a queue: its name and state, buttons, and the tabs."""

import asyncio
from dataclasses import dataclass
from typing import Final

from spanmq.errors import QueueNotFoundError
from spanmq_service.dashboard.attention import Problem, problems_of
from spanmq_service.dashboard.standing import Standing, standing_of
from spanmq_service.dashboard.visit import Visit

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
class QueueHead:
    """The head of a queue's tabs: its name as it was created, its state, its problems, and all tabs."""

    queue: str
    standing: Standing
    problems: list[Problem]
    tabs: tuple[tuple[str, str], ...] = TABS


async def head_of(visit: Visit) -> QueueHead:
    """Return the head of the queue that the URL names; raises QueueNotFoundError if it does not exist."""
    name = visit.queue
    found, problems = await asyncio.gather(standing_of(visit.backend, [name]), problems_of(visit, [name]))
    if not found:
        raise QueueNotFoundError(f"queue {name!r} does not exist", queue=name)
    return QueueHead(found[0].queue, found[0], problems.get(found[0].queue, []))
