"""The contestants: each with the settings that its own documentation advises for throughput.

A module's `loop_factory` makes the event loop that the library's own command runs in, if that is not asyncio's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

Body = dict[str, Any]


class Contestant(Protocol):
    """One library in a process of its own, made with the address of an empty database and a function.

    Its handler calls the function with each job, and does nothing else.
    """

    async def prepare(self) -> None:
        """Install the schema; create the queue."""

    async def send(self, bodies: Sequence[Body]) -> None:
        """Send a job for each body, committed at return."""

    def working(self) -> AbstractAsyncContextManager[object]:
        """Return a block in which a worker runs; at its end all handled jobs are settled."""


Maker = Callable[[str, Callable[[object], None]], Contestant]
