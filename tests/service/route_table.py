"""The routes of the service as its application has them: what a new one is held to is read from here."""

from dataclasses import dataclass

from fastapi.routing import APIRoute

from spanmq.service.app import ROUTERS, create_app
from spanmq.service.guard.access import Scope
from spanmq.service.routes import condition
from spanmq.service.settings import Settings


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


def scope_of(route: APIRoute) -> Scope | None:
    found = [each.call for each in route.dependant.dependencies if isinstance(each.call, Scope)]
    assert len(found) <= 1, route.path
    return found[0] if found else None


APP = create_app(Settings(dsn="postgresql:///none"))
ROUTES = [
    Route(method, route.path, route.name, scope_of(route))
    for router in (condition.routes, *ROUTERS)
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods or ())
]
