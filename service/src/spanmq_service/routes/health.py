"""Routes for monitoring: whether the service is live and ready, without a token, and its metrics."""

import asyncio

from starlette.responses import Response

from spanmq.errors import ServerReadOnlyError, SpanmqError
from spanmq_service.backend import Backend
from spanmq_service.http.failure import Refusal
from spanmq_service.http.json_text import reply
from spanmq_service.measures import exposition
from spanmq_service.routes.parts import SeesSome, answer
from spanmq_service.routes.table import Table

routes = Table("condition", prefix="")

READY_SECONDS = 2.0

State = answer("State", state=str)


@routes.get("/health/live", answer=State)
async def live() -> Response:
    """Report that the process answers."""
    return reply(state="live")


@routes.get("/health/ready", answer=State, errors=(503,))
async def ready(backend: Backend) -> Response:
    """Report whether requests can be served: the database answers and takes writes, and the service is not stopping."""
    if backend.is_stopping:
        raise Refusal(503, "stopping", "the service is stopping", retry_after=1)
    try:
        async with asyncio.timeout(READY_SECONDS):
            await backend.check_database()
    except ServerReadOnlyError as error:
        raise Refusal(503, "not_ready", "the database is read-only", retry_after=1) from error
    except (SpanmqError, TimeoutError) as error:
        raise Refusal(503, "not_ready", "the database does not answer", retry_after=1) from error
    return reply(state="ready")


@routes.get("/metrics", answer=str)
async def latest_statistics(backend: Backend, caller: SeesSome) -> Response:
    """Return metrics for Prometheus: the service's own, and those of the queues that the token may look at."""
    queues = caller.seen(await backend.client.health.latest())
    streams = caller.seen(await backend.client.admin.receivers.list())
    text, media_type = exposition(backend.measures, queues, streams)
    return Response(text, media_type=media_type)
