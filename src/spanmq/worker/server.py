"""A server that a worker receives from, with the tasks that depend on this server only."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final

from spanmq.codec.body import Decoder
from spanmq.worker.event import EventBus
from spanmq.worker.handler import Handler
from spanmq.worker.heartbeat import Heartbeat
from spanmq.worker.intake import Intake
from spanmq.worker.job import Holding, Job, Verdict
from spanmq.worker.poller import Poller
from spanmq.worker.reporting import Reporter
from spanmq.worker.session import Session
from spanmq.worker.setting import Settings, forgiving
from spanmq.worker.settling import Settler
from spanmq.worker.slots import Slot

# Connections beside those of receives and handlers: settlements, heartbeats, maintenance, polls of shards.
LENT_BESIDE: Final = 6
# The number of receives at once.
RECEIVES_MAX: Final = 8
# The number of batches of verdicts that may wait for the database: beyond it, nothing is received.
BACKLOG_BATCHES: Final = 20


class ServerConnection:
    """One session with its polls, settlements, heartbeats and reports: an unreachable server does not affect others."""

    __slots__ = ("_backlog_max", "heartbeat", "poller", "receiving", "reporter", "session", "settler")

    def __init__(
        self,
        name: str,
        dsn: str,
        settings: Settings,
        handler: Handler,
        *,
        queues: int,
        intakes: Mapping[str, Intake],
        jobs: Callable[[], Iterable[tuple[Slot, Job, float]]],
        worker: str,
        bus: EventBus,
        judge: Callable[[BaseException, Job], Verdict],
        on_settled: Callable[[Holding, Verdict], None],
        on_lost: Callable[[Holding], None],
        on_extended: Callable[[Holding], Awaitable[None]],
        on_cancel: Callable[[Collection[str]], None],
        on_ready: Callable[[str, bool], None],
        on_policy: Callable[[str, bool], None],
        is_busy: Callable[[], bool],
    ) -> None:
        decoder: Decoder = forgiving(settings.decoder)
        # A handler that dispatches may begin a transaction for any message. One that overran keeps its
        # connection, beside its successor.
        lends = 2 * settings.concurrency if handler.takes_connection or handler.takes_delivery else 0
        self.session = Session(
            dsn=dsn,
            decoder=decoder,
            pool_size=min(queues, RECEIVES_MAX) + LENT_BESIDE + (lends if handler.is_async else 0),
            threads=lends if handler.uses_threads or not handler.is_async else 0,
            timeouts=settings.timeouts_passed,
            pooler=settings.pooler,
            password=settings.password,
            bus=bus,
            server=name or None,
        )
        self.settler = Settler(
            session=self.session,
            worker=worker,
            gather=settings.gather,
            batch=settings.batch,
            is_busy=is_busy,
            bus=bus,
            judge=judge,
            on_settled=on_settled,
            task_of=handler.task_of,
        )
        self.heartbeat = Heartbeat(
            self.session, lease_max=settings.lease_max, bus=bus, on_lost=on_lost, on_extended=on_extended
        )
        self.reporter = Reporter(self.session, worker, settings.concurrency, handler.kind_of, intakes, jobs)
        self.poller = Poller(
            session=self.session,
            settings=settings,
            bus=bus,
            on_ready=on_ready,
            on_policy=on_policy,
            on_cancel=on_cancel,
            on_command=self.reporter.report_soon,
        )
        self.receiving = 0
        self._backlog_max = settings.batch * BACKLOG_BATCHES

    def may_receive(self) -> bool:
        """Return whether another receive may begin now; otherwise a settlement or receive that ends makes room."""
        return self.receiving < RECEIVES_MAX and self.settler.backlog <= self._backlog_max
