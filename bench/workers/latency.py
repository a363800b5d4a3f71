"""From a send to the start of the handler of an idle worker, beside a bare LISTEN and NOTIFY."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from spanmq import Client, Message, Worker

PAUSES_MS = (5.0, 40.0)  # longer than the throttle of notifications
TIMEOUT_SECONDS = 30.0


def bare_ms(dsn: str, count: int) -> list[float]:
    """Time a NOTIFY until it has come, `count` times: a commit, then what a waiting session hears."""
    with psycopg.connect(dsn, autocommit=True) as sender, psycopg.connect(dsn, autocommit=True) as receiver:
        receiver.execute("listen bench_latency")

        def listen() -> Iterator[float]:
            for _ in receiver.notifies():
                yield time.perf_counter()

        return _times(count, listen(), lambda: sender.execute("notify bench_latency"))


def worker_ms(dsn: str, count: int) -> list[float]:
    """Time a send until the handler begins, `count` times; the worker is idle each time."""
    with Client(dsn, maintain_interval=None) as client, _handling(dsn) as begins:
        return _times(count, begins, lambda: client.send("latency", {"number": 1}))


@contextmanager
def _handling(dsn: str) -> Iterator[Iterator[float]]:
    begun: list[float] = []
    changed = threading.Condition()

    async def handle(_: Message) -> None:
        with changed:
            begun.append(time.perf_counter())
            changed.notify()

    def begins() -> Iterator[float]:
        while True:
            with changed:
                if not changed.wait_for(lambda: bool(begun), TIMEOUT_SECONDS):
                    raise RuntimeError("the message did not come")
            yield begun.pop()

    worker = Worker("latency", handle, dsn=dsn)
    thread = threading.Thread(target=lambda: asyncio.run(worker.work(signals=False)), daemon=True)
    thread.start()
    try:
        yield begins()
    finally:
        worker.stop()
        thread.join(TIMEOUT_SECONDS)


def _times(count: int, arrivals: Iterator[float], send: Callable[[], object]) -> list[float]:
    """Send again and again from this thread, with pauses, while another takes the arrivals."""
    chosen = random.Random(1)
    sent: list[float] = []
    came: list[float] = []
    arrived = threading.Event()

    def take() -> None:
        for _ in range(count):
            came.append(next(arrivals))
            arrived.set()

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    for _ in range(count):
        time.sleep(chosen.uniform(*PAUSES_MS) / 1000)
        sent.append(time.perf_counter())
        send()
        if not arrived.wait(TIMEOUT_SECONDS):
            raise RuntimeError("nothing arrived")
        arrived.clear()
    taker.join(TIMEOUT_SECONDS)
    return [(arrival - start) * 1000 for arrival, start in zip(came, sent, strict=True)]
