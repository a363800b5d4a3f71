"""Acks in the background: while one is on its way, the worker handles the next message of its run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from spanmq.client import Client
from spanmq.message import Settled

# What is done is gathered for so long: with a call for each message, acks would be most of what the machine
# does. What a worker that is killed had not acked comes again.
GATHER_SECONDS: Final = 0.1

# Takes what became of messages of one lease.
Note = Callable[[Sequence[Settled]], None]


class Settlement:
    """Acks what was done: what came within GATHER_SECONDS, or until `finish`, in one call a lease."""

    def __init__(self, client: Client, note: Note) -> None:
        self._client = client
        self._note = note
        self._waiting: dict[tuple[str, int], list[int]] = {}
        self._busy = False
        self._urgent = False
        self._due_at = 0.0
        self._closed = False
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="settlement", daemon=True)
        self._thread.start()

    def add(self, queue: str, lease: int, message: int) -> None:
        """Ack a message soon."""
        with self._changed:
            if not self._waiting:
                self._due_at = monotonic() + GATHER_SECONDS
                self._changed.notify_all()
            self._waiting.setdefault((queue, lease), []).append(message)

    def finish(self) -> None:
        """Return when everything was acked; raises what went wrong."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._error or not (self._waiting or self._busy))
            self._urgent = False
            if self._error is not None:
                raise self._error

    def close(self) -> None:
        """End, when everything was acked."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                self._changed.wait_for(
                    lambda: self._urgent or self._closed, max(self._due_at - monotonic(), 0.0)
                )
                taken, self._waiting, self._busy = self._waiting, {}, True
            try:
                for (queue, lease), messages in taken.items():
                    self._note(self._client.ack_lease(queue, lease, messages))
            except Exception as error:  # noqa: BLE001, it is raised again in the thread that waits
                self._error = error
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                if self._error is not None:
                    return
