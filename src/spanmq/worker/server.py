"""A server that a worker receives from: one session with its polls, settlements and reports."""

from typing import Final

from spanmq.codec.body import Decoder
from spanmq.worker.event import EventBus
from spanmq.worker.handler import Handler
from spanmq.worker.inbox import Inbox
from spanmq.worker.receiving.scheduler import RECEIVES_MAX
from spanmq.worker.session import Session
from spanmq.worker.setting import Settings, forgiving

# Connections beside those of receives and handlers: settlements, heartbeats, maintenance, polls of shards.
LENT_BESIDE: Final = 6


def session_of(
    server: str, dsn: str, settings: Settings, handler: Handler, queues: int, bus: EventBus, inbox: Inbox
) -> Session:
    """Return the session of a server for a number of queues."""
    decoder: Decoder = forgiving(settings.decoder)
    # A handler that dispatches may begin a transaction for any message. One that overran keeps its
    # connection, beside its successor.
    lends = 2 * settings.concurrency if handler.takes_connection or handler.takes_delivery else 0
    return Session(
        dsn=dsn,
        decoder=decoder,
        pool_size=min(queues, RECEIVES_MAX) + LENT_BESIDE + (lends if handler.is_async else 0),
        threads=lends if handler.uses_threads or not handler.is_async else 0,
        timeouts=settings.timeouts_passed,
        pooler=settings.pooler,
        password=settings.password,
        bus=bus,
        inbox=inbox,
        server=server or None,
    )
