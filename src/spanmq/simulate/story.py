"""What the log tells of each message, and of each line that is kept in order."""

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
    # How many of the first are settled.
    settled: int = 0
    last_at: float = 0.0

    def advance(self) -> None:
        """Pass over what is settled."""
        while self.settled < len(self.stories) and self.stories[self.settled].is_settled:
            self.settled += 1

    def was_settled_after(self, story: Story) -> bool:
        """Tell whether a later message was settled."""
        return any(later.is_settled for later in self.stories[story.number :])

    def unsettled_before(self, story: Story) -> Iterator[Story]:
        """Give the unsettled messages before this one, up to the first that nobody may have given up."""
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
    # As its last delivery said: a worker's death counts for everything that it held.
    attempt: int = 0
    deaths_before: int = 0
    is_dead: bool = False
    # Of the last delivery: until when the lease was to last, and whether its worker gave it back or died.
    until: float | None = None
    has_failed: bool = False
    is_orphan: bool = False

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing needs to be done about it any more."""
        return self.dones > 0 or self.is_dead

    @property
    def may_be_given_up(self) -> bool:
        """Tell whether it may be a dead letter, of which the log does not tell yet."""
        return self.has_failed or self.is_orphan
