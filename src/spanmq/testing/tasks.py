"""Tasks in tests: run what is due, look at what was sent, move the time. The queues are real ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from contextvars import copy_context
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Final, ParamSpec, TypeVar, overload

from spanmq.client import AsyncClient, Client, cron
from spanmq.client.current_handler import CURRENT_HANDLER
from spanmq.codec.body import Codec
from spanmq.codec.encryption import Encryption
from spanmq.model import Leased, Message, SignalEntry
from spanmq.tasks import Call, Sent, Task, Tasks
from spanmq.tasks.check import fit_of
from spanmq.tasks.clients import Clients
from spanmq.tasks.handling import Handling
from spanmq.tasks.task import Catalog
from spanmq.worker.job import Gone, Job, Lease, Released
from spanmq.worker.running.performing import Performer
from spanmq.worker.settling.settler import settlement

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

PAGE: Final = 1_000
PUT_OFF: Final = timedelta(days=1)


def drain(tasks: Tasks, *, raises: bool = True, limit: int = 1_000) -> int:
    """Run every task of `tasks` that is due, and those that they send, until none is; return how many ran.

    A task that failed is not run again: its retry is due after that, when its backoff is over (see Clock). Raises
    what failed, in an ExceptionGroup if there is more than one, unless `raises` is False: then only the queue knows.
    Raises AssertionError for more than `limit`, and InvalidArgumentError for a task that a worker can't run.
    """
    return _run(tasks.catalog, lambda threads: _drain(tasks.catalog, threads, raises=raises, limit=limit))


async def drain_async(tasks: Tasks, *, raises: bool = True, limit: int = 1_000) -> int:
    """Run every task of `tasks` that is due, from async code; the twin of `drain`, but plain functions run in
    threads.

    `raises`, `limit` and what it raises are those of `drain`.
    """
    return await _drain(tasks.catalog, None, raises=raises, limit=limit)


async def _drain(catalog: Catalog, threads: _Here | None, *, raises: bool, limit: int) -> int:
    client = await catalog.sender.clients.async_client()
    handling = Handling(catalog, threads)
    session: Any = _Session(client, catalog.sender.clients.client())
    catalog.check()
    performer = Performer(
        replace(handling.handler(), function=handling, is_async=True),
        dict.fromkeys(catalog.queues, session),
        {},
    )
    async with handling.opened():
        return await _drain_opened(catalog, client, performer, handling, raises=raises, limit=limit)


async def _drain_opened(
    catalog: Catalog,
    client: AsyncClient,
    performer: Performer,
    handling: Handling,
    *,
    raises: bool,
    limit: int,
) -> int:
    errors: list[Exception] = []
    retries: list[tuple[Message, datetime]] = []
    count = 0
    try:
        while messages := [message for queue in catalog.queues for message in await client.receive(queue)]:
            for message in messages:
                count += 1
                if count > limit:
                    raise AssertionError(f"more than {limit} tasks were due: do they send each other?")
                if (error := await _settle(client, performer, message)) is not None:
                    errors.append(error)
                    retries += await _put_off(client, message)
    finally:
        for message, retry_at in retries:
            await client.set_vt(message.queue, message.message_id, retry_at)
        handling.close()
    if raises and errors:
        raise errors[0] if len(errors) == 1 else ExceptionGroup("tasks failed", errors)
    return count


@overload
def perform(task: Task[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs) -> R: ...
@overload
def perform(task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...
def perform(task: Task[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a `task` with its arguments, `args` and `kwargs`, as a worker would, with all middleware; return its result.

    The arguments go to JSON and back. Its transaction is committed; there is no message. Raises what it raised, and
    TaskArgumentsError for arguments that do not fit.
    """
    return _run(task.catalog, lambda threads: _perform(task, args, kwargs, threads))


async def perform_async(task: Task[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run an async `task` with `args` and `kwargs` as a worker would, from async code; the twin of `perform`.

    Raises what it raised.
    """
    result: R = await _perform(task, args, kwargs, None)
    return result


def sent(task: Task[..., Any], **arguments: Any) -> list[Message]:
    """Return the messages of a `task` that wait, the oldest of a queue first; those with these `arguments`, by name.

    Raises TaskArgumentsError for a message that does not fit the task.
    """
    matching = []
    for message in _peek(task.catalog):
        body = message.body if isinstance(message.body, dict) else {}
        if body.get("task") in (task.name, *task.aliases):
            values = task.arguments.read(body.get("args", {}))
            if all(name in values and values[name] == value for name, value in arguments.items()):
                matching.append(message)
    return matching


def assert_visible(client: Client, queue: str, message_id: int) -> None:
    """Assert that receives of this moment return the message of a `queue` with this `message_id`, through a `client`.

    Raises AssertionError with what it waits for, and QueueNotFoundError.
    """
    reasons = client.inspect.explain(queue, message_id)
    if not any(reason.code == "visible" for reason in reasons):
        sentences = " ".join(reason.sentence for reason in reasons)
        raise AssertionError(f"message {message_id} of {queue} is not delivered: {sentences}")


def assert_runs(tasks: Tasks, body: Any, queue: str | None = None) -> None:
    """Assert that a worker of `tasks` could run a message with this `body` in a `queue` (None: that of the tasks).

    Raises AssertionError with what does not fit.
    """
    fit = fit_of(tasks.catalog, queue or tasks.name, body)
    if fit.verdict == "fails":
        raise AssertionError(f"no task could run {body!r}: {fit.task or 'it'} has {fit.reason}")


def assert_sent(task: Task[..., Any], **arguments: Any) -> list[Message]:
    """Return the messages of a `task` that wait, with these `arguments`, by name; raises AssertionError for none."""
    if messages := sent(task, **arguments):
        return messages
    bodies = [message.body for message in _peek(task.catalog)]
    raise AssertionError(f"{task} was not sent with {arguments}; in the queues: {bodies}")


def assert_waits(tasks: Tasks, name: str, *, queue: str | None = None) -> SignalEntry:
    """Return the wait for the signal `name` in a `queue` (None: that of the `tasks`); raises AssertionError for none.

    Its `body` is that of the task that follows, with `task` and `args`; `until` is the time of its timeout.
    """
    waits = list(_waits(tasks.catalog, queue or tasks.name))
    for wait in waits:
        if wait.name == name:
            return wait
    names = [wait.name for wait in waits]
    raise AssertionError(f"no task waits for the signal {name!r} in {queue or tasks.name}; there are {names}")


@contextmanager
def with_resource(tasks: Tasks, value: Any, kind: Any = None) -> Iterator[None]:
    """Have `tasks` get this `value`, within the block, in place of the resource of type `kind`; None: the value's
    type.
    """
    openers = tasks.catalog.resources.openers
    before = {**openers}
    openers[type(value) if kind is None else kind] = lambda: nullcontext(value)
    try:
        yield
    finally:
        openers.clear()
        openers.update(before)


@contextmanager
def record_progress() -> Iterator[list[tuple[float, str]]]:
    """Record what tasks report by `spanmq.progress` within the block: a list of shares and notes, in order."""
    recorder = _Recorder()
    token = CURRENT_HANDLER.set(recorder)
    try:
        yield recorder.reported
    finally:
        CURRENT_HANDLER.reset(token)


class _Recorder:
    """In place of a Job: takes the progress of tasks."""

    is_cancelled = is_over = False

    def __init__(self) -> None:
        self.reported: list[tuple[float, str]] = []

    def report(self, share: float, note: str) -> None:
        self.reported.append((share, note))


class Clock:
    """Moves the time for `tasks`, those of one database: for delays, retries, waits for signals and periodic tasks.

    The clock of the server stays as it is; what expires, and how long a task is unique, is not moved.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._catalog = tasks.catalog
        self._now = datetime.now(UTC)
        # The times by which it was moved, and when.
        self._moves: list[tuple[datetime, timedelta]] = []

    def advance(self, time: timedelta) -> None:
        """Move the time forward by `time`, a timedelta.

        Messages that become due in this time are due now, waits for signals that end in it have timed out, and each
        periodic task is sent for each of its times in it.
        Raises what `Client.send` raises, and InvalidArgumentError for an invalid expression of a periodic task.
        """
        client = self._catalog.sender.clients.client()
        now = datetime.now(UTC)
        for message in _peek(self._catalog):
            if message.leased_until > now:
                client.set_vt(message.queue, message.message_id, max(message.leased_until - time, now))
        self._moves.append((now, time))
        for queue in self._catalog.queues:
            for wait in _waits(self._catalog, queue):
                moved = sum((by for at, by in self._moves if at >= wait.made_at), timedelta())
                if wait.until <= now + moved:
                    client.signals.send(queue, wait.name, timed_out=True)
        until = self._now + time
        for name, periodic in self._catalog.periodic.items():
            times, _ = cron.plan(periodic.cron, periodic.zone, self._now, self._now)
            for at in times:
                if at <= until:
                    headers = {"x-spanmq-schedule": name, "x-spanmq-scheduled-at": at.isoformat()}
                    client.send(periodic.task.queue, periodic.body(), headers=headers)
        self._now = until


async def _settle(client: AsyncClient, performer: Performer, message: Message) -> Exception | None:
    """Run the task of a message and settle it; return what failed."""
    lease_id = message.lease_id or 0
    job = Job([message], Lease(message.queue, lease_id, [message.message_id], monotonic(), 3600.0), None)
    failed: Exception | None = None
    try:
        verdict = await performer.perform(job)
    except Exception as error:  # noqa: BLE001, a task may raise anything
        failed, verdict = error, performer.judge(error, job)
    if not isinstance(verdict, Gone):
        await settlement(Leased(message.queue, lease_id, message.message_id), verdict, results=[job.result])(
            client
        )
    if isinstance(verdict, Released) and verdict.delay:
        return None
    if isinstance(verdict, Released):
        raise AssertionError(f"the transaction of {message} was lost") from failed
    return failed


async def _put_off(client: AsyncClient, message: Message) -> list[tuple[Message, datetime]]:
    """Hide the retry of a message, if there is one, and return when it is due."""
    failure = (await client.inspect.failures(message.queue, message.message_id))[-1]
    if failure.outcome != "retrying" or failure.retry_at is None:
        return []
    await client.set_vt(message.queue, message.message_id, PUT_OFF)
    return [(message, failure.retry_at)]


async def _perform(
    task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], threads: _Here | None
) -> Any:
    catalog = task.catalog
    prepared: list[Call] = []

    def keep(calls: Iterable[Call]) -> list[Sent[Any]]:
        prepared.extend(calls)
        return [Sent(call.queue, 0) for call in prepared]

    catalog.sender.around(keep)([task.prepare(args, kwargs)])
    now = datetime.now(UTC)
    message = Message(
        queue=task.queue,
        message_id=0,
        body=json.loads(prepared[0].body),
        headers=dict(prepared[0].headers),
        attempt=1,
        enqueued_at=now,
        leased_until=now + timedelta(hours=1),
    )
    handling = Handling(catalog, threads)
    alone: Any = _Alone(catalog.sender.clients)
    try:
        async with handling.opened():
            return await handling(message, alone)
    finally:
        handling.close()


def _run(catalog: Catalog, work: Callable[[_Here], Coroutine[Any, Any, R]]) -> R:
    """Run async work in a thread, and the plain functions that it calls in this one; leave no connection open."""
    here = _Here()
    result: Future[R] = Future()

    async def ending() -> R:
        try:
            return await work(here)
        finally:
            await catalog.sender.clients.close_async()

    def finish() -> None:
        try:
            result.set_result(asyncio.run(ending()))
        except BaseException as error:  # noqa: BLE001, a task may raise anything
            result.set_exception(error)
        here.close()

    # A daemon, so that Ctrl-C ends a test whose task hangs.
    Thread(target=copy_context().run, args=[finish], name="spanmq drain", daemon=True).start()
    here.run()
    catalog.sender.clients.close()
    return result.result()


class _Here:
    """In place of Threads: runs functions in the thread of the test, with its connection of Django."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    async def call(self, function: Callable[[], Any]) -> Any:
        future: Future[Any] = Future()
        self._calls.put((future, partial(copy_context().run, function)))
        return await asyncio.wrap_future(future)

    def run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            try:
                future.set_result(function())
            except StopIteration as error:  # no future can carry it
                future.set_exception(RuntimeError(repr(error)))
            except BaseException as error:  # noqa: BLE001, a task may raise anything
                future.set_exception(error)

    def close(self) -> None:
        self._calls.put(None)


def _peek(catalog: Catalog) -> Iterator[Message]:
    client = catalog.sender.clients.of()
    for queue in catalog.queues:
        after = 0
        while page := client.peek(queue, PAGE, after=after):
            yield from page
            after = page[-1].message_id


def _waits(catalog: Catalog, queue: str) -> Iterator[SignalEntry]:
    client, after = catalog.sender.clients.of(), None
    while page := client.signals.list(queue, after=after, limit=PAGE, only_waits=True):
        yield from page
        after = page[-1].name


class _Session:
    """The part of a session that asks for clients."""

    def __init__(self, client: AsyncClient, thread_client: Client) -> None:
        self._client = client
        self._thread_client = thread_client
        self.codec = Codec(encryption=Encryption.from_environment())

    async def client(self) -> AsyncClient:
        return self._client

    def thread_client(self) -> Client:
        return self._thread_client


class _Alone:
    """In place of a Delivery: the transactions of a task without a message to ack."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def begin_in_thread(self) -> None:
        pass

    def decoded(self, queue: str, value: object) -> object:  # noqa: ARG002
        return value

    async def read(self, call: Callable[[AsyncClient], Awaitable[T]]) -> T:
        return await call(await self._clients.async_client())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncClient]:
        async with (await self._clients.async_client()).transaction() as client:
            yield client

    @contextmanager
    def thread_transaction(self) -> Iterator[Client]:
        with self._clients.client().transaction() as client:
            yield client

    def within(
        self, begin: Callable[[], AbstractAsyncContextManager[Any]]
    ) -> AbstractAsyncContextManager[Any]:
        return begin()

    def thread_within(self, begin: Callable[[], AbstractContextManager[Any]]) -> AbstractContextManager[Any]:
        return begin()
