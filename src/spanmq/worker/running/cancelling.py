"""Asks which messages of a lease were cancelled, or left it otherwise."""

from spanmq.client.functions import cancelled
from spanmq.errors import SpanmqError
from spanmq.worker.effect import FindCancelled
from spanmq.worker.event import CallFailed, EventBus
from spanmq.worker.inbox import Inbox
from spanmq.worker.incoming import CancelsFound
from spanmq.worker.session import Session


async def find_cancelled(asked: FindCancelled, session: Session, inbox: Inbox, bus: EventBus) -> None:
    """Ask for messages of a lease, and put those that have left it."""
    lease = asked.lease
    call = cancelled(lease.queue, lease.lease_id, asked.ids)
    try:
        gone = await session.run(lambda client: client.admin.run(call))
    except SpanmqError as error:
        # The next extension of the lease asks again.
        bus.emit(CallFailed(lease.queue, " ".join(str(error).split()), lease.seconds / 3))
        return
    if gone:
        inbox.put(CancelsFound(lease, gone))
