"""One call of the handler: alone, or in one transaction with the ack."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from typing import Any

from spanmq.client import AsyncClient, Client
from spanmq.model import Leased, Settled
from spanmq.worker.failure import judge
from spanmq.worker.handler import Handler
from spanmq.worker.job import Gone, Job, Release, Verdict
from spanmq.worker.session import Session

Categories = Mapping[type[BaseException], str]


class UndoneError(Exception):
    """A transaction was rolled back, or may have been, for a reason other than its message."""

    def __init__(self, release: Release) -> None:
        super().__init__("the connection or the lease was lost")
        self.release = release


class _NotOursError(Exception):
    """The lease no longer holds all messages of the job: rolls the handler's writes back."""


@dataclass(slots=True)
class Progress:
    """How far the transaction of a handler has come."""

    connection: Any = None
    is_handled: bool = False


class Delivery:
    """A job under way: opens transactions that commit together with the ack of its messages."""

    __slots__ = ("_job", "_session_of", "is_acked")

    def __init__(self, job: Job, session_of: Callable[[Job], Session]) -> None:
        self._job = job
        self._session_of = session_of
        self.is_acked = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncClient]:
        """Begin a transaction; ack and commit at the end. Raises UndoneError if that is not possible."""
        client = await self._session_of(self._job).client()
        with self._committing() as progress:
            async with client.transaction() as transaction:
                progress.connection = transaction.connection
                yield transaction
                progress.is_handled = True
                check(await transaction.ack(Leased(*self._settling())))

    @contextmanager
    def thread_transaction(self) -> Iterator[Client]:
        """Begin a transaction from a thread; the twin of `transaction`."""
        session = self._session_of
        with self._committing() as progress, session(self._job).thread_client().transaction() as transaction:
            progress.connection = transaction.connection
            yield transaction
            progress.is_handled = True
            check(transaction.ack(Leased(*self._settling())))

    @asynccontextmanager
    async def within(self, begin: Callable[[], AbstractAsyncContextManager[Any]]) -> AsyncIterator[Any]:
        """Enter a transaction of another library, and ack in it before it commits."""
        try:
            async with begin() as session:
                yield session
                check(await AsyncClient(connection=session).ack(Leased(*self._settling())))
        except _NotOursError as error:
            raise UndoneError(Release()) from error
        self.is_acked = True

    @contextmanager
    def thread_within(self, begin: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
        """Enter a transaction of another library from a thread; the twin of `within`."""
        try:
            with begin() as session:
                yield session
                check(Client(connection=session).ack(Leased(*self._settling())))
        except _NotOursError as error:
            raise UndoneError(Release()) from error
        self.is_acked = True

    @contextmanager
    def _committing(self) -> Iterator[Progress]:
        """Note that the messages are acked; raise UndoneError for what is not the handler's failure.

        Without a connection the handler was not called; a broken connection is not the message's fault.
        """
        progress = Progress()
        try:
            yield progress
        except _NotOursError as error:
            raise UndoneError(Release()) from error
        except Exception as error:
            if progress.connection is not None and not progress.connection.closed:
                raise
            raise UndoneError(Release(is_doubtful=progress.is_handled)) from error
        self.is_acked = True

    def _settling(self) -> tuple[str, int, list[int]]:
        holding = self._job.holding
        return holding.queue, holding.lease_id, [message.message_id for message in self._job.messages]


class Performer:
    """Calls a handler, and returns its verdict. Raises the handler's exceptions, for `judge`."""

    __slots__ = ("_categories", "_handler", "_session_of", "call")

    def __init__(
        self, handler: Handler, session_of: Callable[[Job], Session], categories: Categories
    ) -> None:
        self._handler = handler
        self._session_of = session_of
        self._categories = categories
        self.call: Callable[[Job], Verdict] = self._alone
        if handler.takes_delivery:
            self.call = self._delivered
        elif handler.takes_connection:
            self.call = self._in_transaction

    def judge(self, error: BaseException, job: Job) -> Verdict:
        """Return the verdict for an exception."""
        if isinstance(error, UndoneError):
            return error.release
        if self._handler.judge is not None:
            return self._handler.judge(error, job.messages[0])
        return judge(error, self._categories)

    async def perform(self, job: Job) -> Verdict:
        """Call an async handler, in the event loop."""
        handler = self._handler
        given = job.messages if handler.takes_batches else job.messages[0]
        if handler.takes_delivery:
            delivery = Delivery(job, self._session_of)
            await handler.function(given, delivery)
            return Gone("acked") if delivery.is_acked else None
        if not handler.takes_connection:
            await handler.function(given)
            return None
        try:
            async with Delivery(job, self._session_of).transaction() as transaction:
                await handler.function(given, transaction.connection)
        except UndoneError as undone:
            return undone.release
        return Gone("acked")

    def _delivered(self, job: Job) -> Verdict:
        delivery = Delivery(job, self._session_of)
        self._handler.function(job.messages[0], delivery)
        return Gone("acked") if delivery.is_acked else None

    def _alone(self, job: Job) -> Verdict:
        given = job.messages if self._handler.takes_batches else job.messages[0]
        refuse_coroutine(self._handler.function(given))
        return None

    def _in_transaction(self, job: Job) -> Verdict:
        given = job.messages if self._handler.takes_batches else job.messages[0]
        try:
            with Delivery(job, self._session_of).thread_transaction() as transaction:
                refuse_coroutine(self._handler.function(given, transaction.connection))
        except UndoneError as undone:
            return undone.release
        return Gone("acked")


def check(settled: list[Settled]) -> None:
    """Raise unless all messages were acked."""
    if any(each.outcome != "acked" for each in settled):
        raise _NotOursError


def refuse_coroutine(result: object) -> None:
    """Raise TypeError for a plain function that returned a coroutine, which has not run."""
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("the handler is a plain function that returned a coroutine: use `async def`")
