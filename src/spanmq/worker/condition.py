"""The liveness and readiness of a worker, derived from its events, and the port at which it answers for them."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from spanmq.errors import ExtraNotInstalledError
from spanmq.worker.event import (
    ConnectionBroken,
    ConnectionRestored,
    Event,
    Observer,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)

logger = logging.getLogger("spanmq")

TICK_SECONDS = 1.0


class Condition:
    """The state of a worker's event loop and connection; can be read from any thread.

    The worker counts as stuck when its event loop has not run for `patience` seconds: an async handler blocks
    it.
    """

    def __init__(self, *, patience: float = 30.0) -> None:
        self._patience = patience
        self._state = "starting"
        # The servers that do not answer.
        self._away: set[str | None] = set()
        self._ticked_at: float | None = None
        self._tick: asyncio.TimerHandle | None = None

    def __call__(self, event: Event) -> None:
        """Record events that change the state."""
        if isinstance(event, WorkerStarted):
            self._state = "ready"
            self._come_round()
        elif isinstance(event, ConnectionBroken):
            self._away.add(event.server)
        elif isinstance(event, ConnectionRestored):
            self._away.discard(event.server)
        elif isinstance(event, WorkerStopping):
            self._state = "stopping"
        elif isinstance(event, WorkerStopped) and self._tick is not None:
            self._tick.cancel()
            self._ticked_at = None
            # The next run connects anew.
            self._away.clear()

    def hears_routine(self) -> bool:
        """Return False: events of single messages do not matter."""
        return False

    def health(self) -> tuple[bool, str]:
        """Return whether the worker is healthy, and its state."""
        ticked_at = self._ticked_at
        if ticked_at is not None and (seconds := monotonic() - ticked_at) > self._patience:
            return False, f"stuck: a handler has blocked the event loop for {seconds:.0f} s"
        return True, "no connection" if self._away and self._state == "ready" else self._state

    def readiness(self) -> tuple[bool, str]:
        """Return whether the worker receives messages, and its state."""
        is_healthy, state = self.health()
        return is_healthy and state == "ready", state

    @property
    def probes(self) -> dict[str, Callable[[], tuple[bool, str]]]:
        """The functions that answer probes, by path."""
        return {"/healthz": self.health, "/readyz": self.readiness}

    def _come_round(self) -> None:
        self._ticked_at = monotonic()
        interval = min(TICK_SECONDS, self._patience / 4)
        self._tick = asyncio.get_running_loop().call_later(interval, self._come_round)


@contextmanager
def monitored(port: int | None, host: str = "127.0.0.1") -> Iterator[list[Observer]]:
    """Serve a worker's /metrics, /healthz and /readyz while the block runs; yield the observers that it needs for them.

    Without a `port` nothing is served, and the list is empty. Port 0 is any free one; the log has the address.
    Raises ExtraNotInstalledError without the extra `metrics`, and InvalidArgumentError for an address that cannot
    be listened on.
    """
    if port is None:
        yield []
        return
    try:
        from spanmq.worker.measures import Measures, served
    except ModuleNotFoundError as error:
        raise ExtraNotInstalledError(
            f"the worker's metrics need {error.name}, which is not installed", extra="metrics"
        ) from error
    measures, condition = Measures(), Condition()
    with served(measures, condition.probes, port, host) as url:
        logger.info("metrics_served address=%s", url)
        yield [measures, condition]
