"""The worker's public class."""

import asyncio
import inspect
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, TypeVar, Unpack
from uuid import uuid4

from spanmq import tracing
from spanmq.client import AsyncShardedQueue, ShardedQueue
from spanmq.client.dsn import with_timeouts
from spanmq.client.options import check_dsn
from spanmq.errors import InvalidArgumentError, WorkerStartError
from spanmq.worker import log
from spanmq.worker.breaker import BreakerState
from spanmq.worker.engine import Engine, Sharding
from spanmq.worker.event import EventBus, Observer
from spanmq.worker.handler import Handler, look_at
from spanmq.worker.observing.trace import HandlerTraces
from spanmq.worker.setting import Settings, WorkerSettings

# The time limit of tasks that were cancelled, after the worker has stopped.
END_SECONDS: Final = 1.0

T = TypeVar("T")
# A function without arguments that is called when a worker starts or stops.
Hook = Callable[[], Any]


class Worker:
    """Receive messages of queues, or of the shards of one, call a handler for each, and settle them.

    `queues` is a name, several, or a sharded queue; any other needs a `dsn`. A `handler` is `handler(message)` or
    `handler(message, connection)`; in the latter, its writes through the connection and the ack are one transaction.
    An `async def` runs in the event loop with psycopg's AsyncConnection, a plain function in a thread with its
    Connection. When it returns, the message is acked; for exceptions see RetryIn, Reject and docs/guides/worker.md.
    For a sharded queue the worker receives from all shards, including those added later, or from `shards`. `name` is
    shown for its leases and failures, by default the host, the process and some random letters. Each of the
    `observers` is called with every event (docs/reference/events.md); by default they are logged. The other
    `settings` are the fields of Settings.

    Raises InvalidArgumentError for a setting that is not valid, and for what is not a handler.
    """

    def __init__(
        self,
        queues: str | Iterable[str] | ShardedQueue | AsyncShardedQueue,
        handler: Callable[..., Any] | Handler,
        *,
        dsn: str | None = None,
        shards: str | Iterable[str] | None = None,
        name: str | None = None,
        observers: Iterable[Observer] = (log.write,),
        **settings: Unpack[WorkerSettings],
    ) -> None:
        try:
            self.settings = Settings(**settings)
        except TypeError as error:
            raise InvalidArgumentError(f"unknown setting of a worker: {error}") from error
        self._sharded = queues if isinstance(queues, ShardedQueue | AsyncShardedQueue) else None
        if (dsn is None) == (self._sharded is None):
            raise InvalidArgumentError("a worker needs a dsn, or a sharded queue, which has its own")
        self.queues = names_of(queues)
        self._shards = None if shards is None else names_of(shards)
        if self._shards is not None and self._sharded is None:
            raise InvalidArgumentError("shards requires a ShardedQueue")
        self.handler = look_at(handler, takes_batches=self.settings.in_batches)
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        self._dsn = None if dsn is None else self._address(check_dsn(dsn))
        self._observers = tuple(observers)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Future[str] | None = None
        self._is_asked = False
        self._is_signalled = False
        self._running: Engine | None = None
        self._at_start: list[Hook] = []
        self._at_stop: list[Hook] = []

    def run(self) -> int:
        """Work until SIGTERM, SIGINT or `stop`, and with `until_empty` until no message is visible.

        Returns how many messages were handled, each attempt counted. Uses its own event loop: uvloop's where that is
        installed. Raises WorkerStartError, HandlerStuckError, QueueNotFoundError, MissingPrivilegeError and other
        errors that prevent the worker from starting or continuing; a server that is away does not.
        """
        return run_in_loop(self.work())

    def stop(self, reason: str = "asked") -> None:
        """Stop receiving, and stop gracefully; may be called from any thread.

        `reason` is a word for the log.
        """
        self._is_asked = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._finish, reason)

    def on_start(self, function: Hook) -> Hook:
        """Register a `function`, plain or async, that is called before anything is received; also a decorator.

        If it raises, the worker ends with WorkerStartError.
        """
        self._at_start.append(function)
        return function

    def on_stop(self, function: Hook) -> Hook:
        """Register a `function`, plain or async, that is called when no handler runs any more; also a decorator.

        It is called even if the start failed; the last one registered is called first. `run` raises what it raises.
        """
        self._at_stop.append(function)
        return function

    def breakers(self) -> dict[str, BreakerState]:
        """Return the state of each queue's circuit breaker, "closed", "open" or "trial"; from any thread.

        For a program's own metrics. A worker that is not running has none.
        """
        return {} if self._running is None else self._running.breakers()

    async def work(self, *, signals: bool = True) -> int:
        """Work until SIGTERM, SIGINT (not if `signals` is False) or `stop`; return and raise as `run` does.

        It then receives no more, waits up to `grace` seconds for handlers, and releases the messages that it still
        holds. A second signal ends the process at once.
        """
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.create_future()
        if self._is_asked:
            self._finish("asked")
        engine = self._running = await self._engine(self._end)
        undo = self._listen_to_signals(self._loop) if signals else []
        try:
            async with self.handler.opened(), AsyncExitStack() as hooks:
                for function in self._at_stop:
                    hooks.push_async_callback(_call, function)
                for function in self._at_start:
                    await _start(function)
                try:
                    await engine.start()
                    reason = await self._end
                except BaseException as error:
                    await engine.stop(type(error).__name__)
                    raise
                await engine.stop(reason)
            return engine.handled
        finally:
            for number in undo:
                self._loop.remove_signal_handler(number)
            self.handler.close()
            self._is_asked = self._is_signalled = False
            self._running = None

    async def _engine(self, end: asyncio.Future[str]) -> Engine:
        queues: Sharding | tuple[str, ...] = self.queues
        dsns = {"": self._dsn or ""}
        if self._sharded is not None:
            listed = self._sharded.addresses()
            addresses = listed if isinstance(listed, dict) else await listed
            dsns = {server: self._address(dsn) for server, dsn in addresses.items()}
            queues = Sharding(self._sharded.queue, None if self._shards is None else frozenset(self._shards))
        handler, observers = self.handler, self._observers
        if tracing.is_on():
            traces = HandlerTraces(self.name)
            handler, observers = traces.over(handler), (traces.observe, *observers)
        return Engine(self.name, dsns, queues, handler, self.settings, EventBus(observers), end)

    def _address(self, dsn: str) -> str:
        pooler = self.settings.pooler
        return with_timeouts(dsn, None, application_name="spanmq worker", pooler=pooler)

    def _finish(self, reason: str) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(reason)

    def _listen_to_signals(self, loop: asyncio.AbstractEventLoop) -> list[int]:
        if threading.current_thread() is not threading.main_thread():
            return []
        numbers = [signal.SIGTERM, signal.SIGINT]
        for number in numbers:
            loop.add_signal_handler(number, self._finish, number.name)
            # In place of the loop's, which does nothing: Python calls it also while a handler blocks the loop.
            signal.signal(number, self._on_signal)
        return [*numbers]

    def _on_signal(self, number: int, _: object) -> None:
        if self._is_signalled:
            # The second signal has its default effect.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._is_signalled = True
        if self._running is not None:
            self._running.begin_no_more()


async def _start(function: Hook) -> None:
    try:
        await _call(function)
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        raise WorkerStartError(
            f"the function {name} of on_start failed: {type(error).__name__}: {error}"
        ) from error


async def _call(function: Hook) -> None:
    if inspect.isawaitable(result := function()):
        await result


def run_in_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own, which does not wait for handlers that ignore their cancellation.

    Returns what it returns.
    """
    loop = new_event_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(_end_tasks())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=END_SECONDS)


def names_of(queues: str | Iterable[str] | ShardedQueue | AsyncShardedQueue) -> tuple[str, ...]:
    """Return the names of queues; raises InvalidArgumentError without names and for duplicates."""
    if isinstance(queues, ShardedQueue | AsyncShardedQueue):
        return (queues.queue,)
    names = (queues,) if isinstance(queues, str) else tuple(queues)
    if not names or len(set(names)) != len(names):
        raise InvalidArgumentError(f"a worker requires one or more distinct queues, got {names!r}")
    return names


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop where it is installed: an eighth less processor time a message."""
    with suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
