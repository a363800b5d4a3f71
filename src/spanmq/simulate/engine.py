"""The interface of an engine: the stage, which sets it up, its senders and its receivers."""

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
    """The place of a run: a database, and the prefix of the names of the run's objects.

    `folder` is for files of the run's processes, `began` is the time of the shared clock at the start.
    """

    dsn: str
    name: str
    folder: Path
    log: Path
    began: float
    options: Options


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that a worker holds; `until` and `taken_at` are times of the server's clock, if there is a
    lease.

    `deadline` is `until` by the worker's monotonic clock; `origin` is for the engine.
    """

    id: int
    attempt: int
    taken_at: float | None = None
    until: float | None = None
    deadline: float | None = None
    origin: Any = None


class Stage(Protocol):
    """Creates the database objects of an engine, and drops them."""

    @property
    def tables(self) -> Sequence[str]:
        """Return the prefixes of the engine's table names."""

    @property
    def places(self) -> Sequence[str]:
        """Return the queues or tables in which a user finds the messages, when they are kept."""

    def prepare(self) -> None:
        """Create the objects."""

    def begin(self) -> None:
        """Prepare for the workers, after the initial messages were written."""

    def left(self) -> int:
        """Return the number of messages in the queue."""

    def new_dead(self) -> list[int]:
        """Return the messages that became dead since the last call."""

    def drop(self) -> None:
        """Drop the objects."""

    def close(self) -> None:
        """Disconnect."""


class Sender(Protocol):
    """The interface for a producer."""

    def transaction(self) -> AbstractContextManager[object]:
        """Open one transaction for all that is sent in the block."""

    def send(self, items: Sequence[Item]) -> None:
        """Send messages of one type."""

    def close(self) -> None:
        """Disconnect."""


class Receiver(Protocol):
    """The interface for a worker. It counts its polls, and those without messages."""

    polls: int
    idle_polls: int

    def take(self) -> Sequence[Taken]:
        """Receive messages, in the order in which they are to be handled; [] without messages."""

    def holds(self, taken: Taken) -> bool:
        """Return whether the worker still holds the message."""

    def done(self, taken: Taken) -> None:
        """Settle a handled message; may do so in the background."""

    def fail(self, taken: Taken, *, category: str) -> str:
        """Fail a message; return its outcome: retrying, dead or stale."""

    def give_back(self, rest: Sequence[Taken]) -> None:
        """Release messages that were not begun."""

    def wait(self) -> None:
        """Wait until another poll is useful."""

    def close(self) -> None:
        """Disconnect."""
