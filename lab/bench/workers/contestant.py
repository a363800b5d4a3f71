"""A contestant in its own process: `python -m lab.bench.workers.contestant MODULE:MAKER DSN JOBS LATENCIES BODIES`.

It sends its jobs, works them off with a handler that does nothing, and then sends single jobs to an idle worker.
At each step it prints a mark, such as `@sending`, and waits for a byte on standard input: meanwhile
`lab.bench.workers.trial` reads the clocks. Last comes `@latencies` with a list in JSON, in milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from lab.bench.workers.contestants import Body, Contestant, Maker

PAUSES_MS = (5.0, 40.0)
START_SECONDS = 1.0


class Calls:
    """What the handler calls, in the event loop or in a thread."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._numbers = iter(range(1, count + 1))
        self._loop = asyncio.get_running_loop()
        self.handled = asyncio.Event()
        self.arrival: asyncio.Future[float] | None = None

    def called(self, _: object) -> None:
        """Note a call: the time of a single job, or the first and the last of many."""
        if self.arrival is not None:
            self._loop.call_soon_threadsafe(self._arrive, self.arrival, time.perf_counter())
            return
        # One step for CPython, so that it is right in threads too.
        number = next(self._numbers)
        if number == 1:
            mark("began")
        if number == self._count:
            mark("handled")
            self._loop.call_soon_threadsafe(self.handled.set)

    def _arrive(self, arrival: asyncio.Future[float], at: float) -> None:
        if not arrival.done():
            arrival.set_result(at)


def mark(name: str) -> None:
    """Print a mark, and wait until it has been read."""
    print(f"@{name}", flush=True)
    sys.stdin.read(1)


async def compete(make: Maker, dsn: str, bodies: Sequence[Body], latencies: int) -> list[float]:
    """Send and work off one job a body; return the milliseconds from single sends to their handlers."""
    calls = Calls(len(bodies))
    contestant = make(dsn, calls.called)
    await contestant.prepare()
    # The garbage collector does not visit what exists by now.
    gc.collect()
    gc.freeze()
    mark("sending")
    await contestant.send(bodies)
    mark("sent")
    async with contestant.working():
        await calls.handled.wait()
    mark("settled")
    async with contestant.working():
        await asyncio.sleep(START_SECONDS)
        await latency_ms(contestant, calls, bodies[0])  # the worker may not listen yet
        return [await latency_ms(contestant, calls, bodies[0]) for _ in range(latencies)]


async def latency_ms(contestant: Contestant, calls: Calls, body: Body) -> float:
    """Send one job to the idle worker; return the milliseconds until its handler begins."""
    await asyncio.sleep(random.uniform(*PAUSES_MS) / 1000)
    calls.arrival = asyncio.get_running_loop().create_future()
    sent_at = time.perf_counter()
    await contestant.send([body])
    return (await calls.arrival - sent_at) * 1000


def main() -> int:
    what, dsn, count, latencies, path = sys.argv[1:]
    name, _, maker = what.partition(":")
    module = import_module(f"lab.bench.workers.contestants.{name}")
    make: Maker = getattr(module, maker)
    texts = json.loads(Path(path).read_text())
    bodies = [json.loads(texts[number % len(texts)]) for number in range(int(count))]
    with asyncio.Runner(loop_factory=getattr(module, "loop_factory", None)) as runner:
        print("@latencies", json.dumps(runner.run(compete(make, dsn, bodies, int(latencies)))), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
