"""Processes for tasks that compute: each runs one call at a time, and is killed if the call must end before."""

import asyncio
import os
import signal
import threading
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from pickle import PicklingError
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from spanmq.client.current_handler import CURRENT_HANDLER, progress
from spanmq.codec.body import Codec, Unstored
from spanmq.errors import InvalidArgumentError, ProcessCrashedError
from spanmq.model import Message, Result
from spanmq.tasks.call import Call
from spanmq.tasks.handling import Handling, ProcessTaskError, Step, steps_of
from spanmq.tasks.sending import BatchCall
from spanmq.tasks.signals import Wait
from spanmq.tasks.task import Task
from spanmq.worker.failure import HandlerFailure, judge
from spanmq.worker.handler import find
from spanmq.worker.running.threads import Threads

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

# How long idle processes have to close their resources when the worker ends.
CLOSE_SECONDS: Final = 1.0
# A process passes one progress on in this time: a call may report thousands.
PROGRESS_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a call: the JSON of a result that is stored, and the calls to send."""

    result: str | Unstored | None = None
    steps: tuple[Step, ...] = ()

    def value(self, task: Task[..., Any]) -> Any:
        """Return what the task returned."""
        if self.steps:
            return [*self.steps]
        if isinstance(self.result, str):
            return task.arguments.read_result(Codec().decode(self.result.encode()))
        return self.result


class Processes:
    """Idle processes and those that run a call, as many as calls run at once."""

    def __init__(self) -> None:
        # Made by the first call: a worker may be made before its event loop.
        self._threads: Threads | None = None
        self._idle: list[Process] = []
        self._busy: set[Process] = set()

    async def call(
        self,
        task: Task[..., Any],
        message: Message,
        timeout: float | None,  # noqa: ASYNC109
        results: list[Result] | None = None,
    ) -> Any:
        """Run the task of a message in a process, within `timeout` seconds; return what it returned.

        Raises ProcessTaskError for what it raised, ProcessCrashedError if its process ended, and TimeoutError.
        When cancelled, the process is killed.
        """
        if self._threads is None:
            self._threads = Threads()
        process = self._idle.pop() if self._idle else Process()
        self._busy.add(process)
        running = self._threads.begin(partial(process.call, task, message, timeout, results))
        try:
            await asyncio.wait([running])
            reply = running.result()
        except asyncio.CancelledError:
            process.kill()
            await asyncio.wait([running])  # which ends with its process
            raise
        finally:
            self._busy.discard(process)
            if not process.is_ended:
                self._idle.append(process)
        if isinstance(reply, HandlerFailure):
            raise ProcessTaskError(reply)
        return reply.value(task)

    def close(self) -> None:
        """End all processes."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None
        for process in self._busy:
            process.kill()
        until = monotonic() + CLOSE_SECONDS
        for process in self._idle:
            process.leave()
        for process in self._idle:
            process.join(until)
        self._idle.clear()


class Process:
    """One process; it starts with its first call."""

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._is_killed = False
        # Whether it takes no further call.
        self.is_ended = False

    def call(
        self, task: Task[..., Any], message: Message, timeout: float | None, results: list[Result] | None
    ) -> Reply | HandlerFailure:
        """Run a task, from a thread; return what became of it. `timeout` counts from when its function begins."""
        try:
            pipe = self._running()
            pipe.send((task.path, message, results))
            until: float | None = None
            while pipe.poll(None if until is None else max(until - monotonic(), 0.0)):
                reply: Reply | HandlerFailure | tuple[float, str] | None = pipe.recv()
                if reply is None:
                    until = None if timeout is None else monotonic() + timeout
                elif isinstance(reply, tuple):
                    progress(*reply)
                else:
                    return reply
            self.end()
            raise TimeoutError(f"task {task.name!r} took longer than {timeout:.3g} s")
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            self.end()
            raise ProcessCrashedError(
                f"the process of task {task.name!r} ended: {self._reason()}", queue=message.queue
            ) from None
        except BaseException:
            self.end()  # it may be in the midst of a call
            raise

    def kill(self) -> None:
        """Kill it; a call in its thread then ends."""
        self._is_killed = self.is_ended = True
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """Kill it, and wait for its end."""
        self.kill()
        if self._process is not None:
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()

    def leave(self) -> None:
        """Ask an idle one to end."""
        if self._pipe is not None:
            self._pipe.close()

    def join(self, until: float) -> None:
        """Wait for its end until a time of the monotonic clock, then kill it."""
        if self._process is not None:
            self._process.join(max(until - monotonic(), 0.0))
        self.end()

    def _running(self) -> Connection:
        """Return the pipe to the running process; start one in place of one that ended while it was idle."""
        if self._process is not None and self._process.is_alive() and self._pipe is not None:
            return self._pipe
        if self._pipe is not None:
            self._pipe.close()
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs,), name="spanmq task")
        process.start()
        theirs.close()
        self._process = process
        if self._is_killed:
            process.kill()
        return self._pipe

    def _reason(self) -> str:
        code = None if self._process is None else self._process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        with suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
        return f"signal {-code}"


class Calling:
    """The call that a process runs now. What it reports goes through the pipe, the last of a tenth of a second."""

    is_cancelled = False

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._progress: tuple[float, str] | None = None
        self._is_waiting = False
        self.is_over = False

    def begin(self) -> None:
        """Report that the function begins: from here on the time limit counts."""
        with self._lock:
            self._pipe.send(None)

    def report(self, share: float, note: str) -> None:
        """Pass a progress on, from any thread."""
        with self._lock:
            self._progress = (share, note)
            if not self._is_waiting:
                self._send()

    def end(self) -> None:
        """Pass nothing on any more: what comes next is the reply."""
        with self._lock:
            self.is_over = True

    def _send(self) -> None:
        if self._progress is None or self.is_over:
            self._is_waiting = False
            return
        self._pipe.send(self._progress)
        self._progress, self._is_waiting = None, True
        timer = threading.Timer(PROGRESS_SECONDS, self._send_next)
        timer.daemon = True
        timer.start()

    def _send_next(self) -> None:
        with self._lock:
            self._send()


def serve(pipe: Connection) -> None:
    """Run the calls that come through a pipe, until it is closed: the main function of a process."""
    # A signal to the group of the worker is the worker's, which waits for running calls.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="spanmq parent", daemon=True).start()
    asyncio.run(_serve(pipe))


async def _serve(pipe: Connection) -> None:
    values: dict[Any, Any] = {}
    async with AsyncExitStack() as stack:
        with suppress(EOFError):
            while True:
                path, message, results = pipe.recv()
                reply = await _run(path, message, results, values, stack, pipe)
                try:
                    pipe.send(reply)
                # It can't be pickled.
                except (TypeError, ValueError, AttributeError, RecursionError, PicklingError) as error:
                    pipe.send(_failure(find(path), error, message))


async def _run(
    path: str,
    message: Message,
    results: list[Result] | None,
    values: dict[Any, Any],
    stack: AsyncExitStack,
    pipe: Connection,
) -> Reply | HandlerFailure:
    task: Task[..., Any] | None = None
    try:
        task = find(path)
        resources = task.catalog.resources
        # One by one: what is open stays so for the next call, although another can't be opened.
        for kind in set(task.arguments.resources.values()) - values.keys():
            values |= await resources.open([kind], stack)
        calling = Calling(pipe)
        token = CURRENT_HANDLER.set(calling)
        try:
            result = Handling(task.catalog, values=values).run_here(message, results, calling.begin)
        finally:
            calling.end()
            CURRENT_HANDLER.reset(token)
        if steps := steps_of(result):
            return Reply(steps=tuple(map(_sendable, steps)))
        return Reply(None if task.keep_for is None else _stored(task, result))
    except BaseException as error:  # noqa: BLE001, SystemExit too is only this task's
        return _failure(task, error, message)


def _failure(task: Task[..., Any] | None, error: BaseException, message: Message) -> HandlerFailure:
    from spanmq.tasks.handling import Handling

    return judge(error, {}) if task is None else Handling(task.catalog).judge_failure(error, message)


def _stored(task: Task[..., Any], result: object) -> str | Unstored:
    written = task.arguments.write_result(result)
    try:
        return written if isinstance(written, Unstored) else Codec().encode_result(written)
    except InvalidArgumentError as error:
        return Unstored(error.message)


def _sendable(step: Step) -> Step:
    """Return a step without what can't be sent to another process."""
    if isinstance(step, BatchCall):
        return BatchCall(tuple(map(_plain, step.calls)), _plain(step.then), None)  # type: ignore[arg-type]
    if isinstance(step, Wait):
        return Wait(step.name, timeout=step.timeout, then=_plain(step.then))
    return _plain(step)


def _plain(call: Call) -> Call:
    return replace(call, headers=dict(call.headers), types=())


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
