"""A worker: a process of its own, so that it can be killed at any point."""

import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing import parent_process
from multiprocessing.synchronize import Event
from types import FrameType
from typing import Final

import psycopg

from spanmq.errors import InvalidArgumentError, SpanmqError
from spanmq_lab.simulate.engines import Receiver, receiver_of
from spanmq_lab.simulate.load import Load, Taken
from spanmq_lab.simulate.options import Site
from spanmq_lab.simulate.record import Recorder

TELL_SECONDS: Final = 1.0


class Stopped(BaseException):
    """SIGTERM arrived while the worker waited."""


class Worker:
    """Receives, handles and settles messages, until SIGTERM arrives or the run's process ends."""

    def __init__(self, site: Site, receiver: Receiver, recorder: Recorder) -> None:
        self._options = site.options
        self._load = Load(site.options)
        self._receiver = receiver
        self._recorder = recorder
        self._stopped = False
        self._waits = False
        self._told_at = 0.0
        signal.signal(signal.SIGTERM, self._stop)

    def run(self) -> None:
        """Work."""
        while not self._stopped and _has_parent():
            taken = self._receiver.take()
            if taken:
                self._handle_all(taken)
            else:
                self._wait()
            self._tell()
        self._tell(now=True)

    def _handle_all(self, taken: Sequence[Taken]) -> None:
        for place, message in enumerate(taken):
            if self._stopped:
                self._receiver.give_back(taken[place:])
                return
            if self._receiver.holds(message):
                self._handle(message)
                self._tell()

    def _handle(self, taken: Taken) -> None:
        self._recorder.write(
            "started", id=taken.id, attempt=taken.attempt, taken_at=taken.taken_at, until=taken.until
        )
        if self._options.poison_kills and self._load.is_poison(taken.id):
            self._recorder.write("worker_killed")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self._load.work_seconds(taken.id))
        if self._load.fails(taken.id, taken.attempt):
            self._recorder.write("failed", id=taken.id, category=self._options.failure_category)
            outcome = self._receiver.fail(taken, category=self._options.failure_category)
            self._recorder.write("settled", outcome=outcome, ids=[taken.id])
        else:
            # Written before it is settled, because the worker may be killed after that.
            self._recorder.write("done", id=taken.id)
            self._receiver.done(taken)

    def _wait(self) -> None:
        try:
            self._waits = True
            if not self._stopped:
                self._receiver.wait()
        except Stopped:
            pass
        finally:
            self._waits = False

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopped = True
        if self._waits:
            self._waits = False
            raise Stopped

    def _tell(self, *, now: bool = False) -> None:
        if now or time.monotonic() - self._told_at >= TELL_SECONDS:
            self._told_at = time.monotonic()
            used = resource.getrusage(resource.RUSAGE_SELF)
            self._recorder.write(
                "worker",
                polls=self._receiver.polls,
                idle_polls=self._receiver.idle_polls,
                cpu_seconds=round(used.ru_utime + used.ru_stime, 3),
            )


def work(site: Site, worker: int, go: Event) -> None:
    """Run the worker with this number, as soon as all are ready."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run handles Ctrl-C
    recorder = Recorder(site.log, began=site.began, worker=worker)
    try:
        receiver = receiver_of(site, site.options.types_of_worker(worker), recorder)
        recorder.write("worker_ready")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while not go.wait(TELL_SECONDS) and _has_parent():
            pass
        Worker(site, receiver, recorder).run()
        receiver.close()
    except (SpanmqError, psycopg.Error) as error:
        recorder.write("failure", error=str(error), is_final=isinstance(error, InvalidArgumentError))
        sys.exit(1)


def _has_parent() -> bool:
    parent = parent_process()
    return parent is None or parent.is_alive()
