"""Its tasks."""

import os
import signal
from collections.abc import Callable
from typing import Any

from spanmq.django import django_tasks
from spanmq.tasks import GIVEN

tasks = django_tasks("orders")
before_end: list[Callable[[], None]] = []


@tasks.task
def ship(number: int, *, session: Any = GIVEN) -> None:
    session.cursor().execute("insert into shipped values (%s)", [number])
    if number < 0:
        raise ValueError("a number below 0")


@tasks.task
def end() -> None:
    for each in before_end:
        each()
    os.kill(os.getpid(), signal.SIGTERM)
