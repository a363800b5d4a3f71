"""Acks in the background: while one is on its way, the worker handles the next message of its run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from spanmq.client import Client
from spanmq.message import Settled

# Takes what became of messages of one lease.
Note = Callable[[Sequence[Settled]], None]


class Settlement:
    """Acks what was done; what came in while an ack was on its way is the next, in one call a lease."""

    def __init__(self, client: Client, note: Note) -> None:
        self._client = client
        self._note = note
        self._waiting: dict[tuple[str, int], list[int]] = {}
        self._busy = False
        self._closed = False
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="settlement", daemon=True)
        self._thread.start()

    def add(self, queue: str, lease: int, message: int) -> None:
        """Ack a message soon."""
        with self._changed:
            self._waiting.setdefault((queue, lease), []).append(message)
            self._changed.notify_all()

    def finish(self) -> None:
        """Return when everything was acked; raises what went wrong."""
        with self._changed:
            self._changed.wait_for(lambda: self._error or not (self._waiting or self._busy))
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
