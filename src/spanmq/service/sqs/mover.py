"""What moves messages for move tasks, step by step: one in each service, and any goes on with any task."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from spanmq import errors
from spanmq.errors import QueueFullError, QueueNotFoundError, SpanmqError
from spanmq.service.sqs.message import MOVED_FROM

if TYPE_CHECKING:
    from spanmq.client_async import AsyncClient
    from spanmq.message import SqsMove
    from spanmq.service.backend import Backend

logger = logging.getLogger("spanmq.service")

BATCH: Final = 10
# A message in the move is hidden so long at most; if the service dies, it is in its queue at once.
HIDDEN_SECONDS: Final = 30.0
# How soon a task is gone on with that another service has left.
LOOK_SECONDS: Final = 1.0
STOP_SECONDS: Final = 5.0
# These pass: the step is done later.
PASSING: Final = (
    errors.ConnectionFailedError,
    errors.ConnectionLostError,
    errors.TransactionConflictError,
    errors.StatementCancelledError,
    errors.ServerExhaustedError,
    errors.ServerReadOnlyError,
)


class Mover:
    """Does steps as long as it runs."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def begin(self) -> None:
        """Look for tasks from now on."""
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Look at once."""
        self._wanted.set()

    async def end(self) -> None:
        """Finish the step that is under way, and do no other."""
        self._is_stopping = True
        self.wake()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=STOP_SECONDS)
            self._task.cancel()

    async def _run(self) -> None:
        while not self._is_stopping:
            self._wanted.clear()
            try:
                pause = await self._step()
            except PASSING:
                pause = LOOK_SECONDS
            except SpanmqError as error:
                # A schema of another release: there are no tasks.
                logger.warning("moves_failed error=%s message=%r", type(error).__name__, error.message)
                pause = 60 * LOOK_SECONDS
            if pause and not self._is_stopping:
                try:
                    async with asyncio.timeout(pause):
                        await self._wanted.wait()
                except TimeoutError:
                    pass

    async def _step(self) -> float:
        """Do a step of some task; give after how many seconds to look again."""
        move: SqsMove | None = None
        try:
            async with self._backend.client.transaction() as client:
                move = await client.take_sqs_move()
                if move is None:
                    return LOOK_SECONDS
                due_in = await client.note_sqs_move(move.handle, await _move_some(client, move))
        except QueueFullError:
            if move is None:
                raise
            # Its destination is full; the tasks of others must not wait for that.
            await self._backend.client.note_sqs_move(move.handle, None)
            return 0.0
        except PASSING:
            raise
        except SpanmqError as error:
            if move is None:
                raise
            logger.warning("move_failed source=%s error=%s", move.source, type(error).__name__)
            await self._backend.client.note_sqs_move(move.handle, 0, type(error).__name__)
            return 0.0
        return min(due_in or 0.0, LOOK_SECONDS)


async def _move_some(client: AsyncClient, move: SqsMove) -> int:
    """Move some messages, all in this transaction: each is in exactly one queue whatever happens."""
    quantity = BATCH if move.rate is None else min(BATCH, move.rate)
    messages = await client.receive(move.source, quantity, lease=HIDDEN_SECONDS)
    for message in messages:
        headers = dict(message.headers or {})
        target = move.destination or headers.pop(MOVED_FROM, None)
        if target is None:
            raise QueueNotFoundError("a message does not say where it came from")
        await client.send(
            target,
            message.body,
            headers=headers,
            group=message.group,
            ordered=str(target).endswith(".fifo"),
        )
    if messages:
        await client.ack(messages)
    return len(messages)
