"""A server that a worker receives from, with the tasks that depend on this server only."""

from collections.abc import Callable, Mapping

from spanmq.codec.body import Decoder
from spanmq.worker.event import Seam
from spanmq.worker.handler import Handler
from spanmq.worker.heartbeat import Heartbeat
from spanmq.worker.intake import Intake
from spanmq.worker.job import Holding
from spanmq.worker.reporting import Reporter
from spanmq.worker.session import Session
from spanmq.worker.setting import Settings, forgiving
from spanmq.worker.settling import Settler

# Connections beside those of receives and handlers: settlements, heartbeats, maintenance, polls of shards.
LENT_BESIDE: int = 6


class Server:
    """One session with its settlements, heartbeats and reports: an unreachable server does not affect others."""

    __slots__ = ("heartbeat", "reporter", "session", "settler")

    def __init__(
        self,
        name: str,
        dsn: str,
        settings: Settings,
        handler: Handler,
        *,
        queues: int,
        intakes: Mapping[str, Intake],
        worker: str,
        seam: Seam,
        on_settled: Callable[[Holding], None],
        on_lost: Callable[[Holding], None],
    ) -> None:
        decoder: Decoder = forgiving(settings.decoder)
        # A handler that dispatches may begin a transaction for any message. One that overran keeps its
        # connection, beside its successor.
        lends = 2 * settings.concurrency if handler.takes_connection or handler.takes_delivery else 0
        self.session = Session(
            dsn=dsn,
            decoder=decoder,
            pool_size=queues + LENT_BESIDE + (lends if handler.is_async else 0),
            threads=lends if handler.uses_threads or not handler.is_async else 0,
            patience=settings.patience_seconds,
            pooler=settings.pooler,
            seam=seam,
            server=name or None,
        )
        self.settler = Settler(
            session=self.session, worker=worker, gather=settings.gather, seam=seam, on_settled=on_settled
        )
        self.heartbeat = Heartbeat(self.session, lease_max=settings.lease_max, seam=seam, on_lost=on_lost)
        self.reporter = Reporter(self.session, worker, settings.concurrency, handler.kind_of, intakes)
