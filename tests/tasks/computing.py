"""Tasks that run in processes, which find them here."""

import os
import signal
from collections.abc import Iterator
from time import monotonic, sleep
from typing import Any

import spanmq
from spanmq import Message
from spanmq.tasks import GIVEN, Call, Reject, Result, Signal, Tasks, Wait

tasks = Tasks("compute")


class Model:
    """What a process loads once."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.calls = 0


@tasks.resource
def model() -> Iterator[Model]:
    yield Model()


@tasks.task(process=True, store_result=True)
def where(number: int, *, model: Model = GIVEN) -> list[int]:
    model.calls += 1
    return [number, os.getpid(), model.process, model.calls]


@tasks.task(process=True, store_result=True)
def gather(results: list[Result] = GIVEN) -> list[int]:
    return [each.value[0] for each in results]


@tasks.task(process=True, timeout=1, max_attempts=1)
def spin(*, message: Message = GIVEN) -> None:
    until = monotonic() + 3600
    while monotonic() < until:
        sleep(0.01)


@tasks.task(process=True)
def hang() -> None:
    for number in range(1_000):
        spanmq.progress(number / 999, f"hang {number}")
    while True:
        sleep(0.01)


@tasks.task(process=True, max_attempts=1)
def fail(how: str) -> Any:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "reject":
        raise Reject("no")
    if how == "object":
        return object()  # not stored, so not sent
    return 1 // 0


@tasks.task(process=True)
def step(number: int) -> list[Call]:
    return [where.call(number), where.using(delay=3600).call(number)]


@tasks.task(process=True)
def park(number: int) -> Wait:
    return Wait(f"go {number}", timeout=600, then=resume.call(number))


@tasks.task(process=True, store_result=True)
def resume(number: int, *, signal: Signal = GIVEN) -> list[object]:
    return [number, signal.body, os.getpid()]
