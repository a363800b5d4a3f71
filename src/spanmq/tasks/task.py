"""A task: a function with a name, a queue, and typed ways to send it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack

from spanmq.client.call import Delay, Seconds
from spanmq.codec.body import RawJson
from spanmq.errors import InvalidArgumentError, TaskFailedError
from spanmq.model import Failure
from spanmq.tasks.arguments import Arguments
from spanmq.tasks.retry import Retry

if TYPE_CHECKING:
    from spanmq.tasks.registry import Tasks

P = ParamSpec("P")
R = TypeVar("R")


class Options(TypedDict, total=False):
    """What may be asked for beside the arguments: see docs/guides/tasks.md."""

    delay: Seconds
    at: datetime
    group: str
    priority: int
    expires_in: Seconds
    unique: str
    unique_for: Seconds
    headers: Mapping[str, Any]
    queue: str


class Place(TypedDict, total=False):
    """The transaction to send in: a connection of psycopg or asyncpg, or a session of other software."""

    connection: Any
    session: Any


class AllOptions(Options, Place, total=False):
    """Options and place."""


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


# Not frozen: that alone is a tenth of what a call costs.
@dataclass(slots=True, kw_only=True)
class Call:
    """A task with its arguments, checked and ready: for `send_many`, or as the result of another task."""

    task: str
    queue: str
    body: RawJson
    delay: Delay | None = None
    group: str | None = None
    priority: int = 0
    expires_in: Seconds | None = None
    dedup_id: str | None = None
    dedup_for: Seconds = 300.0
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """How a batch ended: `dead` messages are dead letters, `done` are all others."""

    id: int
    total: int
    done: int
    dead: int


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch that was sent, with its messages."""

    batch_id: int
    messages: list[Sent]


@dataclass(frozen=True, slots=True)
class BatchCall:
    """Calls, and one that is sent when their messages are settled; also as the result of a task."""

    calls: tuple[Call, ...]
    then: Call
    tasks: Tasks = field(repr=False)

    def send(self, **place: Unpack[Place]) -> SentBatch:
        """Send it, all or nothing."""
        client = self.tasks.clients.of(**place)
        return self.tasks.send_batch_through(client, self)

    async def send_async(self, **place: Unpack[Place]) -> SentBatch:
        """Send it from async code."""
        client = self.tasks.clients.of_async(**place)
        return await self.tasks.send_batch_through_async(client, self)


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
        if timeout is not None and (isinstance(timeout, bool) or not timeout > 0):
            raise InvalidArgumentError(f"timeout must be seconds, more than 0, or None, got {timeout!r}")
        if concurrency is not None and (isinstance(concurrency, bool) or concurrency < 1):
            raise InvalidArgumentError(f"concurrency must be at least 1, or None, got {concurrency!r}")
        self.function = function
        self.name = name
        self.queue = queue
        self.aliases = tuple(aliases)
        self.retry = retry
        self.timeout = timeout
        self.concurrency = concurrency
        self.priority = priority
        self.unique = unique
        self.unique_for = unique_for
        # Seconds for which it is kept; None: it is not stored.
        self.keep_for = (3600.0 if store_result else None) if isinstance(store_result, bool) else store_result
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

    def using(self, **options: Unpack[AllOptions]) -> Using[P, R]:
        """Return the same task with options for its sends, or with a transaction to send in."""
        return Using(self, options)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Check arguments, and return what `send_many` takes; raises TaskArgumentsError."""
        return self.prepare(args, kwargs, {})

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send it; raises TaskArgumentsError before anything is sent."""
        return self.tasks.send_many([self.prepare(args, kwargs, {})])[0]

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send it from async code."""
        return (await self.tasks.send_many_async([self.prepare(args, kwargs, {})]))[0]

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Call:
        """Check arguments; `call`, `send` and `using` do."""
        body = self.arguments.write(args, kwargs)
        unique = options.get("unique") or self._key(body, args, kwargs)
        return Call(
            task=self.name,
            queue=options.get("queue", self.queue),
            body=RawJson(body),
            delay=options.get("delay", options.get("at")),
            group=options.get("group"),
            priority=options.get("priority", self.priority),
            expires_in=options.get("expires_in"),
            dedup_id=None if unique is None else f"{self.name}:{unique}",
            dedup_for=options.get("unique_for", self.unique_for),
            headers=options.get("headers", {}),
        )

    def _key(self, body: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        if callable(self.unique):
            return self.unique(*args, **kwargs)
        return hashlib.sha256(body.encode()).hexdigest() if self.unique else None


class Using(Generic[P, R]):
    """A task with options: `ship.using(delay=60).send(order)`."""

    __slots__ = ("_options", "_place", "_task")

    def __init__(self, task: Task[P, R], options: AllOptions) -> None:
        if unknown := options.keys() - AllOptions.__annotations__.keys():
            raise InvalidArgumentError(
                f"a task has no option {', '.join(sorted(unknown))}",
                hint=f"It has {', '.join(AllOptions.__annotations__)}.",
            )
        if "delay" in options and "at" in options:
            raise InvalidArgumentError("a task is sent with a delay or for a moment, not both")
        given: dict[str, Any] = dict(options)
        self._task = task
        self._place: Place = {name: given.pop(name) for name in ("connection", "session") if name in given}  # type: ignore[assignment]
        self._options: Options = given  # type: ignore[assignment]

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Check arguments, and return what `send_many` takes; raises TaskArgumentsError."""
        if self._place:
            raise InvalidArgumentError("a call has no transaction", hint="send_many takes a connection.")
        return self._task.prepare(args, kwargs, self._options)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send it; raises TaskArgumentsError before anything is sent."""
        call = self._task.prepare(args, kwargs, self._options)
        return self._task.tasks.send_many([call], **self._place)[0]

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send it from async code."""
        call = self._task.prepare(args, kwargs, self._options)
        return (await self._task.tasks.send_many_async([call], **self._place))[0]
