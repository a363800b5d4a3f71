"""The history of each message, and of each ordered line of messages, according to the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Line:
    """The messages of one producer and key, which are to be handled in the order of their numbers, from 1."""

    type: str
    key: str
    producer: int
    stories: list[Story] = field(default_factory=list)
    # The number of settled messages at the start of the line.
    settled: int = 0
    last_at: float = 0.0

    def advance(self) -> None:
        """Skip settled messages."""
        while self.settled < len(self.stories) and self.stories[self.settled].is_settled:
            self.settled += 1

    def was_settled_after(self, story: Story) -> bool:
        """Return whether a later message was settled."""
        return any(later.is_settled for later in self.stories[story.number :])

    def unsettled_before(self, story: Story) -> Iterator[Story]:
        """Yield the unsettled messages before this one, up to the first that cannot be dead."""
        for place in range(self.settled, story.number - 1):
            earlier = self.stories[place]
            if not earlier.is_settled:
                yield earlier
                if not earlier.may_be_given_up:
                    return


@dataclass(slots=True)
class Story:
    """One message. Times are seconds since the run began; None: it did not happen."""

    id: int
    line: Line
    number: int
    is_poison: bool
    sent_at: float | None = None
    started_at: float | None = None
    done_at: float | None = None
    starts: int = 0
    dones: int = 0
    failures: int = 0
    deaths: int = 0
    # According to its last delivery: a worker's death counts for all messages that it held.
    attempt: int = 0
    deaths_before: int = 0
    is_dead: bool = False
    # About the last delivery: the end of the lease, and whether its worker failed it or died.
    until: float | None = None
    has_failed: bool = False
    is_orphan: bool = False

    @property
    def is_settled(self) -> bool:
        """Return whether the message is handled or dead."""
        return self.dones > 0 or self.is_dead

    @property
    def may_be_given_up(self) -> bool:
        """Return whether it may be a dead letter that the log does not contain yet."""
        return self.has_failed or self.is_orphan
