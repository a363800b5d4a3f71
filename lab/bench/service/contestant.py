"""One way to send, receive and ack; prints what it reached, as JSON.

Run it: `python -m lab.bench.service.contestant direct|http DSN|ADDRESS COUNT`: COUNT messages in batches by 32
clients, then single sends; with `cycles` at the end COUNT times one message by one client.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import count as counting
from typing import Protocol

from lab.bench.service.wire import Wire

from spanmq import AsyncClient

CLIENTS = 32
BATCH = 10
POOL = 8
SINGLE_SENDS = 600
SINGLE_CLIENTS = 16
QUEUE = "service"
BODY = {"order": 17, "customer": "c-5", "lines": [{"article": "a" * 40, "n": n} for n in range(3)]}


class Caller(Protocol):
    """What one client can do."""

    async def send_batch(self) -> None:
        """Send a batch."""

    async def send_one(self) -> None:
        """Send a message."""

    async def receive_and_ack(self, quantity: int = BATCH) -> int:
        """Receive a batch and ack it; give its length."""


class Direct:
    """The Python client."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def send_batch(self) -> None:
        """Send a batch."""
        await self._client.send_batch(QUEUE, [BODY] * BATCH)

    async def send_one(self) -> None:
        """Send a message."""
        await self._client.send(QUEUE, BODY)

    async def receive_and_ack(self, quantity: int = BATCH) -> int:
        """Receive a batch and ack it; give its length."""
        messages = await self._client.receive(QUEUE, quantity)
        if messages:
            await self._client.ack(messages)
        return len(messages)


class OverHttp:
    """A connection to the service."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def send_batch(self) -> None:
        """Send a batch."""
        body = json.dumps({"messages": [{"body": BODY}] * BATCH}).encode()
        await self._wire.post(f"/v1/queues/{QUEUE}/messages/batch", body)

    async def send_one(self) -> None:
        """Send a message."""
        await self._wire.post(f"/v1/queues/{QUEUE}/messages", json.dumps({"body": BODY}).encode())

    async def receive_and_ack(self, quantity: int = BATCH) -> int:
        """Receive a batch and ack it; give its length."""
        request = json.dumps({"quantity": quantity}).encode()
        messages = (await self._wire.post(f"/v1/queues/{QUEUE}/receive", request))["messages"]
        if messages:
            receipts = json.dumps({"receipts": [message["receipt"] for message in messages]}).encode()
            await self._wire.post("/v1/ack", receipts)
        return len(messages)


async def run(kind: str, address: str, count: int, *, cycles: bool = False) -> dict[str, object]:
    """Send so many messages, receive and ack them, then time single sends; or run cycles of one message."""
    async with AsyncExitStack() as stack:
        callers: list[Caller]
        if kind == "direct":
            client = await stack.enter_async_context(AsyncClient(address, pool_size=POOL))
            callers = [Direct(client)] * CLIENTS
        else:
            wires = [Wire(address) for _ in range(CLIENTS)]
            for wire in wires:
                stack.callback(wire.close)
            callers = [OverHttp(wire) for wire in wires]
        for caller in callers:  # connected, and the statements prepared
            await caller.send_batch()
        began_with = processor_seconds()
        if cycles:
            await timed(callers[:1], count, cycle)
            return {"processor_seconds": processor_seconds() - began_with}
        sent = await timed(callers, count // BATCH, lambda caller: caller.send_batch())
        received = await timed(callers, count // BATCH, lambda caller: caller.receive_and_ack())
        singles: list[float] = []
        await timed(callers[:1], SINGLE_SENDS, partial(send_timed, times=singles))
        crowded: list[float] = []
        await timed(callers[:SINGLE_CLIENTS], SINGLE_SENDS, partial(send_timed, times=crowded))
        used = processor_seconds() - began_with
    return {
        "send_rate": count / sent,
        "receive_rate": count / received,
        "single_ms": singles,
        "crowded_ms": crowded,
        "processor_seconds": used,
    }


async def cycle(caller: Caller) -> None:
    """Send, receive and ack a message."""
    await caller.send_one()
    await caller.receive_and_ack(1)


async def send_timed(caller: Caller, times: list[float]) -> None:
    """Send a message; add the milliseconds that it took."""
    began = time.perf_counter()
    await caller.send_one()
    times.append((time.perf_counter() - began) * 1000)


def processor_seconds() -> float:
    """Return what this process has used until now."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def timed(callers: list[Caller], times: int, act: Callable[[Caller], Awaitable[object]]) -> float:
    """Let all callers act until it was done so often; give the seconds."""
    numbers = counting()

    async def work(caller: Caller) -> None:
        while next(numbers) < times:
            await act(caller)

    began = time.perf_counter()
    await asyncio.gather(*map(work, callers))
    return time.perf_counter() - began


if __name__ == "__main__":
    kind, address, count, *more = sys.argv[1:]
    print(json.dumps(asyncio.run(run(kind, address, int(count), cycles=more == ["cycles"]))))
