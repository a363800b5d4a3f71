"""The liveness and readiness of a worker, derived from its events."""

import asyncio
from time import monotonic

from spanmq.worker.event import (
    ConnectionBroken,
    ConnectionRestored,
    Event,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)

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

    def _come_round(self) -> None:
        self._ticked_at = monotonic()
        interval = min(TICK_SECONDS, self._patience / 4)
        self._tick = asyncio.get_running_loop().call_later(interval, self._come_round)
