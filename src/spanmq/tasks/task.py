"""A task: a function with a name, a queue, and typed ways to send it; and the catalog of a program's tasks."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from copy import copy
from dataclasses import dataclass, field
from functools import update_wrapper
from hashlib import sha256
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from spanmq.client.argument import Seconds, duration
from spanmq.client.functions import DedupUntil, OnDuplicate
from spanmq.codec.body import RawJson, ValidJson
from spanmq.errors import InvalidArgumentError, TaskArgumentsError, UnknownTaskError
from spanmq.model import Message
from spanmq.model.queue import folded
from spanmq.tasks.arguments import Arguments
from spanmq.tasks.call import Call, Options, Place
from spanmq.tasks.resources import Resources
from spanmq.tasks.resources import name_of as name_of_type
from spanmq.tasks.retry import Retry, check_number
from spanmq.tasks.sending import Sender, Sent
from spanmq.worker.handler import find

# The names of tasks in an error.
KNOWN_MAX: Final = 20

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Unique = bool | Literal["until_settled", "until_started"] | Callable[..., str]
UNTIL: Final[dict[str, DedupUntil]] = {"until_settled": "settled", "until_started": "started"}
CallNext = Callable[[Message], Awaitable[Any]]
Middleware = Callable[[Message, CallNext], Awaitable[Any]]


class TaskOptions(TypedDict, total=False):
    """Options of `Tasks.task`."""

    name: str | None
    queue: str | None
    queues: Iterable[str]
    aliases: Iterable[str]
    max_attempts: int | None
    retry: Retry | None
    timeout: float | None
    concurrency: int | None
    priority: int
    unique: Unique
    unique_for: Seconds
    unique_until: DedupUntil | None
    on_duplicate: OnDuplicate
    process: bool


class Task(Generic[P, R]):
    """A function that can be called, and sent to be called by a worker.

    `Tasks.task` makes it: `catalog` has the tasks of its program, and `function`, `name`, `queue`, `retry`, `queues`,
    `aliases`, `timeout`, `concurrency`, `priority`, `unique`, `unique_for`, `unique_until`, `on_duplicate`,
    `store_result` and `process` are those that it describes. Raises InvalidArgumentError for one that is not valid.
    """

    # The hint of a worker that is given one task as its handler: the messages are calls, which its Tasks handle.
    handler_hint = "Run its Tasks: spanmq worker module:tasks, or tasks.run()."

    def __init__(
        self,
        catalog: Catalog,
        function: Callable[P, R],
        *,
        name: str,
        queue: str,
        retry: Retry,
        queues: Iterable[str] = (),
        aliases: Iterable[str] = (),
        timeout: float | None = None,
        concurrency: int | None = None,
        priority: int = 0,
        unique: Unique = False,
        unique_for: Seconds = 300.0,
        unique_until: DedupUntil | None = None,
        on_duplicate: OnDuplicate = "keep",
        store_result: bool | Seconds = False,
        process: bool = False,
    ) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidArgumentError(
                f"task {name!r} is a generator: nothing would run it", code="invalid_handler"
            )
        if isinstance(unique, str) and unique in UNTIL:
            unique_until = UNTIL[unique]
            unique = True
        for option, value, kind in (
            ("name", name, str),
            ("queue", queue, str),
            ("retry", retry, Retry),
            ("queues", queues, list | tuple),
            ("aliases", aliases, list | tuple),
            ("unique", unique, bool | Callable),
            ("process", process, bool),
        ):
            if not isinstance(value, kind):
                raise InvalidArgumentError(f"{option}={value!r} is not possible for a task")
        check_number("timeout", timeout, 0.001)
        check_number("concurrency", concurrency, 1)
        keep_for = (3600.0 if store_result else None) if isinstance(store_result, bool) else store_result
        if keep_for is not None:
            duration("store_result", keep_for)
        duration("unique_for", unique_for)
        self.function = function
        self.name = name
        self.queue = queue
        # Its own queue, and others that it may be sent to.
        self.queues = (queue, *queues)
        self._folded_queues = frozenset(map(folded, self.queues))
        self.aliases = tuple(aliases)
        self.retry = retry
        self.timeout = timeout
        self.concurrency = concurrency
        if unique_until not in (None, *UNTIL.values()) or on_duplicate not in ("keep", "replace", "raise"):
            raise InvalidArgumentError(
                f"unique_until={unique_until!r} with on_duplicate={on_duplicate!r} is not possible for a task",
                hint='unique_until is "settled" or "started"; on_duplicate is "keep", "replace" or "raise".',
            )
        self.unique = unique
        self.options: dict[str, Any] = {
            "queue": queue,
            "priority": priority,
            "unique_for": unique_for,
            "unique_until": unique_until,
            "on_duplicate": on_duplicate,
        }
        self.place: Place = {}
        # Seconds for which the result is kept; None: it is not stored.
        self.keep_for = keep_for
        self.arguments = Arguments(function, name)
        if keep_for is not None:
            with suppress(NameError):  # of a type that the module defines later: `check` tries again
                self.arguments.check_result()
        self.options |= {
            "stores_result": keep_for is not None,
            "takes_results": "results" in self.arguments.injected,
        }
        self.is_async = inspect.iscoroutinefunction(function)
        # It needs neither a thread nor a transaction.
        self.is_simple = self.is_async and not self.arguments.injected & {"connection", "session"}
        # It runs in a process, which finds it by its path.
        self.process = process
        self.path = f"{function.__module__}:{getattr(function, '__qualname__', name)}"
        if process:
            self._check_process()
        self.catalog = catalog
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name!r} of queue {self.queue!r}>"

    def using(self, **options: Unpack[Options]) -> Self:
        """Return the same task with `options` for its sends, or with a transaction to send in.

        They are the fields of `Options`: `delay` or `at`, `group`, `priority`, `expires_in`, `unique`, `unique_for`,
        `unique_until`, `on_duplicate`, `headers`, `queue`, `connection` and `session`. Raises InvalidArgumentError for
        an unknown one, and for a queue for which the task is not registered.
        """
        if unknown := options.keys() - Options.__annotations__.keys():
            raise InvalidArgumentError(
                f"a task has no option {', '.join(sorted(unknown))}",
                hint=f"It has {', '.join(Options.__annotations__)}.",
            )
        if "delay" in options and "at" in options:
            raise InvalidArgumentError("a task is sent with delay or at, not both")
        queue: Any = options.get("queue", self.queue)
        if not isinstance(queue, str) or not self.catalog.allows(self, queue):
            raise InvalidArgumentError(
                f"task {self.name!r} is not registered for queue {queue!r}",
                hint=f"Write @tasks.task(queues=[{queue!r}]); a worker runs it from no other queue than its own.",
                queue=queue if isinstance(queue, str) else None,
            )
        task = copy(self)
        task.options = {**self.options, **options}
        if "at" in options:
            task.options["delay"] = task.options.pop("at")
        place = {name: task.options.pop(name) for name in Place.__annotations__ if name in options}
        task.place = {**self.place, **place}  # type: ignore[typeddict-item]
        return task

    def _check_process(self) -> None:
        for is_wrong, reason in (
            (self.is_async, "is an async function: a process runs plain ones"),
            (
                self.arguments.injected - {"message", "batch", "results", "signal"},
                "takes a transaction, which stays in the worker",
            ),
            (
                self.concurrency is not None,
                "has a concurrency: the worker's number of processes is its limit",
            ),
            ("<locals>" in self.path, "is defined within a function, where another process does not find it"),
        ):
            if is_wrong:
                raise InvalidArgumentError(
                    f"task {self.name!r} with process=True {reason}", code="invalid_handler"
                )

    def check(self) -> None:
        """Raise InvalidArgumentError for a task that a worker can't run."""
        self.arguments.check()
        if self.keep_for is not None:
            self.arguments.check_result()
        for name, kind in self.arguments.resources.items():
            if kind not in self.catalog.resources.openers:
                raise InvalidArgumentError(
                    f"no resource has the type {name_of_type(kind)} of the parameter {name!r} of task {self.name!r}",
                    hint="Register one with @tasks.resource.",
                    code="invalid_handler",
                )
        registered = find(self.path) if self.process else self
        if not isinstance(registered, Task) or registered.name != self.name:
            raise InvalidArgumentError(
                f"another process can't find task {self.name!r} as {self.path}",
                hint="Register it with the decorator @tasks.task(process=True).",
                code="invalid_handler",
            )

    def is_of(self, queue: str) -> bool:
        """Return whether a task is registered for a `queue`; names of queues have no case."""
        return queue in self.queues or folded(queue) in self._folded_queues

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Check the arguments of a call, `args` and `kwargs` of the function, and return what `send_many` takes.

        Raises TaskArgumentsError for arguments that do not fit, InvalidArgumentError for a task with a transaction.
        """
        if self.place:
            raise InvalidArgumentError("a call has no transaction", hint="send_many takes a connection.")
        return self.prepare(args, kwargs)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent[object]:
        """Send it with the arguments `args` and `kwargs` of the function; return the message.

        Raises TaskArgumentsError for arguments that do not fit, before anything is sent, and what `Client.send_batch`
        raises.
        """
        sender = self.catalog.sender
        sent = sender.send(sender.clients.of(**self.place), [self.prepare(args, kwargs)])[0]
        return self._sent(sent)

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> Sent[object]:
        """Send it with the arguments `args` and `kwargs` from async code; the twin of `send`. It raises the same."""
        sender = self.catalog.sender
        client = await sender.clients.of_async(**self.place)
        sent = (await sender.send_async(client, [self.prepare(args, kwargs)]))[0]
        return self._sent(sent)

    def _sent(self, sent: Sent[Any]) -> Sent[Any]:
        return sent if self.keep_for is None else sent.with_reader(self.arguments.read_result)

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Check the arguments `args` and `kwargs`, as `call` and `send` do; return the call.

        Raises TaskArgumentsError for arguments that do not fit.
        """
        body, types = self.arguments.write_typed(args, kwargs)
        call = Call(self.name, body, types=types, **self.options)
        if call.unique is None and self.unique:
            if callable(self.unique):
                call.unique = self.unique(*args, **kwargs)
            else:
                call.unique = sha256(call.body.encode()).hexdigest()
        return call


class StoredTask(Task[P, R]):
    """A task with `store_result`: a type checker knows what the `wait` of a message returns that it sends."""

    if TYPE_CHECKING:
        # The result of an async task is what its coroutine returns.
        @overload
        def send(
            self: StoredTask[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
        ) -> Sent[T]: ...
        @overload
        def send(self: StoredTask[P, T], *args: P.args, **kwargs: P.kwargs) -> Sent[T]: ...
        def send(self, *args: Any, **kwargs: Any) -> Sent[Any]:
            """Send it, as every task."""

        @overload
        async def send_async(
            self: StoredTask[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
        ) -> Sent[T]: ...
        @overload
        async def send_async(self: StoredTask[P, T], *args: P.args, **kwargs: P.kwargs) -> Sent[T]: ...
        async def send_async(self, *args: Any, **kwargs: Any) -> Sent[Any]:
            """Send it from async code, as every task."""


@dataclass(frozen=True, slots=True)
class Periodic:
    """A task and its times."""

    task: Task[..., Any]
    cron: str
    zone: str
    catch_up: bool
    arguments: dict[str, Any]

    def body(self) -> RawJson:
        """Return the body of its messages; raises TaskArgumentsError."""
        return ValidJson(self.task.arguments.write((), self.arguments))


@dataclass(kw_only=True)
class Catalog:
    """The tasks of a program, and what sends and runs them."""

    name: str
    retry: Retry
    sender: Sender
    around_plain: Callable[[], AbstractContextManager[Any]]
    session: Callable[[], AbstractContextManager[Any]] | None
    async_session: Callable[[], AbstractAsyncContextManager[Any]] | None
    # Whether a task runs only from the queues for which it is registered.
    strict: bool = True
    # What becomes of a message whose task this program does not have.
    unknown_task: Literal["fail", "defer"] = "fail"
    middleware: list[Middleware] = field(default_factory=list)
    resources: Resources = field(default_factory=Resources)
    # By the names of their schedules.
    periodic: dict[str, Periodic] = field(default_factory=dict)
    # By their names, and by those that they had.
    tasks: dict[str, Task[..., Any]] = field(default_factory=dict)

    def add(self, task: Task[..., Any]) -> None:
        """Add a task; raises InvalidArgumentError for a name that is taken."""
        for name in (task.name, *task.aliases):
            if name in self.tasks:
                raise InvalidArgumentError(f"there are two tasks of the name {name!r}")
            self.tasks[name] = task

    def allows(self, task: Task[..., Any], queue: str) -> bool:
        """Return whether messages of a queue may be for a task."""
        return not self.strict or task.is_of(queue)

    def find(self, message: Message) -> Task[..., Any] | None:
        """Return the task of a message, or None."""
        task = self.tasks.get(name_of(message))
        # Else a role that may send into one queue could have all tasks run.
        return task if task is not None and self.allows(task, message.queue) else None

    def get(self, message: Message) -> Task[..., Any]:
        """Return the task of a message; raises UnknownTaskError, or TaskArgumentsError if it names none."""
        if (task := self.find(message)) is not None:
            return task
        name = name_of(message)
        if not name:
            raise TaskArgumentsError(
                "the message is not for a task",
                hint='The body of one is a JSON object, {"task": "name", "args": {…}}; SQS sends a text.',
                queue=message.queue,
            )
        if (elsewhere := self.tasks.get(name)) is not None:
            raise UnknownTaskError(
                f"task {name!r} is not registered for queue {message.queue!r}",
                hint=f"It is for {', '.join(elsewhere.queues)}; @tasks.task(queues=[…]) names further queues.",
                queue=message.queue,
            )
        raise UnknownTaskError(
            f"this worker has no task {name!r}",
            hint=f"It has {self._known()}. Is the module imported that registers it? Tasks(…, modules=[…]) and"
            " spanmq worker shop.tasks:tasks shop.billing import more. Or another version of the program has it.",
            queue=message.queue,
        )

    def _known(self) -> str:
        names = sorted({task.name for task in self.tasks.values()})
        rest = f" and {len(names) - KNOWN_MAX} more" if len(names) > KNOWN_MAX else ""
        return f"{', '.join(names[:KNOWN_MAX])}{rest}" if names else "no task"

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of all tasks."""
        queues = (queue for task in self.tasks.values() for queue in task.queues)
        return tuple(dict.fromkeys(queues)) or (self.name,)

    def check(self) -> None:
        """Raise InvalidArgumentError for a task that a worker can't run."""
        for task in self.tasks.values():
            task.check()


def name_of(message: Message) -> str:
    """Return the name of the task that a message asks for; "" for none."""
    body = message.body
    name = body.get("task") if type(body) is dict else None
    return name if type(name) is str else ""
