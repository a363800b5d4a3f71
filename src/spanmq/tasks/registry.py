"""The tasks of a program: registered by decorators, sent by clients, run by workers."""

from __future__ import annotations

import atexit
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import replace
from functools import reduce
from typing import Any, TypedDict, TypeVar, Unpack, overload

from spanmq.client.call import Seconds
from spanmq.errors import (
    ExtraNotInstalledError,
    InvalidArgumentError,
    TaskArgumentsError,
    UnknownTaskError,
)
from spanmq.model import Message
from spanmq.tasks import running
from spanmq.tasks.handling import Handling, Middleware
from spanmq.tasks.periodic import Periodic
from spanmq.tasks.retry import Retry
from spanmq.tasks.sending import BatchCall, Clients, send, send_async
from spanmq.tasks.task import Call, P, R, Sent, Task
from spanmq.worker import Worker, WorkerOptions
from spanmq.worker.handler import Handler

Sends = Callable[[Iterable[Call]], Any]
SendMiddleware = Callable[[list[Call], Sends], Any]
AnyTask = TypeVar("AnyTask", bound=Task[..., Any])


class TaskOptions(TypedDict, total=False):
    """Options of `Tasks.task`."""

    name: str | None
    queue: str | None
    aliases: Iterable[str]
    max_attempts: int | None
    retry: Retry | None
    timeout: float | None
    concurrency: int | None
    priority: int
    unique: bool | Callable[..., str]
    unique_for: Seconds
    store_result: bool | Seconds


class Tasks:
    """The tasks of a program, and where they are sent: queue `name`, unless a task names another.

    `dsn` is the database for what is sent outside of a transaction of the caller's, and for workers that get
    no other; None: the variable SPANMQ_DSN. `session` and `async_session` begin transactions of other
    software for tasks that take a `session`, such as SQLAlchemy's `sessionmaker(engine).begin`. `place`
    returns the connection or session that `send` uses if the caller names none, such as that of the request
    in progress; `around_plain` makes the context in which each plain function runs, in its thread. `weights` and
    `limits` are for queues: the share of a worker's slots, and how many messages run at once at most.
    `client` has arguments for the Client that sends outside of a transaction, such as `pooler`.

    Raises ExtraNotInstalledError without the extra `tasks`.
    """

    def __init__(
        self,
        name: str,
        *,
        dsn: str | Callable[[], str] | None = None,
        retry: Retry | None = None,
        place: Callable[[], Any] | None = None,
        around_plain: Callable[[], AbstractContextManager[Any]] = nullcontext,
        session: Callable[[], AbstractContextManager[Any]] | None = None,
        async_session: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        weights: Mapping[str, float] | None = None,
        limits: Mapping[str, int] | None = None,
        client: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import pydantic  # noqa: F401
        except ImportError as error:
            raise ExtraNotInstalledError("tasks need the package pydantic", extra="tasks") from error
        if not isinstance(name, str):
            raise InvalidArgumentError(f"tasks have a name, got {name!r}")
        self.name = name
        self.retry = retry or Retry()
        self.session = session
        self.async_session = async_session
        self.weights = dict(weights or {})
        self.limits = dict(limits or {})
        self.around_plain = around_plain
        self.clients = Clients(dsn, place, client or {})
        self.periodic_tasks: list[Periodic] = []
        self.handle_middleware: list[Middleware] = []
        self._send_middleware: list[SendMiddleware] = []
        self._tasks: dict[str, Task[..., Any]] = {}
        self._names: dict[str, Task[..., Any]] = {}
        atexit.register(self.clients.close)

    # Registering.

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self, function: None = None, /, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
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
        """Register a function as a task.

        `aliases` are names that it had: their messages are for it too. `timeout` limits the seconds of one
        call, `concurrency` how many calls run at once in a worker. A `unique` task is not sent again with the
        same arguments, or with the same key that the function `unique` makes of them, within `unique_for`
        seconds. `store_result` keeps what it returns, for an hour (True) or for that many seconds.

        Raises InvalidArgumentError, also for a name that is taken.
        """

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            if not callable(function):
                raise InvalidArgumentError(
                    f"a task is a function, got {function!r}", hint='A name is @tasks.task(name="ship").'
                )
            rules = retry or self.retry
            task = Task(
                self,
                function,
                name=name or function.__name__,
                queue=queue or self.name,
                retry=rules if max_attempts is None else replace(rules, max_attempts=max_attempts),
                **options,
            )
            for each in (task.name, *task.aliases):
                if each in self._names:
                    raise InvalidArgumentError(f"there are two tasks of the name {each!r}")
                self._names[each] = task
            self._tasks[task.name] = task
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
        """Send a task at every time of a cron expression, such as "*/5 * * * *"; place it above `task`.
        Missed times result in one message, or with `catch_up` in one each.
        """

        def register(task: AnyTask) -> AnyTask:
            if not isinstance(task, Task):
                raise InvalidArgumentError(
                    "only a task is periodic",
                    hint="Write @tasks.task below @tasks.periodic.",
                    code="invalid_handler",
                )
            self.periodic_tasks.append(Periodic(task, cron, zone, catch_up, dict(arguments or {})))
            return task

        return register

    def on_handle(self, middleware: Middleware) -> Middleware:
        """Register an `async def (message, call_next)` around every task; the first one is the outermost."""
        if not inspect.iscoroutinefunction(middleware):
            raise InvalidArgumentError(
                f"{middleware!r} must be an async function (message, call_next)", code="invalid_handler"
            )
        self.handle_middleware.append(middleware)
        return middleware

    def on_send(self, middleware: SendMiddleware) -> SendMiddleware:
        """Register a plain function `(calls, call_next)` around every send; the first one is the outermost.

        It returns what `call_next(calls)` returns, which is awaitable for `send_async` and `send_many_async`.
        """
        self._send_middleware.append(middleware)
        return middleware

    def find(self, message: Message) -> Task[..., Any] | None:
        """Return the task of a message, or None."""
        return self._names.get(name_of(message))

    def get(self, message: Message) -> Task[..., Any]:
        """Return the task of a message; raises UnknownTaskError, or TaskArgumentsError if it names none."""
        if (task := self.find(message)) is not None:
            return task
        name = name_of(message)
        if not name:
            raise TaskArgumentsError(
                "the message is not for a task",
                hint='Its body is {"task": "name", "args": {…}}.',
                queue=message.queue,
            )
        raise UnknownTaskError(
            f"this worker has no task {name!r}",
            hint="Another version of the program may have it.",
            queue=message.queue,
        )

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of all tasks."""
        return tuple(dict.fromkeys(task.queue for task in self._tasks.values())) or (self.name,)

    # Sending.

    def send_many(self, calls: Iterable[Call], *, connection: Any = None, session: Any = None) -> list[Sent]:
        """Send calls, all or none, in the caller's transaction if a connection or session is given."""
        return send(self, self.clients.of(connection, session), calls)

    async def send_many_async(
        self, calls: Iterable[Call], *, connection: Any = None, session: Any = None
    ) -> list[Sent]:
        """Send calls from async code; the twin of `send_many`."""
        return await send_async(self, self.clients.of_async(connection, session), calls)

    def batch(self, calls: Iterable[Call], then: Call | Task[[], Any]) -> BatchCall:
        """Return a batch: when the messages of all calls are settled, `then` is sent, once.

        It has the `batch: BatchResult` with the counts of done and dead, if its signature asks for that.
        """
        last = then.call() if isinstance(then, Task) else then
        if not isinstance(last, Call):
            raise InvalidArgumentError(f"a batch ends with a call, got {last!r}")
        if last.priority or (last.delay, last.expires_in, last.unique) != (None, None, None):
            raise InvalidArgumentError("what ends a batch has a group and headers, and no other option")
        return BatchCall(tuple(calls), last, self)

    def connect(self, dsn: str) -> None:
        """Use another database from now on."""
        self.clients.close()
        self.clients.dsn = dsn

    def create_queues(self) -> None:
        """Create the queues that are missing."""
        for queue in self.queues:
            self.clients.client().queues.create(queue)

    def close(self) -> None:
        """Close the connections that `send` opened in this process."""
        self.clients.close()

    async def close_async(self) -> None:
        """Close the connections that `send_async` opened in this event loop."""
        await self.clients.close_async()

    def around_sends(self, sends: Sends) -> Sends:
        """Return a function that sends, within the middleware."""
        return reduce(
            lambda call_next, middleware: lambda calls: middleware([*calls], call_next),
            reversed(self._send_middleware),
            sends,
        )

    # Running.

    def worker(self, queues: Iterable[str] | None = None, **settings: Unpack[WorkerOptions]) -> Worker:
        """Return a worker for all tasks, or those of some `queues`; the rest are settings of Worker."""
        return running.worker_of(self, Handling(self), queues, settings)

    def check(self) -> None:
        """Raise InvalidArgumentError for a task whose signature can't be read."""
        for task in self._tasks.values():
            task.arguments.check()

    def handler(self, handling: Handling, timeout: float | None = None) -> Handler:
        """Return what a worker calls; `timeout` is for tasks without one."""
        wants = [task.arguments.injected for task in self._tasks.values()]
        plain = [task.arguments.injected for task in self._tasks.values() if not task.is_async]
        transactional = {"connection", "session"}

        def timeout_of(message: Message) -> float | None:
            task = self.find(message)
            return timeout if task is None or task.timeout is None else task.timeout

        def limit_of(message: Message) -> tuple[str, int] | None:
            task = self.find(message)
            return None if task is None or task.concurrency is None else (task.name, task.concurrency)

        is_limited = any(task.concurrency is not None for task in self._tasks.values())

        # Threads of the worker's own cost a third of those beside an event loop.
        is_async = len(plain) < len(wants) or bool(self.handle_middleware)
        function: Callable[..., Any] = handling.call if is_async else handling.call_plain
        return Handler(
            handling if self.handle_middleware else function,
            f"tasks {self.name}",
            is_async=is_async,
            takes_connection=any(transactional & each for each in wants),
            takes_batches=False,
            takes_delivery=True,
            uses_threads=any("connection" in each for each in plain),
            judge=handling.judge,
            timeout_of=timeout_of,
            limit_of=limit_of if is_limited else None,
            kind_of=lambda message: getattr(self.find(message), "name", None),
        )

    def run(self, queues: Iterable[str] | None = None, **settings: Unpack[WorkerOptions]) -> None:
        """Work until SIGTERM or SIGINT, as `Worker.run` does; periodic tasks are synchronised first."""
        running.run(self, queues, settings)

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """Run a worker while an application runs: `FastAPI(lifespan=tasks.lifespan)`."""
        async with self.running():
            yield

    def running(
        self, queues: Iterable[str] | None = None, **settings: Unpack[WorkerOptions]
    ) -> AbstractAsyncContextManager[Worker]:
        """Run a worker while a block of async code runs."""
        return running.working(self, queues, settings)


def name_of(message: Message) -> str:
    """Return the name of the task that a message asks for; "" for none."""
    body = message.body
    name = body.get("task") if type(body) is dict else None
    return name if type(name) is str else ""
