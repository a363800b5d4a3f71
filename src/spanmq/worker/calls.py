"""What a worker asks of a database about the messages that it holds, or is to hold: each call in a task of its own."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from spanmq.client import functions
from spanmq.errors import ConnectionFailedError, ConnectionLostError, SpanmqError
from spanmq.model import Leased, Message
from spanmq.worker.effect import Extend, FindCancelled, Receive
from spanmq.worker.event import CallFailed, EventBus
from spanmq.worker.inbox import Inbox
from spanmq.worker.incoming import AloneBegun, CancelsFound, ExtensionEnded, Received, ReceiveFailed
from spanmq.worker.job import Job
from spanmq.worker.running.performing import UNBEGUN_SECONDS
from spanmq.worker.session import Session


async def receive(
    asked: Receive,
    session: Session,
    inbox: Inbox,
    clock: Callable[[], float],
    *,
    lease: float | None,
    one_each: bool,
) -> None:
    """Receive messages, and put them; `one_each` says that each is settled by a transaction of its own."""
    begun_at = clock()
    try:
        messages = await session.run(
            lambda client: client.receive(
                asked.queue,
                asked.quantity,
                lease=lease,
                slots=asked.quantity if one_each else 1,
                alone=True,
                retries=asked.retries,
                newest=asked.is_newest,
            )
        )
    except (ConnectionFailedError, ConnectionLostError):
        inbox.put(ReceiveFailed(asked, None))  # the session connects again
    except (SpanmqError, ValueError) as error:
        inbox.put(ReceiveFailed(asked, error))
    else:
        # Without an await before it: a received lease is always recorded.
        inbox.put(Received(asked, messages, begun_at))


async def begin_alone(job: Job, session: Session, inbox: Inbox, bus: EventBus) -> None:
    """Begin a reserved delivery, and put its message."""
    [reserved] = job.messages
    call = functions.begin_alone(session.codec, reserved)
    messages: list[Message] = []
    try:
        messages = await session.run(lambda client: client.admin.run(call))  # none if its lease has ended
    except SpanmqError as error:
        # If it has begun all the same, the release takes the attempt back.
        bus.emit(CallFailed(reserved.queue, " ".join(str(error).split()), UNBEGUN_SECONDS))
        await asyncio.sleep(UNBEGUN_SECONDS)
    inbox.put(AloneBegun(job, messages))


async def extend(asked: Extend, session: Session, inbox: Inbox, clock: Callable[[], float]) -> None:
    """Extend a lease, and put the end of that."""
    lease = asked.lease
    leased = Leased(lease.queue, lease.lease_id, lease.message_ids)
    begun_at = clock()
    count: int | None = None
    # After an error the session reconnects, and this is called again. Whether the lease is still valid will be known
    # from the settlement.
    with suppress(SpanmqError):
        extended = await session.run(lambda client: client.extend(leased, asked.seconds))
        count = sum(message.outcome == "extended" for message in extended)
    inbox.put(ExtensionEnded(lease, count, begun_at, asked.seconds))


async def find_cancelled(asked: FindCancelled, session: Session, inbox: Inbox, bus: EventBus) -> None:
    """Ask which messages of a lease were cancelled, or left it otherwise; put those."""
    lease = asked.lease
    call = functions.cancelled(lease.queue, lease.lease_id, asked.ids)
    try:
        gone = await session.run(lambda client: client.admin.run(call))
    except SpanmqError as error:
        # The next extension of the lease asks again.
        bus.emit(CallFailed(lease.queue, " ".join(str(error).split()), lease.seconds / 3))
        return
    if gone:
        inbox.put(CancelsFound(lease, gone))
