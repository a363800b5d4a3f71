"""What a worker does with a message for a task: find the task, read its arguments, call it, ack."""

from collections.abc import Callable
from functools import partial
from typing import Any

from spanmq.client import AsyncClient, Client
from spanmq.errors import InvalidArgumentError, TaskArgumentsError
from spanmq.model import Message
from spanmq.tasks.call import BatchResult, Call
from spanmq.tasks.sending import BatchCall
from spanmq.tasks.task import CallNext, Catalog, Middleware, Task
from spanmq.worker.failure import Failure, judge
from spanmq.worker.handler import Handler
from spanmq.worker.performing import Delivery, refuse_coroutine
from spanmq.worker.threads import Threads


class Handling:
    """The handler of a registry's messages."""

    def __init__(self, catalog: Catalog, threads: Any = None) -> None:
        self._catalog = catalog
        # Made when the first plain function beside async ones is called.
        self._threads: Threads | None = threads

    async def __call__(self, message: Message, delivery: Delivery) -> Any:
        """Run the task of a message within its middleware; returns what the task returned."""
        call: CallNext = partial(self.call, delivery=delivery)
        for middleware in reversed(self._catalog.middleware):
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
        # In one commit with the ack.
        if task.keep_for is not None and not steps_of(result) and message.message_id:
            delivery.keep(result, task.keep_for)
        elif steps_of(result):
            async with delivery.transaction() as client:
                await self._follow_async(client, task, message, result)
        return result

    def call_plain(self, message: Message, delivery: Delivery) -> Any:
        """Run the task of a message in this thread, where all tasks are plain and have no middleware."""
        task, arguments = self._read(message)
        result, is_sent = self._run_plain(task, message, arguments, delivery)
        if is_sent:
            return result
        if task.keep_for is not None and not steps_of(result) and message.message_id:
            delivery.keep(result, task.keep_for)
        elif steps_of(result):
            with delivery.thread_transaction() as client:
                self._follow(client, task, message, result)
        return result

    def judge(self, error: BaseException, message: Message) -> Failure:
        """Decide what an exception means, by the task's own rules."""
        task = self._catalog.find(message)
        retry = self._catalog.retry if task is None else task.retry
        try:
            return retry.judge(error, message.attempt)
        except Exception as broken:  # noqa: BLE001, a function `backoff` may raise anything
            broken.__cause__ = error  # for the traceback
            return judge(broken, {})

    def handler(self, timeout: float | None = None) -> Handler:
        """Return what a worker calls; `timeout` is for tasks without one."""
        tasks = self._catalog.tasks.values()
        wants = [task.arguments.injected for task in tasks]
        plain = [task.arguments.injected for task in tasks if not task.is_async]
        transactional = {"connection", "session"}

        def timeout_of(message: Message) -> float | None:
            task = self._catalog.find(message)
            return timeout if task is None or task.timeout is None else task.timeout

        def limit_of(message: Message) -> tuple[str, int] | None:
            task = self._catalog.find(message)
            return None if task is None or task.concurrency is None else (task.name, task.concurrency)

        is_limited = any(task.concurrency is not None for task in tasks)

        # Threads of the worker's own cost a third of those beside an event loop.
        is_async = len(plain) < len(wants) or bool(self._catalog.middleware)
        function: Callable[..., Any] = self.call if is_async else self.call_plain
        return Handler(
            self if self._catalog.middleware else function,
            f"tasks {self._catalog.name}",
            is_async=is_async,
            takes_connection=any(transactional & each for each in wants),
            takes_batches=False,
            takes_delivery=True,
            uses_threads=any("connection" in each for each in plain),
            judge=self.judge,
            timeout_of=timeout_of,
            limit_of=limit_of if is_limited else None,
            kind_of=lambda message: getattr(self._catalog.find(message), "name", None),
            close=self.close,
        )

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def _read(self, message: Message) -> tuple[Task[..., Any], dict[str, Any]]:
        task = self._catalog.get(message)
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
            self._catalog.sender.send(client, calls)
        for each in steps:
            if isinstance(each, BatchCall):
                self._catalog.sender.send_batch(client, each)

    async def _follow_async(
        self, client: AsyncClient, task: Task[..., Any], message: Message, result: Any
    ) -> None:
        steps = steps_of(result)
        if task.keep_for is not None and not steps and message.message_id:
            await client.results.store(message.queue, message.message_id, result, keep_for=task.keep_for)
        if calls := [each for each in steps if isinstance(each, Call)]:
            await self._catalog.sender.send_async(client, calls)
        for each in steps:
            if isinstance(each, BatchCall):
                await self._catalog.sender.send_batch_async(client, each)

    async def _call_in_transaction(
        self, task: Task[..., Any], message: Message, arguments: dict[str, Any], delivery: Delivery
    ) -> Any:
        if "connection" in task.arguments.injected:
            async with delivery.transaction() as client:
                result = await task.function(**arguments, connection=client.connection)
                await self._follow_async(client, task, message, result)
            return result
        async with delivery.within(_needed(self._catalog.async_session, task, "async_session")) as session:
            result = await task.function(**arguments, session=session)
            client = await self._catalog.sender.clients.of_async(session=session)
            await self._follow_async(client, task, message, result)
        return result

    def _run_plain(
        self, task: Task[..., Any], message: Message, arguments: dict[str, Any], delivery: Delivery
    ) -> tuple[Any, bool]:
        """Call a plain function; also return whether the calls that it returned are sent."""
        with self._catalog.around_plain():
            if "connection" in task.arguments.injected:
                with delivery.thread_transaction() as client:
                    result = task.function(**arguments, connection=client.connection)
                    refuse_coroutine(result)
                    self._follow(client, task, message, result)
                return result, True
            if "session" in task.arguments.injected:
                with delivery.thread_within(_needed(self._catalog.session, task, "session")) as session:
                    result = task.function(**arguments, session=session)
                    refuse_coroutine(result)
                    self._follow(self._catalog.sender.clients.of(session=session), task, message, result)
                return result, True
            result = task.function(**arguments)
            refuse_coroutine(result)
            return result, False


def steps_of(result: object) -> list[Call | BatchCall]:
    """Return what is to be sent of what a task returned: a call, a batch, or a list of them.

    Raises TypeError for a list of calls and other values, which could neither be sent nor be a result.
    """
    if result is None:
        return []
    results = [*result] if isinstance(result, list | tuple) else [result]
    steps = [each for each in results if isinstance(each, Call | BatchCall)]
    if steps and len(steps) < len(results):
        raise TypeError("the task returned calls and other values in one list")
    return steps


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
