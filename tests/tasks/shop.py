"""The tasks of a shop, of every kind, and a worker whose outcomes a test waits for."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

import psycopg
from pydantic import BaseModel
from tests.patience import WAIT_SECONDS

from spanmq import Message
from spanmq.tasks import GIVEN, Call, Reject, Retry, RetryIn, Tasks
from spanmq.worker.event import Event, MessageSettled

tasks = Tasks("orders")
# What was called, with what.
done: list[Any] = []


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


@dataclass(frozen=True)
class Item:
    name: str
    price: Decimal


class Order(BaseModel, strict=True):
    number: int
    day: date
    items: tuple[Item, ...] = ()


@tasks.task(aliases=["send_out"])
async def ship(order: Order, speed: Speed = Speed.SLOW, *, message: Message = GIVEN) -> None:
    done.append(("ship", order, speed, message.attempt))


@tasks.task(queue="mail", queues=["orders"], priority=3)
def mail(to: str, weight: float = 0.5) -> str:
    done.append(("mail", to, weight, threading.current_thread() is not threading.main_thread()))
    return to


@tasks.task
async def store(number: int, connection: psycopg.AsyncConnection[Any] = GIVEN) -> list[Call]:
    await connection.execute("insert into shipped values (%s)", [number])
    if number < 0:
        raise ValueError("a number below 0")
    return [mail.call(f"{number}@shop"), mail.using(delay=3600).call("later")] if number > 1 else []


@tasks.task
def store_plain(number: int, *, connection: psycopg.Connection[Any] = GIVEN) -> Call | None:
    connection.execute("insert into shipped values (%s)", [number])
    return mail.call("plain") if number > 1 else None


@tasks.task
async def begin(number: int) -> Call:
    return store.call(number)


@tasks.task(
    max_attempts=2,
    retry=Retry(backoff=lambda attempt: 0.0, on={KeyError: "BUSINESS"}, give_up=(ArithmeticError,)),
)
async def fail(how: str, *, message: Message = GIVEN) -> None:
    if how == "later" and message.attempt > 1:
        return
    errors: dict[str, Exception] = {
        "other": OSError("broken"),
        "mapped": KeyError("mapped"),
        "give up": ZeroDivisionError("never"),
        "later": RetryIn(0, "later"),
        "reject": Reject("no"),
    }
    raise errors[how]


@tasks.task(max_attempts=2, retry=Retry(backoff=0), timeout=0.1)
async def hang() -> None:
    await asyncio.Event().wait()


@tasks.task
async def note(anything: Any) -> None:
    done.append(anything)


@tasks.task(unique=True)
async def count(number: int) -> None:
    done.append(number)


class Outcomes:
    """What became of each message, as (id, outcome, error)."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[MessageSettled] = asyncio.Queue()

    def __call__(self, event: Event) -> None:
        if isinstance(event, MessageSettled):
            self._events.put_nowait(event)

    async def next(self) -> MessageSettled:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._events.get()

    async def all(self, count: int) -> list[str]:
        return sorted([(await self.next()).outcome for _ in range(count)])


@asynccontextmanager
async def working(which: Tasks = tasks, **settings: Any) -> AsyncIterator[Outcomes]:
    """Have a worker at work; its outcomes are those of every message."""
    outcomes = Outcomes()
    async with which.running(observers=[outcomes], **settings):
        yield outcomes
