"""Finds handlers that exceed their time limit, and those that take unusually long. No I/O here."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from spanmq.worker.handler import Handler
from spanmq.worker.job import Job, Slot
from spanmq.worker.observing.usual import UsualTimes
from spanmq.worker.setting import Settings

TICK_SECONDS_MAX: Final = 1.0
# Time limits of handlers are exact to twice this.
LIMIT_TICK_SECONDS: Final = 0.05


@dataclass(slots=True)
class Overran:
    """A handler exceeds its own limit, or that of its message's lease."""

    slot: Slot
    job: Job
    seconds: float


@dataclass(slots=True)
class Slow:
    """A handler runs longer than is `usual`, or near its `limit`; the other one is None."""

    job: Job
    seconds: float
    usual: float | None
    limit: float | None


class Watch:
    """Looks at running handlers every `tick` seconds."""

    def __init__(self, handler: Handler, settings: Settings, usual: UsualTimes) -> None:
        self._handler = handler
        self._settings = settings
        self._usual = usual
        lease_max, timeout = settings.lease_max, settings.handler_timeout
        tick_max = TICK_SECONDS_MAX if timeout is None and handler.timeout_of is None else LIMIT_TICK_SECONDS
        self.tick = max(min(min(lease_max, timeout or lease_max) / 20, tick_max), 0.005)
        # While the lease is still valid, so that the nack has an effect.
        self._lease_limit = lease_max - min(2 * self.tick, lease_max / 4)

    def look(self, jobs: Iterable[tuple[Slot, Job, float]], now: float) -> Iterator[Overran | Slow]:
        """Yield the running handlers that exceed a limit, and once each that is slow."""
        settings, timeout_of = self._settings, self._handler.timeout_of
        for slot, job, started_at in jobs:
            seconds = now - started_at
            limit = settings.handler_timeout if timeout_of is None else timeout_of(job.messages[0])
            is_over = limit is not None and seconds >= limit
            if is_over or now - job.lease.received_at >= self._lease_limit:
                yield Overran(slot, job, seconds)
            elif settings.slow_after is not None and not job.is_slow:
                task = self._handler.task_of(job.messages[0])
                usual = self._usual.seconds(task) if seconds >= settings.slow_after else None
                is_unusual = usual is not None and seconds > usual
                if is_unusual or seconds >= settings.slow_share * (limit or self._lease_limit):
                    job.is_slow = True
                    yield Slow(
                        job,
                        seconds,
                        usual if is_unusual else None,
                        None if is_unusual else limit or self._lease_limit,
                    )
