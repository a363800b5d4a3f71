"""Tasks whose process is held up before their function begins, at a place that a test names."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from spanmq.tasks import GIVEN, Tasks

# The place, and the path of a named pipe: a process waits there until the writer closes it.
HELD = "SPANMQ_TEST_HELD"


def hold(place: str) -> None:
    name, _, pipe = os.environ.get(HELD, "").partition(" ")
    if parent_process() is not None and name == place:
        Path(pipe).read_bytes()


class Adapted:
    """Of a type whose adapter is held up, at a place of this name."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        hold(self.place)
        return handler(source)


def checked(number: int) -> int:
    hold("validator")
    return number


@contextmanager
def surrounded() -> Iterator[None]:
    hold("context")
    yield


class Model: ...


tasks = Tasks("starting", around_plain=surrounded)
hold("import")


@tasks.resource
def model() -> Iterator[Model]:
    hold("resource")
    yield Model()


@tasks.task(process=True, timeout=1, max_attempts=1, store_result=True)
def add(
    first: Annotated[int, Adapted("adapter")],
    second: Annotated[int, AfterValidator(checked)],
    *,
    model: Model = GIVEN,
) -> "Sum":
    return first + second


# The type of the result is known when all of the module is.
Sum = Annotated[int, Adapted("result")]
