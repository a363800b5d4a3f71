"""What a worker does with a message for a task: find the task, read its arguments, call it, ack."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from spanmq.client import AsyncClient, Client
from spanmq.errors import InvalidArgumentError, TaskArgumentsError
from spanmq.model import Message
from spanmq.tasks.sending import BatchCall, send, send_async, send_batch, send_batch_async
from spanmq.tasks.task import BatchResult, Call, Task
from spanmq.worker.failure import Failure, judge
from spanmq.worker.performing import Delivery, refuse_coroutine
from spanmq.worker.threads import Threads

if TYPE_CHECKING:
    from spanmq.tasks.registry import Tasks

CallNext = Callable[[Message], Awaitable[Any]]
Middleware = Callable[[Message, CallNext], Awaitable[Any]]


class Handling:
    """The handler of a registry's messages."""

    def __init__(self, tasks: Tasks, threads: Any = None) -> None:
        self._tasks = tasks
        # Made when the first plain function beside async ones is called.
        self._threads: Threads | None = threads

    async def __call__(self, message: Message, delivery: Delivery) -> Any:
        """Run the task of a message within its middleware; returns what the task returned."""
        call: CallNext = partial(self.call, delivery=delivery)
        for middleware in reversed(self._tasks.handle_middleware):
            call = partial(_surround, middleware, call)
        return await call(message)

    async def call(self, message: Message, delivery: Delivery) -> Any:
        """Run the task of a message without middleware."""
        task, arguments = self._read(message)
        if task.is_simple:
            result = await task.function(**arguments)
        elif task.is_async:
            return await self._call_in_transaction(task, message, arguments, delivery)
        else:
            if self._threads is None:
                self._threads = Threads()
            result, is_sent = await self._threads.call(
                partial(self._run_plain, task, message, arguments, delivery)
            )
            if is_sent:
                return result
        if task.keep_for is not None or steps_of(result):
            # In one commit with the ack.
            async with delivery.transaction() as client:
                await self._follow_async(client, task, message, result)
        return result

    def call_plain(self, message: Message, delivery: Delivery) -> Any:
        """Run the task of a message in this thread, where all tasks are plain and have no middleware."""
        task, arguments = self._read(message)
        result, is_sent = self._run_plain(task, message, arguments, delivery)
        if not is_sent and (task.keep_for is not None or steps_of(result)):
            with delivery.thread_transaction() as client:
                self._follow(client, task, message, result)
        return result

    def judge(self, error: BaseException, message: Message) -> Failure:
        """Decide what an exception means, by the task's own rules."""
        task = self._tasks.find(message)
        retry = self._tasks.retry if task is None else task.retry
        try:
            return retry.judge(error, message.attempt)
        except Exception as broken:  # noqa: BLE001, a function `backoff` may raise anything
            return judge(broken, {})

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def _read(self, message: Message) -> tuple[Task[..., Any], dict[str, Any]]:
        task = self._tasks.get(message)
        arguments = task.arguments.read(message.body.get("args", {}))
        if "message" in task.arguments.injected:
            arguments["message"] = message
        if "batch" in task.arguments.injected:
            arguments["batch"] = batch_of(message, task.name)
        return task, arguments

    def _follow(self, client: Client, task: Task[..., Any], message: Message, result: Any) -> None:
        """Store the result of a task, or send what it returned."""
        steps = steps_of(result)
        if task.keep_for is not None and not steps and message.message_id:
            client.results.store(message.queue, message.message_id, result, keep_for=task.keep_for)
        if calls := [each for each in steps if isinstance(each, Call)]:
            send(self._tasks, client, calls)
        for each in steps:
            if isinstance(each, BatchCall):
                send_batch(self._tasks, client, each)

    async def _follow_async(
        self, client: AsyncClient, task: Task[..., Any], message: Message, result: Any
    ) -> None:
        steps = steps_of(result)
        if task.keep_for is not None and not steps and message.message_id:
            await client.results.store(message.queue, message.message_id, result, keep_for=task.keep_for)
        if calls := [each for each in steps if isinstance(each, Call)]:
            await send_async(self._tasks, client, calls)
        for each in steps:
            if isinstance(each, BatchCall):
                await send_batch_async(self._tasks, client, each)

    async def _call_in_transaction(
        self, task: Task[..., Any], message: Message, arguments: dict[str, Any], delivery: Delivery
    ) -> Any:
        if "connection" in task.arguments.injected:
            async with delivery.transaction() as client:
                result = await task.function(**arguments, connection=client.connection)
                await self._follow_async(client, task, message, result)
            return result
        async with delivery.within(_needed(self._tasks.async_session, task, "async_session")) as session:
            result = await task.function(**arguments, session=session)
            client = self._tasks.clients.of_async(session=session)
            await self._follow_async(client, task, message, result)
        return result

    def _run_plain(
        self, task: Task[..., Any], message: Message, arguments: dict[str, Any], delivery: Delivery
    ) -> tuple[Any, bool]:
        """Call a plain function; also return whether the calls that it returned are sent."""
        with self._tasks.around_plain():
            if "connection" in task.arguments.injected:
                with delivery.thread_transaction() as client:
                    result = task.function(**arguments, connection=client.connection)
                    refuse_coroutine(result)
                    self._follow(client, task, message, result)
                return result, True
            if "session" in task.arguments.injected:
                with delivery.thread_within(_needed(self._tasks.session, task, "session")) as session:
                    result = task.function(**arguments, session=session)
                    refuse_coroutine(result)
                    self._follow(self._tasks.clients.of(session=session), task, message, result)
                return result, True
            result = task.function(**arguments)
            refuse_coroutine(result)
            return result, False


def steps_of(result: object) -> list[Call | BatchCall]:
    """Return what is to be sent of what a task returned: a call, a batch, or a list of them."""
    if result is None:
        return []
    results = [*result] if isinstance(result, list | tuple) else [result]
    steps = [each for each in results if isinstance(each, Call | BatchCall)]
    return steps if len(steps) == len(results) else []


def batch_of(message: Message, task: str) -> BatchResult:
    """Return how the batch ended that a message is the end of; raises TaskArgumentsError for another."""
    try:
        return BatchResult(**(message.headers or {})["x-spanmq-batch"])
    except (KeyError, TypeError) as error:
        raise TaskArgumentsError(f"task {task!r} takes a batch, and the message ends none") from error


async def _surround(middleware: Middleware, call_next: CallNext, message: Message) -> Any:
    return await middleware(message, call_next)


def _needed(begin: Callable[[], Any] | None, task: Task[..., Any], name: str) -> Callable[[], Any]:
    if begin is None:
        raise InvalidArgumentError(
            f"task {task.name!r} takes a session, and its Tasks have none",
            hint=f"Tasks(…, {name}=Session.begin)",
            code="invalid_handler",
        )
    return begin
