"""One receive of a worker, in a task of its own."""

from collections.abc import Callable

from spanmq.errors import ConnectionFailedError, ConnectionLostError, SpanmqError
from spanmq.worker.effect import Receive
from spanmq.worker.inbox import Inbox
from spanmq.worker.incoming import Received, ReceiveFailed
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
