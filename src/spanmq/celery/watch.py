"""A thread that waits for messages of all queues of a connection, on one connection of its own."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from spanmq.client.direct import KeptClient
from spanmq.errors import SpanmqError

logger = logging.getLogger("spanmq.celery")

# Between looks that no announcement ended, so that a server which refuses the wait is not asked without a pause.
GAP_SECONDS: Final = 0.02


class Watch:
    """Calls `on_news` when a message of one of `queues()` may have come, and every `interval` seconds.

    While there are no queues, because the consumer has no room, senders wake other processes.
    """

    def __init__(
        self, dsn: str, queues: Callable[[], list[str]], on_news: Callable[[], None], interval: float
    ) -> None:
        self._kept = KeptClient(dsn, application_name="spanmq celery")
        self._queues = queues
        self._on_news = on_news
        self._interval = interval
        self._stopped = threading.Event()
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spanmq watch", daemon=True)
        self._thread.start()

    def changed(self) -> None:
        """Ask for the queues again."""
        self._changed.set()

    def stop(self) -> None:
        """Stop, within the interval."""
        self._stopped.set()
        self._changed.set()
        self._thread.join(self._interval + 1.0)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._changed.clear()
            queues = self._queues()
            try:
                if queues:
                    is_announced = self._kept.wait(queues, self._interval)
                    self._on_news()
                    if not is_announced:
                        self._stopped.wait(GAP_SECONDS)
                else:
                    self._kept.wait_no_more()
                    self._changed.wait(self._interval)
            except SpanmqError as error:
                logger.warning("listening_failed error_class=%s error=%r", type(error).__name__, str(error))
                self._stopped.wait(self._interval)
        with suppress(SpanmqError):
            self._kept.wait_no_more()
        self._kept.close()
