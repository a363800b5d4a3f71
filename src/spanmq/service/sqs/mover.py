"""The mover runs move tasks step by step; each service has one, and any of them can continue any task."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from spanmq import errors
from spanmq.errors import MissingPrivilegeError, QueueFullError, QueueNotFoundError, SpanmqError
from spanmq.service.caller import caller_of_key
from spanmq.service.sqs import store
from spanmq.service.sqs.queue import QueueView, queue_of_name

if TYPE_CHECKING:
    from spanmq.client import AsyncClient
    from spanmq.model import Message
    from spanmq.service.backend import Backend
    from spanmq.service.sqs.store import SqsMove

logger = logging.getLogger("spanmq.service")

BATCH: Final = 10
# The longest time for which a moved message is hidden; if the service dies, it is in its queue at once.
HIDDEN_SECONDS: Final = 30.0
# How soon a task is continued that another service has abandoned.
LOOK_SECONDS: Final = 1.0
STOP_SECONDS: Final = 5.0
# Temporary errors: the step is retried later.
PASSING: Final = (
    errors.ConnectionFailedError,
    errors.ConnectionLostError,
    errors.TransactionConflictError,
    errors.StatementCancelledError,
    errors.ServerExhaustedError,
    errors.ServerReadOnlyError,
)


class Mover:
    """Runs steps of tasks until it is stopped."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def begin(self) -> None:
        """Start to poll for tasks."""
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Poll at once."""
        self._wanted.set()

    async def end(self) -> None:
        """Finish the current step, and stop."""
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
                # A schema of another release, without tasks.
                logger.warning("moves_failed error=%s message=%r", type(error).__name__, error.message)
                pause = 60 * LOOK_SECONDS
            if pause and not self._is_stopping:
                try:
                    async with asyncio.timeout(pause):
                        await self._wanted.wait()
                except TimeoutError:
                    pass

    async def _step(self) -> float:
        """Run a step of a task; return the seconds until the next poll."""
        move: SqsMove | None = None
        try:
            async with self._backend.client.transaction() as client:
                move = await store.take_move(client)
                if move is None:
                    return LOOK_SECONDS
                due_in = await store.note_move(client, move.handle, await self._move_some(client, move))
        except QueueFullError:
            if move is None:
                raise
            # The destination is full; other tasks must not wait for it.
            await store.note_move(self._backend.client, move.handle, None)
            return 0.0
        except PASSING:
            raise
        except SpanmqError as error:
            if move is None:
                raise
            logger.warning("move_failed source=%s error=%s", move.source, type(error).__name__)
            await store.note_move(self._backend.client, move.handle, 0, type(error).__name__)
            return 0.0
        return min(due_in or 0.0, LOOK_SECONDS)

    async def _move_some(self, client: AsyncClient, move: SqsMove) -> int:
        """Move some messages, all in this transaction: each is in exactly one queue."""
        quantity = BATCH if move.rate is None else min(BATCH, move.rate)
        messages = await client.receive(move.source, quantity, lease=HIDDEN_SECONDS, slots=quantity)
        targets = await _targets(client, move, messages)
        moved = 0
        for target in sorted(set(targets.values())):
            await self._check(move, target)
            [known] = await store.list_queues(client, target)
            chosen = [message for message in messages if targets[message.message_id] == target]
            retention = float(QueueView(known).number("MessageRetentionPeriod"))
            encryption = self._backend.encryption
            moved += len(
                await store.move_messages(
                    client, encryption, chosen, target, expires_in=retention, task=move.handle
                )
            )
        return moved

    async def _check(self, move: SqsMove, target: str) -> None:
        """Raise MissingPrivilegeError unless the key that started the task still has the rights."""
        key_id = move.access_key_id
        if key_id is None:
            return
        key = await self._backend.credentials.own_key(key_id)
        if key is not None:
            caller = caller_of_key(key)
            if caller.may("receive", move.source) and caller.may("send", target):
                return
        raise MissingPrivilegeError("the key that started the task may no longer move these messages")


async def _targets(client: AsyncClient, move: SqsMove, messages: list[Message]) -> dict[int, str]:
    """Return the target queue of each message; raises QueueNotFoundError for an unknown one."""
    if move.destination is not None:
        return dict.fromkeys((message.message_id for message in messages), move.destination)
    ids = [message.message_id for message in messages]
    sources = {
        each.message_id: queue_of_name(each.source)
        for each in await store.list_moved(client, move.source, ids)
    }
    if sources.keys() != set(ids):
        raise QueueNotFoundError("a message was sent to the dead-letter queue itself")
    return sources
