"""Routes that tell whether the service runs and is of use: for who supervises it, without a token."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.responses import Response

from spanmq.errors import SpanmqError
from spanmq.service.json_text import reply
from spanmq.service.parts import Behind
from spanmq.service.refusal import Refusal

routes = APIRouter(tags=["condition"])

READY_SECONDS = 2.0


@routes.get("/health/live")
async def live() -> Response:
    """Say that the process answers."""
    return reply(state="live")


@routes.get("/health/ready")
async def ready(backend: Behind) -> Response:
    """Say whether requests can be served: the database answers, and no stop is under way."""
    if backend.is_stopping:
        raise Refusal(503, "stopping", "the service is stopping", retry_after=1)
    try:
        async with asyncio.timeout(READY_SECONDS):
            await backend.client.version()
    except (SpanmqError, TimeoutError) as error:
        raise Refusal(503, "not_ready", "the database does not answer", retry_after=1) from error
    return reply(state="ready")
