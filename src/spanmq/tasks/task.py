"""A task: a function with a name, a queue, and typed ways to send it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from functools import update_wrapper
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypedDict, TypeVar, Unpack

from spanmq.client.call import Delay, Seconds, duration
from spanmq.errors import InvalidArgumentError, TaskFailedError
from spanmq.model import Failure
from spanmq.tasks.arguments import Arguments
from spanmq.tasks.retry import Retry, check_number

if TYPE_CHECKING:
    from spanmq.tasks.registry import Tasks

P = ParamSpec("P")
R = TypeVar("R")


class Place(TypedDict, total=False):
    """The transaction to send in: a connection of psycopg or asyncpg, or a session of other software."""

    connection: Any
    session: Any


class Options(Place, total=False):
    """What `using` takes: see docs/guides/tasks.md."""

    delay: Seconds
    at: datetime
    group: str
    priority: int
    expires_in: Seconds
    unique: str
    unique_for: Seconds
    headers: Mapping[str, Any]
    queue: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was sent, or the earlier one that a unique task found."""

    queue: str
    message_id: int
    tasks: Tasks | None = field(default=None, repr=False, compare=False)

    def wait(self, timeout: Seconds | None = None) -> Any:
        """Wait until the message is settled; return the result that the task stored, or None.

        Raises TimeoutError, or TaskFailedError if it is a dead letter. Commit the send before you wait.
        """
        client = self._tasks.clients.client()
        if client.results.wait(self.queue, self.message_id, seconds=timeout):
            raise TimeoutError(f"{self} was not settled in time")
        if client.inspect.state(self.queue, self.message_id) == "dead":
            raise self._failed(client.inspect.failures(self.queue, self.message_id))
        return client.results.get(self.queue, self.message_id).get(self.message_id)

    async def wait_async(self, timeout: Seconds | None = None) -> Any:  # noqa: ASYNC109, as `wait`
        """Wait from async code; the twin of `wait`."""
        client = self._tasks.clients.async_client()
        if await client.results.wait(self.queue, self.message_id, seconds=timeout):
            raise TimeoutError(f"{self} was not settled in time")
        if await client.inspect.state(self.queue, self.message_id) == "dead":
            raise self._failed(await client.inspect.failures(self.queue, self.message_id))
        return (await client.results.get(self.queue, self.message_id)).get(self.message_id)

    @property
    def _tasks(self) -> Tasks:
        if self.tasks is None:
            raise InvalidArgumentError(f"{self} was not sent by a task, so nothing waits for it")
        return self.tasks

    def _failed(self, failures: Sequence[Failure]) -> TaskFailedError:
        reason = failures[-1].error if failures else None
        return TaskFailedError(f"{self} is a dead letter: {reason}", queue=self.queue)


NO_HEADERS: Final[Mapping[str, Any]] = MappingProxyType({})


# Not frozen, and its default headers are shared: calls are made by the ten thousand.
@dataclass(slots=True)
class Call:
    """A task with its arguments, checked and ready: for `send_many`, or as the result of another task.

    `body` is JSON, `delay` also a moment, and the other fields are the options of the task.
    """

    task: str
    body: str
    queue: str
    delay: Delay | None = None
    group: str | None = None
    priority: int = 0
    expires_in: Seconds | None = None
    unique: str | None = None
    unique_for: Seconds = 300.0
    headers: Mapping[str, Any] = field(default_factory=lambda: NO_HEADERS)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """How a batch ended: `dead` messages are dead letters, `done` are all others."""

    id: int
    total: int
    done: int
    dead: int


class Task(Generic[P, R]):
    """A function that can be called, and sent to be called by a worker."""

    def __init__(
        self,
        tasks: Tasks,
        function: Callable[P, R],
        *,
        name: str,
        queue: str,
        retry: Retry,
        aliases: Iterable[str] = (),
        timeout: float | None = None,
        concurrency: int | None = None,
        priority: int = 0,
        unique: bool | Callable[..., str] = False,
        unique_for: Seconds = 300.0,
        store_result: bool | Seconds = False,
    ) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidArgumentError(
                f"task {name!r} is a generator: nothing would run it", code="invalid_handler"
            )
        for option, value, kind in (
            ("name", name, str),
            ("queue", queue, str),
            ("retry", retry, Retry),
            ("aliases", aliases, list | tuple),
            ("unique", unique, bool | Callable),
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
        self.aliases = tuple(aliases)
        self.retry = retry
        self.timeout = timeout
        self.concurrency = concurrency
        self.unique = unique
        self.options: dict[str, Any] = {"queue": queue, "priority": priority, "unique_for": unique_for}
        self.place: Place = {}
        # Seconds for which the result is kept; None: it is not stored.
        self.keep_for = keep_for
        self.arguments = Arguments(function, name)
        self.is_async = inspect.iscoroutinefunction(function)
        # It needs neither a thread nor a transaction.
        self.is_simple = self.is_async and not self.arguments.injected & {"connection", "session"}
        self.tasks = tasks
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name!r} of queue {self.queue!r}>"

    def using(self, **options: Unpack[Options]) -> Task[P, R]:
        """Return the same task with options for its sends, or with a transaction to send in."""
        if unknown := options.keys() - Options.__annotations__.keys():
            raise InvalidArgumentError(
                f"a task has no option {', '.join(sorted(unknown))}",
                hint=f"It has {', '.join(Options.__annotations__)}.",
            )
        if "delay" in options and "at" in options:
            raise InvalidArgumentError("a task is sent with a delay or for a moment, not both")
        task = copy(self)
        task.options = {**self.options, **options}
        if "at" in options:
            task.options["delay"] = task.options.pop("at")
        place = {name: task.options.pop(name) for name in Place.__annotations__ if name in options}
        task.place = {**self.place, **place}  # type: ignore[typeddict-item]
        return task

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Check arguments, and return what `send_many` takes; raises TaskArgumentsError."""
        if self.place:
            raise InvalidArgumentError("a call has no transaction", hint="send_many takes a connection.")
        return self.prepare(args, kwargs)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send it; raises TaskArgumentsError before anything is sent."""
        return self.tasks.send_many([self.prepare(args, kwargs)], **self.place)[0]

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send it from async code."""
        return (await self.tasks.send_many_async([self.prepare(args, kwargs)], **self.place))[0]

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Check arguments; `call` and `send` do."""
        call = Call(self.name, self.arguments.write(args, kwargs), **self.options)
        if call.unique is None and self.unique:
            if callable(self.unique):
                call.unique = self.unique(*args, **kwargs)
            else:
                call.unique = sha256(call.body.encode()).hexdigest()
        return call
