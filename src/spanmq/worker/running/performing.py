"""One call of the handler: alone, or in one transaction with the ack."""

import asyncio
import inspect
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, Final, TypeVar

from spanmq.client import AsyncClient, Client
from spanmq.client.argument import Seconds
from spanmq.codec.body import Unstored
from spanmq.errors import ConnectionFailedError, ConnectionLostError, InvalidArgumentError
from spanmq.model import Leased, Settled
from spanmq.worker.failure import judge
from spanmq.worker.handler import Handler
from spanmq.worker.job import Gone, Job, Released, Stored, Verdict
from spanmq.worker.session import Session

T = TypeVar("T")
logger = logging.getLogger("spanmq.worker")
Categories = Mapping[type[BaseException], str]

# The pause before a message is released whose transaction could not begin: it will be received again at once.
UNBEGUN_SECONDS: Final = 1.0


class UndoneError(Exception):
    """The handler was not called, or its writes were rolled back, because the connection or the lease was lost."""


class Delivery:
    """A job under way: opens transactions that commit together with the ack of its messages."""

    __slots__ = ("_job", "_session", "verdict")

    def __init__(self, job: Job, session: Session) -> None:
        self._job = job
        self._session = session
        self.verdict: Verdict = None

    async def read(self, call: Callable[[AsyncClient], Awaitable[T]]) -> T:
        """Return what a call returns that reads what the handler needs. Raises UndoneError without a connection."""
        try:
            return await call(await self._session.client())
        except (ConnectionFailedError, ConnectionLostError) as error:
            await asyncio.sleep(UNBEGUN_SECONDS)
            raise UndoneError("the connection was lost before the handler began") from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncClient]:
        """Begin a transaction; ack and commit at the end. Raises UndoneError if that is not possible."""
        client = await self._session.client()
        is_begun = False
        try:
            async with client.transaction() as transaction:
                is_begun = True
                yield transaction
                self._check(await transaction.ack(self._leased()))
        except Exception as error:
            if is_begun:
                raise
            await asyncio.sleep(UNBEGUN_SECONDS)
            raise UndoneError("the transaction could not begin") from error
        self.verdict = Gone("acked")

    @contextmanager
    def thread_transaction(self) -> Iterator[Client]:
        """Begin a transaction from a thread; the twin of `transaction`."""
        is_begun = False
        try:
            with self._session.thread_client().transaction() as transaction:
                is_begun = True
                yield transaction
                self._check(transaction.ack(self._leased()))
        except Exception as error:
            if is_begun:
                raise
            time.sleep(UNBEGUN_SECONDS)
            raise UndoneError("the transaction could not begin") from error
        self.verdict = Gone("acked")

    def keep(self, result: object, keep_for: Seconds) -> None:
        """Record a result that is stored with the ack, or why it can't be: the work is done, and is not done again."""
        codec = self._session.codec.of(self._job.lease.queue)
        try:
            self._job.result = codec.encode_result(result)
        except InvalidArgumentError as error:
            result = Unstored(error.message)
            self._job.result = codec.encode_result(result)
        if isinstance(result, Unstored):
            [message] = self._job.messages
            logger.warning(
                "result_not_stored queue=%s message_id=%s reason=%r",
                message.queue,
                message.message_id,
                result.reason,
            )
        self.verdict = Stored(keep_for)

    @asynccontextmanager
    async def within(self, begin: Callable[[], AbstractAsyncContextManager[Any]]) -> AsyncIterator[Any]:
        """Enter a transaction of another library, and ack in it before it commits."""
        context = begin()
        async with context as session:
            check_commits(context, session)
            yield session
            self._check(await AsyncClient(connection=session).ack(self._leased()))
        self.verdict = Gone("acked")

    @contextmanager
    def thread_within(self, begin: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
        """Enter a transaction of another library from a thread; the twin of `within`."""
        context = begin()
        with context as session:
            check_commits(context, session)
            yield session
            self._check(Client(connection=session).ack(self._leased()))
        self.verdict = Gone("acked")

    def decoded(self, queue: str, value: object) -> object:
        """Return what a client decodes from a value of JSON that was sent for a queue; an Unopened if it can't."""
        return self._session.codec.of(queue).decode(json.dumps(value).encode())

    def begin_in_thread(self) -> None:
        """Record that the handler goes on in this thread."""
        self._job.thread = threading.get_ident()

    def _leased(self) -> Leased:
        lease = self._job.lease
        return Leased(lease.queue, lease.lease_id, [message.message_id for message in self._job.messages])

    def _check(self, settled: list[Settled]) -> None:
        if any(message.outcome != "acked" for message in settled):
            raise UndoneError("the lease was lost")
        # From here on the transaction may be committed although an error says otherwise.
        self._job.is_doubtful = True


class Performer:
    """Calls a handler, and returns its verdict. Raises the handler's exceptions, for `judge`.

    `sessions` are those of the queues.
    """

    __slots__ = ("_categories", "_handler", "_sessions", "call")

    def __init__(self, handler: Handler, sessions: Mapping[str, Session], categories: Categories) -> None:
        self._handler = handler
        self._sessions = sessions
        self._categories = categories
        self.call: Callable[[Job], Verdict] = self._alone
        if handler.takes_delivery:
            self.call = self._delivered
        elif handler.takes_connection:
            self.call = self._in_transaction

    def judge(self, error: BaseException, job: Job) -> Verdict:
        """Return the verdict for an exception."""
        if isinstance(error, UndoneError):
            return Released()
        if self._handler.judge is not None:
            return self._handler.judge(error, job.messages[0])
        return judge(error, self._categories)

    async def perform(self, job: Job) -> Verdict:
        """Call an async handler, in the event loop."""
        handler = self._handler
        argument = job.messages if handler.takes_batches else job.messages[0]
        if handler.takes_delivery:
            delivery = self._delivery(job)
            await handler.function(argument, delivery)
            return delivery.verdict
        if not handler.takes_connection:
            await handler.function(argument)
            return None
        async with self._delivery(job).transaction() as transaction:
            await handler.function(argument, transaction.connection)
        return Gone("acked")

    def _delivery(self, job: Job) -> Delivery:
        return Delivery(job, self._sessions[job.lease.queue])

    def _delivered(self, job: Job) -> Verdict:
        delivery = self._delivery(job)
        self._handler.function(job.messages[0], delivery)
        return delivery.verdict

    def _alone(self, job: Job) -> Verdict:
        argument = job.messages if self._handler.takes_batches else job.messages[0]
        refuse_coroutine(self._handler.function(argument))
        return None

    def _in_transaction(self, job: Job) -> Verdict:
        argument = job.messages if self._handler.takes_batches else job.messages[0]
        with self._delivery(job).thread_transaction() as transaction:
            refuse_coroutine(self._handler.function(argument, transaction.connection))
        return Gone("acked")


def check_commits(context: object, session: object) -> None:
    """Raise InvalidArgumentError for a session of SQLAlchemy that is its own context: it ends with a rollback."""
    if session is context and hasattr(session, "begin_nested"):
        raise InvalidArgumentError(
            f"the end of this {type(session).__name__} would be a rollback: the session does not commit",
            hint="Tasks(…, session=Session.begin), not session=Session",
            code="invalid_handler",
        )


def refuse_coroutine(result: object) -> None:
    """Raise TypeError for a plain function that returned a coroutine, which has not run."""
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("the handler is a plain function that returned a coroutine: use `async def`")
