"""The work itself: this thread sends the flights, several others receive and archive them meanwhile."""

import threading
import time
from collections.abc import Iterator
from itertools import islice
from typing import Final

from spanmq.client import Client
from spanmq.model import Message
from spanmq_lab.demo.display import Tick
from spanmq_lab.demo.flights import Flight, group_of

BATCH: Final = 1_000
LEASE_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 0.2
TICK_SECONDS: Final = 0.1


class Transfer:
    """The number of messages done so far, and the time it took.

    `redelivered` counts messages that were delivered again because their lease expired on a stalled machine.
    """

    def __init__(self, client: Client, queue: str) -> None:
        self.sent = 0
        self.settled = 0
        self.redelivered = 0
        self.send_seconds = 0.0
        self.settle_seconds = 0.0
        self._began = time.monotonic()
        self._client = client
        self._queue = queue
        self._all_sent = threading.Event()
        self._stopped = threading.Event()
        self._counting = threading.Lock()
        self._errors: list[BaseException] = []

    def run(self, flights: Iterator[Flight], *, consumers: int, tick: Tick) -> None:
        """Send all, return when all are settled; `tick` is called now and then.

        Raises what a consumer raised. After any error, Ctrl-C too, no consumer runs any more.
        """
        self._began = time.monotonic()
        threads = [threading.Thread(target=self._consume, daemon=True) for _ in range(consumers)]
        for thread in threads:
            thread.start()
        try:
            self._show(tick)
            while (batch := list(islice(flights, BATCH))) and not self._errors:
                self._client.send_batch(self._queue, batch, group=[group_of(flight) for flight in batch])
                self.sent += len(batch)
                self._show(tick)
            self.send_seconds = time.monotonic() - self._began
            self._all_sent.set()
            for thread in threads:
                while thread.is_alive():
                    thread.join(TICK_SECONDS)
                    self._show(tick)
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join(LEASE_SECONDS)
        if self._errors:
            raise self._errors[0]

    def _show(self, tick: Tick) -> None:
        tick("sent", self.sent)
        tick("settled", self.settled)

    def _consume(self) -> None:
        try:
            while not self._stopped.is_set():
                # Looked at before the queue is: what is sent in between is received in the next round.
                was_last = self._all_sent.is_set()
                messages = self._client.receive(self._queue, BATCH, lease=LEASE_SECONDS, wait=WAIT_SECONDS)
                if messages:
                    self._settle(messages)
                elif was_last:
                    return
        except Exception as error:  # noqa: BLE001, it is raised again in the thread that waits
            self._errors.append(error)

    def _settle(self, messages: list[Message]) -> None:
        archived = self._client.archive(self._queue, [message.message_id for message in messages])
        again = sum(message.attempt > 1 for message in messages)
        with self._counting:
            self.settled += len(archived)
            self.redelivered += again
            self.settle_seconds = time.monotonic() - self._began
