"""One call of the handler: alone, or in a transaction together with the ack."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from spanmq.message import Settled
from spanmq.worker.failure import judge
from spanmq.worker.handler import Handler
from spanmq.worker.job import Gone, Job, Release, Verdict
from spanmq.worker.session import Session

Categories = Mapping[type[BaseException], str]


class _NotOursError(Exception):
    """The lease no longer holds all of the job: rolls the handler's writes back."""


class Performer:
    """Calls a handler, and says how it ended. Raises nothing but the cancellation of its task."""

    __slots__ = ("_categories", "_handler", "_session_of", "call")

    def __init__(
        self, handler: Handler, session_of: Callable[[Job], Session], categories: Categories
    ) -> None:
        self._handler = handler
        self._session_of = session_of
        self._categories = categories
        self.call: Callable[[Job], Verdict] = (
            self._in_transaction if handler.takes_connection else self._alone
        )

    def judge(self, error: BaseException) -> Verdict:
        """Decide what an exception means."""
        return judge(error, self._categories)

    async def perform(self, job: Job) -> Verdict:
        """Call an async handler, in the event loop."""
        handler = self._handler
        given = job.messages if handler.takes_batches else job.messages[0]
        if not handler.takes_connection:
            await handler.function(given)
            return None
        client = await self._session_of(job).client()
        connection: Any = None
        handled = False
        try:
            async with client.transaction() as transaction:
                connection = transaction.connection
                await self._handler.function(given, connection)
                handled = True
                check(await transaction.ack_lease(*_settling(job)))
        except Exception as error:
            if (release := release_for(error, connection, handled=handled)) is None:
                raise
            return release
        return Gone("acked")

    def _alone(self, job: Job) -> Verdict:
        given = job.messages if self._handler.takes_batches else job.messages[0]
        refuse_coroutine(self._handler.function(given))
        return None

    def _in_transaction(self, job: Job) -> Verdict:
        given = job.messages if self._handler.takes_batches else job.messages[0]
        connection: Any = None
        handled = False
        try:
            with self._session_of(job).thread_client().transaction() as transaction:
                connection = transaction.connection
                refuse_coroutine(self._handler.function(given, connection))
                handled = True
                check(transaction.ack_lease(*_settling(job)))
        except Exception as error:
            if (release := release_for(error, connection, handled=handled)) is None:
                raise
            return release
        return Gone("acked")


def release_for(error: Exception, connection: Any, *, handled: bool) -> Release | None:
    """Return the release that an error of the handler's transaction means; None for the handler's failure.

    Without a connection the handler was not called; a connection that broke is not the message's fault.
    """
    if isinstance(error, _NotOursError):
        return Release()
    if connection is None or connection.closed:
        return Release(is_doubtful=handled)
    return None


def check(settled: list[Settled]) -> None:
    """Raise unless everything was acked."""
    if any(each.outcome != "acked" for each in settled):
        raise _NotOursError


def refuse_coroutine(result: object) -> None:
    """Raise TypeError for a plain function that made a coroutine: nothing has run."""
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("the handler is a plain function that gave a coroutine: say `async def`")


def _settling(job: Job) -> tuple[str, int, list[int]]:
    return job.holding.queue, job.holding.lease_id, [message.message_id for message in job.messages]
