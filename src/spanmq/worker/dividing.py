"""The choice of the queues for receives: those that may have a message, as far as slots are free."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from time import monotonic

from spanmq.worker.intake import Intake
from spanmq.worker.isolation import Isolation
from spanmq.worker.pool import Pool
from spanmq.worker.server import ServerConnection


class Divider:
    """Divides the free slots among the queues, and begins their receives.

    `intakes` and `places` (the server of each queue) are the engine's, and change. `on_task` is called with the
    task of each receive when it ends. `isolation` and `servers` are set before the first division.
    """

    isolation: Isolation
    servers: Collection[ServerConnection]

    def __init__(
        self,
        pool: Pool,
        intakes: Mapping[str, Intake],
        places: Mapping[str, ServerConnection],
        *,
        until_empty: bool,
        on_task: Callable[[asyncio.Task[None]], None],
        holds_nothing: Callable[[], bool],
    ) -> None:
        self._pool = pool
        self._intakes = intakes
        self._places = places
        self._until_empty = until_empty
        self._on_task = on_task
        self._holds_nothing = holds_nothing
        self._finish: Callable[[str], None] | None = None
        # Queues for which a send has woken this process.
        self._woken: set[str] = set()
        # Queues whose breaker is not closed.
        self._gated: set[Intake] = set()
        # Queues found empty since the last message was received or settled.
        self._emptied: set[str] = set()
        # Queues whose receives under way started since then.
        self._telling: set[str] = set()
        self._is_dividing = False
        self.is_stopped = False

    def begin(self, finish: Callable[[str], None]) -> None:
        """Divide from now on; `finish` is called with the reason when a worker `until_empty` is done."""
        self._finish = finish
        self.divide_soon()

    def ready(self, queue: str, is_woken: bool) -> None:
        """Receive from a queue as soon as a slot is free; `is_woken`: it was not only polled."""
        intake = self._intakes[queue]
        if intake.is_stopped or (not is_woken and monotonic() < intake.ignored_until):
            return
        if is_woken:
            self._woken.add(queue)
        self._pool.ready(queue)
        self.divide_soon()

    def gate(self, intake: Intake) -> None:
        """Limit what a queue gets until its breaker is closed; it is ready at once, and when that changes."""
        self.ready(intake.queue, True)
        self._gated.add(intake)
        intake.gate()

    def settled(self) -> None:
        """Record that a message was settled: its handler may have sent others."""
        self._changed()
        self.divide_soon()

    def _changed(self) -> None:
        self._emptied.clear()
        self._telling.clear()

    def divide_soon(self) -> None:
        """Divide when the callbacks that are due now have run."""
        if not self._is_dividing:
            self._is_dividing = True
            asyncio.get_running_loop().call_soon(self._divide)

    def _divide(self) -> None:
        """Begin receives for the free slots."""
        self._is_dividing = False
        if self.is_stopped:
            return
        for intake in [*self._gated]:
            intake.gate()
            if intake.breaker.state == "closed":
                self._gated.discard(intake)
        self._look_for_the_end()
        quantities = {} if self.isolation.is_active else self._pool.quantities()
        for queue, quantity in quantities.items():
            server = self._places[queue]
            if server.may_receive():
                server.receiving += 1
                self._telling.add(queue)
                self._pool.asked(queue, quantity)
                self._intakes[queue].receive(quantity).add_done_callback(self._on_task)
        is_full = self._pool.is_full or self.isolation.is_active
        if stuck := [each for each in self._woken - quantities.keys() if not self._intakes[each].share.asked]:
            self._woken.difference_update(stuck)
            for server in self.servers:
                if queues := [each for each in stuck if self._places[each] is server]:
                    server.poller.pass_on(queues, self._pool.exhausted, is_busy=is_full)
        for server in self.servers:
            server.poller.room(not is_full)

    def _look_for_the_end(self) -> None:
        """If asked to, receive once more from each queue when nothing is held; finish when none had a message."""
        if (
            not self._until_empty
            or self._finish is None
            or self.isolation.is_active
            or not self._holds_nothing()
        ):
            return
        left = [
            queue
            for queue, each in self._intakes.items()
            if not each.is_stopped and queue not in self._emptied
        ]
        for queue in left:
            if not self._intakes[queue].failures:
                self._pool.ready(queue)
        if not left:
            self._finish("empty")

    def received(self, intake: Intake, quantity: int, count: int | None) -> None:
        """Record the end of a receive of `quantity` messages that returned `count`, None after an error."""
        server = self._places[intake.queue]
        server.receiving -= 1
        intake.share.asked = 0
        if count:
            self._changed()
        elif count == 0 and intake.queue in self._telling:
            self._emptied.add(intake.queue)
        # One message does not show whether there are more. Of many queues a poll says so for less than a receive each.
        if count == quantity and (quantity > 1 or len(self._intakes) == 1):
            self._pool.ready(intake.queue)
        else:
            self._pool.exhausted(intake.queue)
            is_woken = intake.queue in self._woken
            self._woken.discard(intake.queue)
            if count is None:
                pause = max(intake.ignored_until - monotonic(), 0.0)
                asyncio.get_running_loop().call_later(pause, self.ready, intake.queue, False)
            else:
                intake.found(count, is_woken=is_woken)
                if count or is_woken:
                    server.poller.received(intake.queue)
        self.divide_soon()
