"""The application: its routes and its middleware."""

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from starlette.routing import Route

from spanmq.service.backend import Backend
from spanmq.service.http import docs_page
from spanmq.service.http.failure import handle
from spanmq.service.routes import (
    categories,
    condition,
    dead_letters,
    lookup,
    queues,
    receiving,
    schedules,
    sending,
    streams,
    topics,
)
from spanmq.service.settings import Settings
from spanmq.service.sqs.endpoint import Endpoint
from spanmq.service.sqs.moves import run_moves
from spanmq.version import __version__

DESCRIPTION: Final = (
    "Queues over HTTP. Errors have one shape everywhere; docs/guides/service.md lists their codes."
)
# Nouns, the most used first.
ROUTERS: Final[tuple[APIRouter, ...]] = (
    sending.routes,
    receiving.routes,
    lookup.routes,
    queues.routes,
    dead_letters.routes,
    categories.routes,
    schedules.routes,
    topics.routes,
    streams.routes,
    topics.subscriptions,
    streams.runs,
)


def is_untraced(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request is a periodic check, which is not traced."""
    path: str = scope.get("path", "")
    return path.startswith("/health/") or path == "/metrics"


# Not `logs`: they would hold what was refused, and with it a secret that stood in the wrong place.
REQUESTS: Final[Any] = {"exclude": is_untraced, "operation_spans": False, "logs": False}

Pages = Callable[[Backend], list[Route]]


def create_app(settings: Settings, *, pages: Pages | None = None) -> FastAPI:
    """Create the application.

    `pages` adds routes with pages for people, which use the same backend.
    """
    backend = Backend(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await backend.open()
        moves = asyncio.create_task(run_moves(backend))
        try:
            yield
        finally:
            moves.cancel()
            await asyncio.wait([moves], timeout=5.0)
            await backend.close()

    app = FastAPI(
        title="spanmq",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # A path that ends in a slash is a different one: clients follow a redirect without their token.
        redirect_slashes=False,
        # Releases of FastAPI that do not know this argument ignore it.
        telemetry=REQUESTS,
    )
    app.state.backend = backend
    handle(app)
    # Starlette tries the routes in order: those of the description, which exist already, come last.
    of_the_description = list(app.router.routes)
    app.router.routes.clear()
    # Not by include_router(), which replaces how a route answers.
    for router in (*ROUTERS, condition.routes):
        app.router.routes += router.routes
    app.router.routes += [*of_the_description, *docs_page.routes()]
    app.router.routes += Endpoint(backend).routes()
    if pages is not None:
        app.router.routes += pages(backend)
    app.add_middleware(backend.gate.over)
    return app
