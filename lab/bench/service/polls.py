"""Two thousand long polls on one service: what they hold, and how soon a message wakes one."""

from __future__ import annotations

import asyncio
import json
import time

import psycopg
from lab.bench.service.wire import Wire

WAITING = 2_000
QUEUES = 20
MESSAGES = 200
WAIT_SECONDS = 20.0
PAUSE_SECONDS = 0.03  # longer than the throttle of notifications
CONNECTIONS = "select count(*) from pg_stat_activity where application_name = 'spanmq service'"


def measure(dsn: str, address: str) -> tuple[list[float], int]:
    """Return the milliseconds from a send to the answer of a waiter, and the service's connections."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in range(QUEUES):
            connection.execute("select pgmq.create(%s)", [f"poll{number}"])
        return asyncio.run(_measure(connection, address))


async def _measure(
    connection: psycopg.Connection[tuple[object, ...]], address: str
) -> tuple[list[float], int]:
    came: asyncio.Queue[tuple[float, int]] = asyncio.Queue()
    asked = 0
    all_ask = asyncio.Event()
    request = json.dumps({"wait": WAIT_SECONDS}).encode()

    async def poll(number: int) -> None:
        nonlocal asked
        wire = Wire(address)
        try:
            while True:
                asked += 1
                if asked >= WAITING:
                    all_ask.set()
                answer = await wire.post(f"/v1/queues/poll{number % QUEUES}/receive", request)
                for message in answer["messages"]:
                    came.put_nowait((time.perf_counter(), message["body"]))
        finally:
            wire.close()

    polls = [asyncio.create_task(poll(number)) for number in range(WAITING)]
    try:
        await all_ask.wait()
        await asyncio.sleep(2)
        row = connection.execute(CONNECTIONS).fetchone()
        times = []
        for number in range(MESSAGES):
            began = time.perf_counter()
            await asyncio.to_thread(
                connection.execute, "select pgmq.send(%s, to_jsonb(%s))", [f"poll{number % QUEUES}", number]
            )
            arrived, body = await asyncio.wait_for(came.get(), 30)
            if body != number:
                raise RuntimeError(f"message {body} came, {number} was sent")
            times.append((arrived - began) * 1000)
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        for task in polls:
            task.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
    return times, int(str(row[0])) if row else 0
