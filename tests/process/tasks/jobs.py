"""The tasks of test_kill.py. With KILL_AT a worker kills itself at its n-th step; a process of its pool always does at
its tenth.
"""

import os
import signal
from multiprocessing import parent_process
from typing import Any

import psycopg

from spanmq import Message
from spanmq.tasks import GIVEN, BatchCall, BatchResult, Call, Reject, Tasks

tasks = Tasks("orders")
kill_at = 10 if parent_process() else int(os.environ.get("KILL_AT", "0"))
steps = 0


def step() -> None:
    global steps  # noqa: PLW0603, a process has one
    steps += 1
    if steps == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


@tasks.on_handle
async def around(message: Message, call_next: Any) -> Any:
    result = await call_next(message)
    step()
    return result


@tasks.task
async def begin(number: int) -> list[Call | BatchCall]:
    step()
    parts = [store.call("part", f"{number}.{part}") for part in range(3)]
    batch = tasks.batch([*parts, square.call(number), refuse.call()], then=end.call(str(number)))
    return [store.call("first", str(number)), store.call("second", str(number)), batch]


@tasks.task(queue="computed", process=True, store_result=86_400)
def square(number: int) -> list[int]:
    step()
    return [number, number**2]


@tasks.task(queue="stored")
async def refuse() -> None:
    step()
    raise Reject("always")


@tasks.task(queue="stored")
def end(key: str, batch: BatchResult = GIVEN, connection: psycopg.Connection[Any] = GIVEN) -> None:
    connection.execute(
        "insert into effect values ('end', %s)", [f"{key}: {batch.done} done, {batch.dead} dead"]
    )
    step()


@tasks.task(queue="stored")
def store(kind: str, key: str, connection: psycopg.Connection[Any] = GIVEN) -> None:
    connection.execute("insert into effect values (%s, %s)", [kind, key])
    step()


@tasks.periodic("* * * * * *", catch_up=True)
@tasks.task
async def tick(message: Message = GIVEN, connection: psycopg.AsyncConnection[Any] = GIVEN) -> None:
    at = (message.headers or {})["x-spanmq-scheduled-at"]
    await connection.execute("insert into effect values ('tick', %s)", [at])
    step()
