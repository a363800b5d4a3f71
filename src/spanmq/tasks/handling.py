"""The handling of a message for a task: find the task, read its arguments, call it, ack."""

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from math import ceil, log2
from typing import Any, Final, Protocol

from spanmq.client import AsyncClient, Client
from spanmq.codec.body import Unstored
from spanmq.errors import InvalidArgumentError, TaskArgumentsError, UnknownTaskError
from spanmq.model import Message, Result
from spanmq.tasks.call import BatchResult, Call
from spanmq.tasks.results import read_results
from spanmq.tasks.sending import BatchCall
from spanmq.tasks.signals import Wait, signal_of, with_opened
from spanmq.tasks.task import CallNext, Catalog, Middleware, Task, name_of
from spanmq.worker.failure import HandlerFailure, judge
from spanmq.worker.handler import Handler
from spanmq.worker.job import Released
from spanmq.worker.running.performing import Delivery, refuse_coroutine
from spanmq.worker.running.threads import Threads

logger = logging.getLogger("spanmq.tasks")

# The names of unknown tasks that a worker logs.
DEFERRED_MAX: Final = 100
# What a task returns to have something sent.
Step = Call | BatchCall | Wait
# The kind of the messages that run in processes, of which only some run at once; no task has this name.
OF_PROCESSES: Final = "\0processes"


class ProcessTaskError(Exception):
    """An exception of a task in its process; `failure` is what the rules of the task make of it."""

    def __init__(self, failure: HandlerFailure) -> None:
        super().__init__(failure.error)
        self.failure = failure


class Apart(Protocol):
    """Runs tasks in processes of their own."""

    async def call(
        self,
        task: Task[..., Any],
        message: Message,
        timeout: float | None,  # noqa: ASYNC109
        results: list[Result] | None,
    ) -> Any:
        """Run the task of a message, within `timeout` seconds, and return what it returned."""

    def close(self) -> None:
        """End the processes."""


class Handling:
    """The handler of a registry's messages."""

    def __init__(
        self,
        catalog: Catalog,
        threads: Any = None,
        *,
        apart: Apart | None = None,
        values: dict[Any, Any] | None = None,
    ) -> None:
        """Handle the messages of a catalog; without `apart` tasks with `process=True` run as the others.

        `values` are the resources by their types, if they are open.
        """
        self._catalog = catalog
        self._apart = apart
        self._values = {} if values is None else values
        # For tasks without one.
        self._timeout: float | None = None
        # Queues and names of tasks that were deferred: each is logged once.
        self._deferred: set[tuple[str, str]] = set()
        # Made when the first plain function beside async ones is called.
        self._threads: Threads | None = threads

    async def __call__(self, message: Message, delivery: Delivery) -> Any:
        """Run the task of a message within its middleware; returns what the task returned."""
        if self._catalog.unknown_task == "defer":
            self._catalog.get(message)  # what is deferred is no call for middleware to see
        call: CallNext = partial(self.call, delivery=delivery)
        for middleware in reversed(self._catalog.middleware):
            call = partial(_surround, middleware, call)
        return await call(message)

    async def call(self, message: Message, delivery: Delivery) -> Any:
        """Run the task of a message without middleware."""
        task = self._catalog.get(message)
        if "signal" in task.arguments.injected:
            message = with_opened(message, partial(delivery.decoded, message.queue))
        results = None
        if "results" in task.arguments.injected:
            results = await delivery.read(lambda client: read_results(client, message, task.name))
        if task.process and self._apart is not None:
            timeout = self._timeout if task.timeout is None else task.timeout
            result = await self._apart.call(task, message, timeout, results)
            return await self._finish(task, message, result, delivery)
        arguments = self._read(task, message, results)
        if task.is_simple:
            result = await task.function(**arguments)
        elif task.is_async:
            return await self._call_in_transaction(task, message, arguments, delivery)
        else:
            if self._threads is None:
                self._threads = Threads()
            result, is_sent = await self._threads.call(
                partial(self._run_in_thread, task, message, arguments, delivery)
            )
            if is_sent:
                return result
        return await self._finish(task, message, result, delivery)

    async def _finish(self, task: Task[..., Any], message: Message, result: Any, delivery: Delivery) -> Any:
        """Store a result, or send the calls that were returned, in one commit with the ack."""
        if task.keep_for is not None and not steps_of(result) and message.message_id:
            delivery.keep(task.arguments.write_result(result), task.keep_for)
        elif steps_of(result):
            async with delivery.transaction() as client:
                await self._follow_async(client, task, message, result)
        return result

    def call_plain(self, message: Message, delivery: Delivery) -> Any:
        """Run the task of a message in this thread, where all tasks are plain, and none needs the event loop."""
        task = self._catalog.get(message)
        if "signal" in task.arguments.injected:
            message = with_opened(message, partial(delivery.decoded, message.queue))
        arguments = self._read(task, message)
        result, is_sent = self._run_plain(task, message, arguments, delivery)
        if is_sent:
            return result
        if task.keep_for is not None and not steps_of(result) and message.message_id:
            delivery.keep(task.arguments.write_result(result), task.keep_for)
        elif steps_of(result):
            with delivery.thread_transaction() as client:
                self._follow(client, task, message, result)
        return result

    def run_here(self, message: Message, results: list[Result] | None, begin: Callable[[], None]) -> Any:
        """Run the task of a message, which is plain and has no transaction, and return what it returned.

        Calls `begin` when all is imported and read, right before the function of the task.
        """
        task = self._catalog.get(message)
        task.arguments.check(with_result=task.keep_for is not None)
        arguments = self._read(task, message, results)
        with self._catalog.around_plain():
            begin()
            result = task.function(**arguments)
            refuse_coroutine(result)
            return result

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Have the resources open that tasks ask for in this process; raises WorkerStartError."""
        here = [task for task in self._catalog.tasks.values() if self._apart is None or not task.process]
        kinds = dict.fromkeys(kind for task in here for kind in task.arguments.resources.values())
        async with AsyncExitStack() as stack:
            self._values |= await self._catalog.resources.open(kinds, stack)
            yield

    def judge(self, error: BaseException, message: Message) -> HandlerFailure | Released:
        """Decide what an exception means, by the task's own rules; defer a message whose task is unknown, if so asked.

        It is visible again after half its age, 1 to 64 seconds: soon for a worker that starts now, and seldom to those
        that do not have its task.
        """
        task = self._catalog.find(message)
        if task is None and self._catalog.unknown_task == "defer" and isinstance(error, UnknownTaskError):
            self._report_deferred(message)
            age = (datetime.now(UTC) - message.enqueued_at).total_seconds()
            # A power of two: those of one claim are settled by one call.
            return Released(2.0 ** min(max(ceil(log2(max(age, 1.0))) - 1, 0), 6))
        return self.judge_failure(error, message)

    def _report_deferred(self, message: Message) -> None:
        name = (message.queue, name_of(message))
        if name not in self._deferred and len(self._deferred) < DEFERRED_MAX:
            self._deferred.add(name)
            logger.warning("task_unknown queue=%s task=%s deferred=True", *name)

    def judge_failure(self, error: BaseException, message: Message) -> HandlerFailure:
        """Decide what the exception of a handler means, by the task's own rules."""
        if isinstance(error, ProcessTaskError):
            return error.failure
        task = self._catalog.find(message)
        retry = self._catalog.retry if task is None else task.retry
        try:
            return retry.judge(error, message.attempt)
        except Exception as broken:  # noqa: BLE001, a function `backoff` may raise anything
            broken.__cause__ = error  # for the traceback
            return judge(broken, {})

    def handler(self, timeout: float | None = None, processes: int | None = None) -> Handler:
        """Return what a worker calls; `timeout` is for tasks without one, `processes` for those that have them."""
        self._timeout = timeout
        tasks = self._catalog.tasks.values()
        wants = [task.arguments.injected for task in tasks]
        plain = [task.arguments.injected for task in tasks if not task.is_async]
        transactional = {"connection", "session"}

        def timeout_of(message: Message) -> float | None:
            task = self._catalog.find(message)
            if task is not None and task.process and self._apart is not None:
                return None  # it counts in the process
            return timeout if task is None or task.timeout is None else task.timeout

        def limit_of(message: Message) -> tuple[str, int] | None:
            task = self._catalog.find(message)
            if task is not None and task.process:
                return OF_PROCESSES, processes or os.cpu_count() or 1
            return None if task is None or task.concurrency is None else (task.name, task.concurrency)

        is_limited = any(task.concurrency is not None or task.process for task in tasks)

        # Threads of the worker's own cost a third of those beside an event loop.
        has_apart = self._apart is not None and any(task.process for task in tasks)
        takes_results = any("results" in injected for injected in wants)
        is_async = len(plain) < len(wants) or bool(self._catalog.middleware) or has_apart or takes_results
        function: Callable[..., Any] = self.call if is_async else self.call_plain
        return Handler(
            self if self._catalog.middleware else function,
            f"tasks {self._catalog.name}",
            is_async=is_async,
            takes_connection=any(transactional & injected for injected in wants),
            takes_batches=False,
            takes_delivery=True,
            uses_threads=any("connection" in injected for injected in plain),
            judge=self.judge,
            timeout_of=timeout_of,
            limit_of=limit_of if is_limited else None,
            kind_of=lambda message: getattr(self._catalog.find(message), "name", None),
            opened=self.opened,
            close=self.close,
        )

    def close(self) -> None:
        """End the threads and processes."""
        if self._apart is not None:
            self._apart.close()
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def _read(
        self, task: Task[..., Any], message: Message, results: list[Result] | None = None
    ) -> dict[str, Any]:
        arguments = task.arguments.read(message.body.get("args", {}))
        if "message" in task.arguments.injected:
            arguments["message"] = message
        if "batch" in task.arguments.injected:
            arguments["batch"] = batch_of(message, task.name)
        if "signal" in task.arguments.injected:
            arguments["signal"] = signal_of(message, task.name)
        if "results" in task.arguments.injected:
            arguments["results"] = results
        for name, kind in task.arguments.resources.items():
            arguments[name] = self._values[kind]
        return arguments

    def _follow(self, client: Client, task: Task[..., Any], message: Message, result: Any) -> None:
        """Store the result of a task, or send what it returned."""
        steps = steps_of(result)
        if task.keep_for is not None and not steps and message.message_id:
            store = partial(client.results.store, message.queue, message.message_id, keep_for=task.keep_for)
            try:
                store(task.arguments.write_result(result))
            except InvalidArgumentError as error:
                store(Unstored(error.message))
        if calls := [step for step in steps if isinstance(step, Call)]:
            self._catalog.sender.send(client, calls)
        for step in steps:
            if isinstance(step, BatchCall):
                self._catalog.sender.send_batch(client, step)
            elif isinstance(step, Wait):
                self._catalog.sender.wait(client, step, message)

    async def _follow_async(
        self, client: AsyncClient, task: Task[..., Any], message: Message, result: Any
    ) -> None:
        steps = steps_of(result)
        if task.keep_for is not None and not steps and message.message_id:
            store = partial(client.results.store, message.queue, message.message_id, keep_for=task.keep_for)
            try:
                await store(task.arguments.write_result(result))
            except InvalidArgumentError as error:
                await store(Unstored(error.message))
        if calls := [step for step in steps if isinstance(step, Call)]:
            await self._catalog.sender.send_async(client, calls)
        for step in steps:
            if isinstance(step, BatchCall):
                await self._catalog.sender.send_batch_async(client, step)
            elif isinstance(step, Wait):
                await self._catalog.sender.wait_async(client, step, message)

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

    def _run_in_thread(
        self, task: Task[..., Any], message: Message, arguments: dict[str, Any], delivery: Delivery
    ) -> tuple[Any, bool]:
        delivery.begin_in_thread()
        return self._run_plain(task, message, arguments, delivery)

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


def steps_of(result: object) -> list[Step]:
    """Return what is to be sent of what a task returned: a call, a batch, a wait, or a list of them.

    Raises TypeError for a list of calls and other values, which could neither be sent nor be a result.
    """
    if result is None:
        return []
    results = [*result] if isinstance(result, list | tuple) else [result]
    steps = [result for result in results if isinstance(result, Step)]
    if steps and len(steps) < len(results):
        raise TypeError("the task returned calls and other values in one list")
    return steps


def batch_of(message: Message, task: str) -> BatchResult:
    """Return how the batch ended that a message is the end of; raises TaskArgumentsError for another."""
    try:
        return BatchResult(**(message.headers or {})["x-spanmq-batch"])
    except (KeyError, TypeError) as error:
        raise TaskArgumentsError(f"task {task!r} takes a batch, and its message does not end one") from error


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
