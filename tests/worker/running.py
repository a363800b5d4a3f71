"""A worker in a thread of its own, what it tells, and handlers that a test holds."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.patience import WAIT_SECONDS

from spanmq import Message
from spanmq.worker import Worker
from spanmq.worker.event import Event, MessageSettled, WorkerStarted
from spanmq.worker.handler import Handler
from spanmq.worker.runtime import new_event_loop

Kind = TypeVar("Kind")


class Record:
    """Every event of a worker, in order; a test waits for what it needs. `running` is the worker, if there is one."""

    running: "Running"

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, kind: type[Kind], where: Callable[[Kind], bool] = lambda _: True) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind) and where(event)]

    def wait(
        self, kind: type[Kind], count: int = 1, *, where: Callable[[Kind], bool] = lambda _: True
    ) -> list[Kind]:
        looked_at = 0
        found: list[Kind] = []

        def enough() -> bool:
            # Each event once: looking at all of them at each would take longer than what is waited for.
            nonlocal looked_at
            new = self.events[looked_at:]
            looked_at += len(new)
            found.extend(event for event in new if isinstance(event, kind) and where(event))
            return len(found) >= count

        with self._changed:
            if not self._changed.wait_for(enough, WAIT_SECONDS):
                last = self.events[-20:]
                raise AssertionError(f"{len(found)} of {count} {kind.__name__}; the last events: {last}")
        return found

    def settled(self, outcome: str, count: int = 1) -> list[MessageSettled]:
        """Wait until so many messages have this outcome."""
        return self.wait(MessageSettled, count, where=lambda event: event.outcome == outcome)

    def outcomes(self, count: int) -> list[str]:
        """Wait until so many messages are settled; give their outcomes, those of first attempts first.

        Attempts are settled on different connections: one may be told of before the one that it follows.
        """
        events = sorted(self.wait(MessageSettled, count), key=lambda event: event.attempt)
        return [event.outcome for event in events]


class Running:
    """A worker at work; `error` is what it ended with, `handled` what it returned."""

    def __init__(self, worker: Worker, record: Record) -> None:
        self.worker = worker
        self.record = record
        record.running = self
        self.error: BaseException | None = None
        self.handled: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop it, wait for its end, and raise what it raised."""
        self.worker.stop()
        self.join()

    def join(self) -> None:
        """Wait for its end, and raise what it raised."""
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), f"the worker does not end: {self.record.events[-5:]}"
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                self.handled = runner.run(self.worker.work(signals=False))
        except BaseException as error:  # noqa: BLE001, a test raises it again
            self.error = error


@contextmanager
def working(
    dsn: str | None, handler: Callable[..., Any] | Handler, *, queues: Any = "orders", **settings: Any
) -> Iterator[Record]:
    record = Record()
    observers = [*settings.pop("observers", ()), record]
    running = Running(Worker(queues, handler, dsn=dsn, observers=observers, **settings), record)
    try:
        record.wait(WorkerStarted)
        yield record
    finally:
        running.stop()


class Gate:
    """Handlers that stand still with each message until it is let through, or, a coroutine's, until it is cancelled."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self._gates: dict[Any, threading.Event] = {}
        self._changed = threading.Condition()

    def _begin(self, body: Any) -> threading.Event:
        with self._changed:
            self.begun.append(body)
            self._changed.notify_all()
            return self._gates.setdefault(body, threading.Event())

    def __call__(self, message: Message) -> None:
        assert self._begin(message.body).wait(WAIT_SECONDS)

    async def coroutine(self, message: Message) -> None:
        self._begin(message.body)
        await asyncio.Event().wait()

    def wait_for(self, *bodies: Any) -> None:
        """Wait until handlers have begun with these messages."""
        with self._changed:
            assert self._changed.wait_for(lambda: set(bodies) <= set(self.begun), WAIT_SECONDS), self.begun

    def open(self, *bodies: Any) -> None:
        with self._changed:
            for body in bodies:
                self._gates.setdefault(body, threading.Event()).set()


def waiting_for_a_lock(function: str) -> str:
    """Return the query for the sessions whose call of a function waits for a lock.

    Of this database only: what other tests do in theirs is not to be taken for it, and not to be terminated.
    """
    return (
        "select pid from pg_stat_activity where datname = current_database()"
        f" and wait_event_type = 'Lock' and query ~ '[.]{function}'"
    )
