"""The tasks of a program: registered by decorators, sent by clients, run by workers."""

import asyncio
import atexit
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal, TypeVar, Unpack, overload

from spanmq.client import AsyncClient
from spanmq.client.argument import Seconds
from spanmq.errors import ExtraNotInstalledError, InvalidArgumentError
from spanmq.model.queue import folded
from spanmq.tasks.call import Call, end_call
from spanmq.tasks.check import QueuedCalls, check_queued, warn
from spanmq.tasks.clients import Clients
from spanmq.tasks.handling import Handling
from spanmq.tasks.periodic import keep, synchronise
from spanmq.tasks.processes import Processes
from spanmq.tasks.results import check_batch
from spanmq.tasks.retry import Retry
from spanmq.tasks.sending import BatchCall, Sender, SendMiddleware, Sent
from spanmq.tasks.signals import SignalOptions, signal_arguments
from spanmq.tasks.task import Catalog, Middleware, P, Periodic, R, StoredTask, Task, TaskOptions
from spanmq.worker import Worker, WorkerOptions, log
from spanmq.worker.event import Event, WorkerStarted
from spanmq.worker.handler import load
from spanmq.worker.runtime import Hook, run_in_loop

logger = logging.getLogger("spanmq.tasks")

AnyTask = TypeVar("AnyTask", bound=Task[..., Any])
AnyFunction = TypeVar("AnyFunction", bound=Callable[[], Any])


class Tasks:
    """The tasks of a program, and where they are sent: queue `name`, unless a task names another.

    A worker runs a task only from the queues for which it is registered, unless `strict` is False: then from any
    that it receives from, so that a role that may send into one of them can have each task run.

    `dsn` is the database for tasks that are sent outside of a transaction of the caller's, and for workers that get no
    other; None: the database of a client without arguments (SPANMQ_DSN, or else the embedded server). `session` and
    `async_session` begin transactions of other software for tasks that take a `session`, such as SQLAlchemy's
    `sessionmaker(engine).begin`. `place` returns the connection or session that `send` uses if the caller names none,
    such as that of the request in progress; `around_plain` makes the context in which each plain function runs, in its
    thread. `weights`, `limits` and `guaranteed` are for queues: the share of a worker's slots, how many messages run
    at once at most, and the slots that are left free for the queue. `client` has arguments for the Client that sends
    outside of a transaction, such as `pooler`. `modules` are names of modules that register further tasks: a worker
    imports them before it starts, so that they may import this one. With `create` a worker creates the queues that are
    missing. `retry` is for tasks that name none. A message whose task this program does not have fails, or, with
    `unknown_task` "defer", is left for a worker that has it, without using an attempt.

    Raises ExtraNotInstalledError without the extra `tasks`, InvalidArgumentError for a name that is not a string, and
    for another `unknown_task`.
    """

    def __init__(
        self,
        name: str,
        *,
        strict: bool = True,
        dsn: str | Callable[[], str] | None = None,
        retry: Retry | None = None,
        place: Callable[[], Any] | None = None,
        around_plain: Callable[[], AbstractContextManager[Any]] = nullcontext,
        session: Callable[[], AbstractContextManager[Any]] | None = None,
        async_session: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        weights: Mapping[str, float] | None = None,
        limits: Mapping[str, int] | None = None,
        guaranteed: Mapping[str, int] | None = None,
        client: Mapping[str, Any] | None = None,
        modules: Iterable[str] = (),
        create: bool = False,
        unknown_task: Literal["fail", "defer"] = "fail",
    ) -> None:
        try:
            import pydantic  # noqa: F401
        except ImportError as error:
            raise ExtraNotInstalledError("tasks need the package pydantic", extra="tasks") from error
        if not isinstance(name, str):
            raise InvalidArgumentError(f"tasks have a name, got {name!r}")
        if isinstance(modules, str):
            raise InvalidArgumentError("modules are a list of names, not one name")
        if unknown_task not in ("fail", "defer"):
            raise InvalidArgumentError(f'unknown_task is "fail" or "defer", got {unknown_task!r}')
        self.name = name
        self.modules = [*modules]
        self.creates_queues = create
        self.clients = Clients(dsn, place, client or {})
        self.catalog = Catalog(
            name=name,
            retry=retry or Retry(),
            sender=Sender(self.clients),
            around_plain=around_plain,
            session=session,
            async_session=async_session,
            strict=strict,
            unknown_task=unknown_task,
        )
        self._shares: WorkerOptions = {
            "weights": dict(weights or {}),
            "limits": dict(limits or {}),
            "guaranteed": dict(guaranteed or {}),
        }
        self._at_start: list[Hook] = []
        self._at_stop: list[Hook] = []
        atexit.register(self.clients.close)

    # Registering.

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self, function: None = None, /, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        store_result: Literal[True] | Seconds,
        **options: Unpack[TaskOptions],
    ) -> Callable[[Callable[P, R]], StoredTask[P, R]]: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        retry: Retry | None = None,
        **options: Any,
    ) -> Any:
        """Register a `function` as a task.

        `name` is by default the function's, `queue` the queue of the Tasks. `queues` are further queues that it may be
        sent to and run from. `aliases` are names that it had: their messages are for it too. `retry` says how often and
        how soon it is tried again, and `max_attempts` how often. `timeout` limits the seconds of one call,
        `concurrency` how many calls run at once in a worker. Its messages have a `priority` of 0 to 9. A `unique` task
        is not sent again with the same arguments, or with the same key that the function `unique` makes of them, within
        `unique_for` seconds, or with `unique_until` "settled" or "started" as long as its message is in the queue, or
        has not been received; `unique="until_settled"` is short for both, and `on_duplicate` says what becomes of a
        duplicate then ("keep" the message, "replace" it, or "raise"). `store_result` keeps what it returns, for an hour
        (True) or for that many seconds. With `process` it runs in a process of its own, for tasks that compute.
        `options` are these.

        Raises InvalidArgumentError, also for a name that is taken.
        """

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            if not callable(function):
                raise InvalidArgumentError(
                    f"a task is a function, got {function!r}",
                    hint='Set a name with @tasks.task(name="ship").',
                )
            rules = retry or self.catalog.retry
            task = (StoredTask if options.get("store_result") else Task)(
                self.catalog,
                function,
                name=name or function.__name__,
                queue=queue or self.name,
                retry=rules if max_attempts is None else replace(rules, max_attempts=max_attempts),
                **options,
            )
            self.catalog.add(task)
            return task

        return register if function is None else register(function)

    def periodic(
        self,
        cron: str,
        *,
        zone: str = "UTC",
        catch_up: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> Callable[[AnyTask], AnyTask]:
        """Send a task at every time of `cron`, an expression such as "*/5 * * * *", in the time zone `zone`.

        Place it above `task`. `arguments` are those of the call, by name. Missed times result in one message, or with
        `catch_up` in one each. Raises InvalidArgumentError for what is not a task; a worker does for an invalid
        expression.
        """

        def register(task: AnyTask) -> AnyTask:
            if not isinstance(task, Task):
                raise InvalidArgumentError(
                    "only a task is periodic",
                    hint="Write @tasks.task below @tasks.periodic.",
                    code="invalid_handler",
                )
            name = f"{self.name}.{task.name}"
            number = sum(other == name or other.startswith(f"{name}#") for other in self.catalog.periodic)
            name = f"{name}#{number + 1}" if number else name
            self.catalog.periodic[name] = Periodic(task, cron, zone, catch_up, dict(arguments or {}))
            return task

        return register

    @overload
    def resource(self, function: AnyFunction, /) -> AnyFunction: ...
    @overload
    def resource(
        self, function: None = None, /, *, kind: Any = None
    ) -> Callable[[AnyFunction], AnyFunction]: ...
    def resource(self, function: Any = None, /, *, kind: Any = None) -> Any:
        """Register a context manager, plain or async, whose value tasks get by its type.

        `function` is a generator function that yields the value once, or returns the context manager. Its annotation
        says the type, or `kind`. A worker opens it before its first message if a task has a parameter of this type
        with the default GIVEN, and closes it after the last; a process for tasks that compute, with its first task
        that asks for it. Raises InvalidArgumentError without a type, or for a second one of a type.
        """

        def register(function: Callable[[], Any]) -> Callable[[], Any]:
            self.catalog.resources.add(function, kind)
            return function

        return register if function is None else register(function)

    def on_start(self, function: Hook) -> Hook:
        """Register a `function` that each worker calls before it receives, and return it: see Worker.on_start.

        If it raises, the worker ends with WorkerStartError.
        """
        self._at_start.append(function)
        return function

    def on_stop(self, function: Hook) -> Hook:
        """Register a `function` that each worker calls at its end, and return it: see Worker.on_stop.

        `run` raises what it raises.
        """
        self._at_stop.append(function)
        return function

    def on_handle(self, middleware: Middleware) -> Middleware:
        """Register a `middleware`, an `async def (message, call_next)`, around every task; the first one is the
        outermost.

        Return it. Raises InvalidArgumentError for another function.
        """
        if not inspect.iscoroutinefunction(middleware):
            raise InvalidArgumentError(
                f"{middleware!r} must be an async function (message, call_next)", code="invalid_handler"
            )
        self.catalog.middleware.append(middleware)
        return middleware

    def on_send(self, middleware: SendMiddleware) -> SendMiddleware:
        """Register a `middleware`, a plain function `(calls, call_next)`, around every send; the first one is the
        outermost.

        It returns what `call_next(calls)` returns, which is awaitable for `send_async` and `send_many_async`. A send
        raises what it raises.
        """
        self.catalog.sender.middleware.append(middleware)
        return middleware

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of all tasks."""
        return self.catalog.queues

    # Sending.

    def send_many(
        self, calls: Iterable[Call], *, connection: Any = None, session: Any = None
    ) -> list[Sent[Any]]:
        """Send `calls`, all or none; return what was sent, in their order.

        In the caller's transaction if a `connection` or a `session` is given. Raises InvalidArgumentError for what is
        not a call, and what `Client.send_batch` raises.
        """
        return self.catalog.sender.send(self.clients.of(connection, session), calls)

    async def send_many_async(
        self, calls: Iterable[Call], *, connection: Any = None, session: Any = None
    ) -> list[Sent[Any]]:
        """Send `calls` from async code, in the transaction of a `connection` or `session`; the twin of `send_many`.

        It raises the same.
        """
        client = await self.clients.of_async(connection, session)
        return await self.catalog.sender.send_async(client, calls)

    def batch(self, calls: Iterable[Call], then: Call | Task[[], Any]) -> BatchCall:
        """Return a batch: when the messages of all `calls` are settled, `then`, a call or a task, is sent, once.

        It has the `batch: BatchResult` with the counts of done and dead, and `results: list[Result]` of the calls in
        their order, if its signature asks for these. Raises InvalidArgumentError if it asks for results and a task of
        the calls does not store them, or there are more than 10,000 calls.
        """
        last = end_call(then, "batch")
        calls = tuple(calls)
        check_batch(calls, last)
        return BatchCall(calls, last, self.catalog.sender)

    def signal(self, name: str, body: object = None, **options: Unpack[SignalOptions]) -> str:
        """Send the signal `name`, with a `body`, to the task that waits for it in the Tasks' queue, or in `queue`.

        Return "released" if one waited. Else the signal is kept for `keep_for` seconds, a day, for a wait that begins
        later: "kept", or "replaced" if one was kept already. Further `options` are a `connection` or a `session`, in
        whose transaction it is sent. Raises what `client.signals.send` raises.
        """
        client = self.clients.of(options.get("connection"), options.get("session"))
        return client.signals.send(**signal_arguments(self.name, name, body, options))

    async def signal_async(self, name: str, body: object = None, **options: Unpack[SignalOptions]) -> str:
        """Send the signal `name`, with a `body` and the `options`, from async code; the twin of `signal`.

        It returns and raises the same.
        """
        client = await self.clients.of_async(options.get("connection"), options.get("session"))
        return await client.signals.send(**signal_arguments(self.name, name, body, options))

    def connect(self, dsn: str) -> None:
        """Use the database of another `dsn` from now on; connections to the former are closed."""
        self.clients.close()
        self.clients.dsn = dsn

    def load(self) -> None:
        """Import the `modules`, which register their tasks; a worker does it before it starts.

        Raises InvalidArgumentError for one that does not exist or can't be imported.
        """
        for module in self.modules:
            load(module)

    def create_queues(self) -> None:
        """Create the queues that are missing, those of the `modules` too.

        Raises MissingPrivilegeError without the right to create queues, and what `load` raises.
        """
        self.load()
        client = self.clients.client()
        existing = {folded(queue.name) for queue in client.queues.list()}
        for queue in self.queues:
            if folded(queue) not in existing:
                client.queues.create(queue)

    def check(
        self, queues: Iterable[str] | None = None, *, dsn: str | None = None, limit: int = 5_000
    ) -> list[QueuedCalls]:
        """Return what a worker of this program would make of what is queued, delayed, scheduled and dead now.

        In all its queues, or in some `queues`, of the database of another `dsn` if it is given. It reads up to `limit`
        messages a queue. Where a queue has more, it says so, and what senders have noted of the others. Not from async
        code. Raises InvalidArgumentError for a task that a worker can't run and a limit that is not valid,
        MissingPrivilegeError without the right "look".
        """
        if isinstance(limit, bool) or not 1 <= limit <= 100_000:
            raise InvalidArgumentError(f"limit must be 1 to 100,000, got {limit!r}")
        self.load()
        self.catalog.check()
        return run_in_loop(self._check(self.queues if queues is None else [*queues], dsn, limit))

    async def _check(self, queues: Iterable[str], dsn: str | None, limit: int) -> list[QueuedCalls]:
        address, password = dsn or self.clients.address(), self.clients.password
        encryption = self.clients.encryption
        async with AsyncClient(address, encryption=encryption, pool_size=1, password=password) as client:
            return await check_queued(client, self.catalog, queues, limit)

    def close(self) -> None:
        """Close the connections that `send` opened in this process."""
        self.clients.close()

    async def close_async(self) -> None:
        """Close the connections that `send_async` opened in this event loop."""
        await self.clients.close_async()

    # Running.

    def worker(self, queues: Iterable[str] | None = None, **settings: Unpack[WorkerOptions]) -> Worker:
        """Return a worker for all tasks, or those of some `queues`; the `settings` are those of Worker.

        Raises InvalidArgumentError for a queue without tasks, a setting that is not valid, and a task that can't run.
        """
        return self._worker(queues, settings)

    def run(self, queues: Iterable[str] | None = None, **settings: Unpack[WorkerOptions]) -> int:
        """Work and return as `Worker.run` does, for all tasks or those of some `queues`.

        The `settings` are those of Worker. Periodic tasks are synchronised first. Raises what `worker` and
        `Worker.run` raise.
        """
        queues = None if queues is None else [*queues]
        worker = self._worker(queues, settings)
        return run_in_loop(self._work(worker, settings, queues, signals=True))

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """Run a worker while an application runs: `FastAPI(lifespan=tasks.lifespan)`.

        Raises what `running` raises, before the application starts or when it ends.
        """
        async with self.running():
            yield

    @asynccontextmanager
    async def running(
        self, queues: Iterable[str] | None = None, **settings: Unpack[WorkerOptions]
    ) -> AsyncIterator[Worker]:
        """Run a worker while a block of async code runs, for all tasks or those of some `queues`.

        The `settings` are those of Worker. Raises what `worker` and `Worker.run` raise: what prevents it from
        continuing is logged at once, and raised at the end of the block.
        """
        started = asyncio.Event()

        def observe(event: Event) -> None:
            if isinstance(event, WorkerStarted):
                started.set()

        observe.hears_routine = lambda: False  # type: ignore[attr-defined]
        settings["observers"] = [*settings.get("observers", (log.write,)), observe]
        queues = None if queues is None else [*queues]
        worker = self._worker(queues, settings)
        work = asyncio.create_task(self._work(worker, settings, queues, signals=False), name="spanmq tasks")
        begun = asyncio.create_task(started.wait())
        try:
            await asyncio.wait([work, begun], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.add_done_callback(self._tell_failure)
                yield worker
        finally:
            begun.cancel()
            worker.stop()
            await work

    def _tell_failure(self, work: asyncio.Task[Any]) -> None:
        if not work.cancelled() and (error := work.exception()) is not None:
            logger.error("worker_failed tasks=%s", self.name, exc_info=error)

    def _worker(self, queues: Iterable[str] | None, settings: WorkerOptions) -> Worker:
        self.load()
        self.catalog.check()
        settings["dsn"] = settings.get("dsn") or self.clients.address()
        settings.setdefault("password", self.clients.password)
        own: WorkerOptions = {**self._shares, **settings}
        handling = Handling(self.catalog, apart=Processes())
        function = handling.handler(settings.get("handler_timeout"), settings.get("processes"))
        chosen = self.queues if queues is None else [*queues]
        known = {folded(queue) for queue in self.queues}
        for queue in chosen if self.catalog.strict else ():
            if folded(queue) not in known:
                raise InvalidArgumentError(
                    f"no task is registered for queue {queue!r}",
                    hint=f"The tasks are for {', '.join(self.queues)}; @tasks.task(queues=[…]) names further queues.",
                )
        worker = Worker(chosen, function, **own)
        for hook in self._at_start:
            worker.on_start(hook)
        for hook in self._at_stop:
            worker.on_stop(hook)
        return worker

    async def _work(
        self, worker: Worker, settings: WorkerOptions, queues: Iterable[str] | None, *, signals: bool
    ) -> int:
        client = AsyncClient(
            settings["dsn"],
            encryption=self.clients.encryption,
            pool_size=1,
            pooler=settings.get("pooler", False),
            password=settings.get("password"),
            listen=False,
        )
        checks: asyncio.Task[None] | None = None
        queues = self.queues if queues is None else queues
        try:
            if self.creates_queues:
                existing = {folded(queue.name) for queue in await client.queues.list()}
                for queue in self.queues:
                    if folded(queue) not in existing:
                        await client.queues.create(queue)
            await synchronise(client, self.catalog, at_start=True)
            checks = asyncio.create_task(self._keep(client, queues), name="spanmq tasks checks")
            checks.add_done_callback(self._tell_failure)
            return await worker.work(signals=signals)
        finally:
            if checks is not None:
                checks.cancel()
                await asyncio.wait([checks])
            await client.close()
            await self.clients.close_async()

    async def _keep(self, client: AsyncClient, queues: Iterable[str]) -> None:
        """Report what is queued and would fail, beside the work; then keep the schedules of periodic tasks."""
        await warn(client, self.catalog, queues)
        if self.catalog.periodic:
            await keep(client, self.catalog)
        await client.close()
