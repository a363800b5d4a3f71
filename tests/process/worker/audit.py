"""What became of each message, told from the logs of workers and handlers, not from the queue's tables."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Story:
    """One message: its deliveries as (attempt, end of the lease at that time), its outcomes by attempt."""

    deliveries: list[tuple[int, float]] = field(default_factory=list)
    outcomes: list[tuple[int, str]] = field(default_factory=list)
    is_handled: bool = False  # to the end, at least once


@dataclass
class Log:
    """Everything that workers wrote."""

    stories: dict[int, Story]
    seams: list[str]
    extensions: int = 0

    @property
    def acked(self) -> set[int]:
        """Return the messages of which a worker knows that they are done."""
        return {
            number
            for number, story in self.stories.items()
            if any(outcome == "acked" for _, outcome in story.outcomes)
        }


def read(path: Path) -> Log:
    """Read a log; a line that a kill cut off is no line."""
    stories: dict[int, Story] = defaultdict(Story)
    seams = []
    extensions = 0
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    for line in lines:
        kind, *words = line.split()
        if kind == "seam":
            seams.append(words[0])
        elif kind == "extended":
            extensions += 1
        elif kind == "handled":
            stories[int(words[0])].is_handled = True
        elif kind == "begun":
            stories[int(words[0])].deliveries.append((int(words[1]), float(words[2])))
        elif kind == "settled":
            stories[int(words[0])].outcomes.append((int(words[1]), words[2]))
    return Log(stories, seams, extensions)


def faults(log: Log, sent: list[int], *, lease: float) -> list[str]:
    """Return what is wrong: a message lost, acked twice, or delivered again while its lease still held.

    For workers that gave nothing back: then the end of a lease is the only reason to deliver again.
    """
    handled = {number for number, story in log.stories.items() if story.is_handled}
    found = [f"message {number} was never handled" for number in sent if number not in handled]
    found += [f"message {number} was never sent" for number in log.stories if number not in set(sent)]
    for number, story in log.stories.items():
        if sum(outcome == "acked" for _, outcome in story.outcomes) > 1:
            found.append(f"message {number} was acked twice: {story.outcomes}")
        for (attempt, leased_until), (again, leased_again) in zip(
            story.deliveries, story.deliveries[1:], strict=False
        ):
            if again <= attempt:
                found.append(f"message {number} came again as attempt {again} after {attempt}")
            # A millisecond for the rounding of a float.
            if leased_again - lease < leased_until - 0.001:
                found.append(f"message {number} came again {leased_until - leased_again + lease:.3f} s early")
    return found
