"""What an engine is: something that is prepared, sent to and received from."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from spanmq.simulate.load import Item
from spanmq.simulate.options import Options


@dataclass(frozen=True, slots=True)
class Site:
    """Where a run takes place: a database, and the name that everything in it which is the run's begins with.

    `folder` is for the run's processes, `began` what the shared clock showed when it began.
    """

    dsn: str
    name: str
    folder: Path
    log: Path
    began: float
    options: Options


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that a worker holds; `until` and `taken_at` are the server's clock, where there is a lease.

    `deadline` is `until` by the monotonic clock of the worker; `origin` the engine's own.
    """

    id: int
    attempt: int
    taken_at: float | None = None
    until: float | None = None
    deadline: float | None = None
    origin: Any = None


class Stage(Protocol):
    """The run's side: makes what the engine needs, and removes it."""

    @property
    def tables(self) -> Sequence[str]:
        """What the names of its tables begin with."""

    @property
    def places(self) -> Sequence[str]:
        """What a person finds the messages under, when they are kept."""

    def prepare(self) -> None:
        """Make it."""

    def begin(self) -> None:
        """Make ready for workers, after what is written before them was written."""

    def left(self) -> int:
        """Count the messages that it holds."""

    def new_dead(self) -> list[int]:
        """Give the messages that the engine gave up since this was asked last."""

    def drop(self) -> None:
        """Remove it."""

    def close(self) -> None:
        """Disconnect."""


class Sender(Protocol):
    """A producer's side."""

    def transaction(self) -> AbstractContextManager[object]:
        """Make one transaction of all that is sent in the block."""

    def send(self, items: Sequence[Item]) -> None:
        """Send messages of one type."""

    def close(self) -> None:
        """Disconnect."""


class Receiver(Protocol):
    """A worker's side. It counts the questions it asked the server for messages, and those in vain."""

    polls: int
    idle_polls: int

    def take(self) -> Sequence[Taken]:
        """Take messages, in the order in which they are to be handled; [] if there are none."""

    def holds(self, taken: Taken) -> bool:
        """Tell whether it is still this worker's to handle."""

    def done(self, taken: Taken) -> None:
        """Settle a message that was handled; may do so in the background."""

    def fail(self, taken: Taken, *, category: str) -> str:
        """Give back a message that failed; give what becomes of it: retrying, dead or stale."""

    def give_back(self, rest: Sequence[Taken]) -> None:
        """Give back what was not begun."""

    def wait(self) -> None:
        """Wait until it may be worth to ask again."""

    def close(self) -> None:
        """Disconnect."""
