"""The processes of a run: they are started, killed at random, started again, and stopped."""

import multiprocessing
import random
import time
from multiprocessing.context import ForkServerProcess
from typing import Final

from spanmq_lab.simulate.options import Site
from spanmq_lab.simulate.producer_process import produce
from spanmq_lab.simulate.record import Recorder
from spanmq_lab.simulate.worker_process import work

STOP_SECONDS: Final = 10.0
# The run ends after this many consecutive unexpected ends of workers that handled no message.
DEATHS_MAX: Final = 5


class CrewError(Exception):
    """The run cannot continue, because no worker stays alive; the log contains the reasons."""


class Crew:
    """Producers and workers. Workers that end are replaced."""

    def __init__(self, site: Site, recorder: Recorder) -> None:
        self._site = site
        self._recorder = recorder
        # Not fork, because this process has connections and threads. The fork server imports all modules
        # once.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            [
                f"spanmq_lab.simulate.{name}"
                for name in ("worker_process", "producer_process", "engine_spanmq")
            ]
            + ["spanmq_lab.simulate.engine_polling"]
        )
        self._go = self._context.Event()
        self._producers: list[ForkServerProcess] = []
        self._workers: dict[int, ForkServerProcess] = {}
        self._chance = random.Random(f"{site.options.seed}/kill")
        self._kill_at = float("inf")
        self._deaths = 0
        self._handled = 0

    def start_producers(self) -> None:
        """Start all producers."""
        for number in range(self._site.options.producers):
            process = self._context.Process(target=produce, args=(self._site, number), daemon=True)
            process.start()
            self._producers.append(process)

    def start_workers(self) -> None:
        """Start all workers, which wait for `go`."""
        for number in range(self._site.options.workers):
            self._start_worker(number)

    def go(self) -> None:
        """Allow all workers to begin at the same instant."""
        self._go.set()
        self._set_next_kill()

    def producers_ended(self) -> bool:
        """Return whether all producers are done; raises CrewError if one failed."""
        if any(process.exitcode for process in self._producers):
            raise CrewError("a producer failed")
        return all(process.exitcode == 0 for process in self._producers)

    def watch(self, handled: int) -> None:
        """Kill the workers whose time has come, and replace ended ones.

        Raises CrewError if no worker stays alive.
        """
        if time.monotonic() >= self._kill_at:
            self._set_next_kill()
            self._kill_one()
        if handled > self._handled:
            self._handled, self._deaths = handled, 0
        for number, process in self._workers.items():
            if process.exitcode is not None:
                if process.exitcode > 0:
                    self._deaths += 1
                if self._deaths >= DEATHS_MAX:
                    raise CrewError(f"{DEATHS_MAX} workers in a row failed before they handled anything")
                self._recorder.write("worker_restarted", worker=number)
                self._start_worker(number)

    def stop(self) -> None:
        """Ask all processes to stop; kill those that do not."""
        _stop([*self._producers, *self._workers.values()])

    def kill(self) -> None:
        """Kill all at once."""
        for process in (*self._producers, *self._workers.values()):
            process.kill()

    def _start_worker(self, number: int) -> None:
        process = self._context.Process(target=work, args=(self._site, number, self._go), daemon=True)
        process.start()
        self._workers[number] = process

    def _set_next_kill(self) -> None:
        if mean := self._site.options.kill_every:
            self._kill_at = time.monotonic() + self._chance.expovariate(1 / mean)

    def _kill_one(self) -> None:
        number = self._chance.choice(sorted(self._workers))
        # Written before the kill: messages of the worker may be delivered again immediately after it.
        self._recorder.write("worker_killed", worker=number)
        self._workers[number].kill()
        self._workers[number].join()


def _stop(processes: list[ForkServerProcess]) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes:
        if process.exitcode is None:
            process.terminate()
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0.1))
        if process.exitcode is None:
            process.kill()
            process.join()
