"""The application: its routes and its middleware."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spanmq import tracing
from spanmq_service.backend import Backend
from spanmq_service.http import docs_page
from spanmq_service.http.failure import HANDLERS
from spanmq_service.routes import (
    categories,
    dead_letters,
    health,
    messages,
    queues,
    receiving,
    schedules,
    sending,
    topics,
)
from spanmq_service.routes.description import describe
from spanmq_service.routes.doors import doors_of
from spanmq_service.routes.table import Table
from spanmq_service.settings import Settings
from spanmq_service.sqs.endpoint import Endpoint
from spanmq_service.sqs.moves import run_moves

# Nouns, the most used first: Starlette tries the routes in order.
TABLES: Final[tuple[Table, ...]] = (
    sending.routes,
    receiving.routes,
    messages.routes,
    queues.routes,
    dead_letters.routes,
    categories.routes,
    schedules.routes,
    doors_of("signals", "signal"),
    topics.routes,
    doors_of("streams", "receiver"),
    topics.subscriptions,
    doors_of("pipeline", "pipeline"),
    health.routes,
)

Pages = Callable[[Backend], list[Route]]


@cache
def description() -> dict[str, Any]:
    """Return the description of the routes in OpenAPI."""
    return describe(operation for table in TABLES for operation in table.operations)


async def _describe(_: Request) -> Response:
    return Response(_text_of_description(), media_type="application/json")


@cache
def _text_of_description() -> bytes:
    return msgspec.json.encode(description())


def create_app(settings: Settings, *, pages: Pages | None = None) -> Starlette:
    """Create the application.

    `pages` adds routes with pages for people, which use the same backend.
    """
    backend = Backend(settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await backend.open()
        moves = asyncio.create_task(run_moves(backend))
        try:
            yield
        finally:
            moves.cancel()
            await asyncio.wait([moves], timeout=5.0)
            await backend.close()

    app = Starlette(routes=_routes(backend, pages), exception_handlers=HANDLERS, lifespan=lifespan)
    # A path that ends in a slash is a different one: clients follow a redirect without their token.
    app.router.redirect_slashes = False
    app.state.backend = backend
    app.add_middleware(backend.gate.over)
    # The last one that is added is the first that a request meets.
    app.add_middleware(traced)
    return app


def _routes(backend: Backend, pages: Pages | None) -> list[BaseRoute]:
    routes: list[BaseRoute] = [operation.route() for table in TABLES for operation in table.operations]
    routes += [Route("/openapi.json", _describe, methods=["GET"]), *docs_page.routes()]
    routes += Endpoint(backend).routes()
    return routes if pages is None else [*routes, *pages(backend)]


def is_traced(scope: Scope) -> bool:
    """Return whether a request gets a span: periodic checks get none."""
    path: str = scope.get("path", "")
    return scope["type"] == "http" and not path.startswith("/health/") and path != "/metrics"


def traced(app: ASGIApp) -> ASGIApp:
    """Return the application with a span around each request, if tracing is enabled."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if not tracing.is_on() or not is_traced(scope):
            await app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with tracing.serving(scope["method"], scope["path"], headers) as span:

            async def forward(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.answered(getattr(scope.get("route"), "path", None), message["status"])
                await send(message)

            await app(scope, receive, forward)

    return serve
