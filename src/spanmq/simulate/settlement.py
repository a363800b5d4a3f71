"""Acks in the background: while one is on its way, the worker handles the next message of its run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from spanmq.client import Client
from spanmq.model import Leased, Message

# Handled messages are gathered for this time: with one call for each message, acks would take most of the
# CPU. Messages that a killed worker had not acked are delivered again.
GATHER_SECONDS: Final = 0.1

# Called with an outcome and the run's numbers of its messages.
Note = Callable[[str, Sequence[int]], None]


class Settlement:
    """Acks handled messages: those gathered within GATHER_SECONDS, or until `hurry`, by one call for each
    lease.
    """

    def __init__(self, client: Client, note: Note) -> None:
        self._client = client
        self._note = note
        # By queue and lease: the run's number of each message, by its id in the queue.
        self._waiting: dict[tuple[str, int], dict[int, int]] = {}
        self._busy = False
        self._urgent = False
        self._due_at = 0.0
        self._closed = False
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="settlement", daemon=True)
        self._thread.start()

    def add(self, message: Message, number: int) -> None:
        """Ack a message soon; raises the error of an earlier ack."""
        with self._changed:
            self._raise_error()
            if not self._waiting:
                self._due_at = monotonic() + GATHER_SECONDS
                self._changed.notify_all()
            lease = message.queue, message.lease_id or 0
            self._waiting.setdefault(lease, {})[message.message_id] = number

    def hurry(self) -> None:
        """Send the gathered acks without waiting for them."""
        with self._changed:
            if self._waiting:
                self._urgent = True
                self._changed.notify_all()

    def finish(self) -> bool:
        """Wait until all acks are sent; return whether there were any. Raises the error of an ack."""
        with self._changed:
            had_any = bool(self._waiting or self._busy)
            self._urgent = bool(self._waiting)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._error or not (self._waiting or self._busy))
            self._raise_error()
            return had_any

    def close(self) -> None:
        """Send all acks, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                self._changed.wait_for(
                    lambda: self._urgent or self._closed, max(self._due_at - monotonic(), 0.0)
                )
                taken, self._waiting, self._busy, self._urgent = self._waiting, {}, True, False
            try:
                for (queue, lease), numbers in taken.items():
                    self._ack(queue, lease, numbers)
            except Exception as error:  # noqa: BLE001, it is raised again in the thread that waits
                self._error = error
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                if self._error is not None:
                    return

    def _ack(self, queue: str, lease: int, numbers: dict[int, int]) -> None:
        outcomes: dict[str, list[int]] = {}
        for settled in self._client.ack(Leased(queue, lease, list(numbers))):
            outcomes.setdefault(settled.outcome, []).append(numbers[settled.message_id])
        for outcome, found in outcomes.items():
            self._note(outcome, found)
