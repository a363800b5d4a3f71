"""The routes of the service as its application has them: what a new one is held to is read from here."""

from dataclasses import dataclass

from spanmq_service.app import TABLES
from spanmq_service.guard.access import Scope


@dataclass(frozen=True)
class Route:
    """A route: how it is asked, what it is named, which scope it wants (None: it answers everybody)."""

    method: str
    path: str
    name: str
    scope: Scope | None

    def at(self, queue: str) -> str:
        """Return its path for a queue, and something for what else is in it."""
        given = {
            "queue": queue,
            "message_id": "1",
            "name": "none",
            "topic": "none",
            "pattern": "none",
            "category": "UNKNOWN",
            "receiver": "none",
        }
        return self.path.format(**given)


ROUTES = [
    Route(operation.method, operation.path, operation.name, operation.scope)
    for table in TABLES
    for operation in table.operations
]
