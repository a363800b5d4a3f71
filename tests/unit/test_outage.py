"""The pauses before a lost server is connected to again, with a clock that stands still."""

import random
from collections import Counter
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import pytest

from spanmq.client.outage import PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN, STABLE_SECONDS, Outage


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Fleet:
    """Workers that lose their server at second 0 and connect again; a refused attempt takes no time."""

    seconds: float
    size: int = 1_000
    # Of the attempts that the server refused, and of those that it took.
    refused: Counter[int] = field(default_factory=Counter)
    connected_at: list[float] = field(default_factory=list)

    def connect(self) -> None:
        clock, numbers = Clock(0.0), random.Random(7)
        outages = [Outage(clock, numbers.uniform) for _ in range(self.size)]
        due = [(outage.failed(), number) for number, outage in enumerate(outages)]
        heapify(due)
        while due:
            clock.now, number = heappop(due)
            if clock.now >= self.seconds:
                self.connected_at.append(clock.now)
            else:
                self.refused[number] += 1
                heappush(due, (clock.now + outages[number].failed(), number))


@pytest.mark.parametrize(("seconds", "until"), [(1, 0.5), (8, 0.8), (10, 1.0), (30, 3.0), (600, 5.0)])
def test_workers_are_back_within_a_tenth_of_the_outage_and_not_at_one_moment(
    seconds: float, until: float
) -> None:
    fleet = Fleet(seconds)
    fleet.connect()
    delays = [at - seconds for at in fleet.connected_at]
    assert len(delays) == fleet.size
    assert max(delays) <= until
    # In no twentieth of this time more than three times what would come if all came evenly.
    by_slot = Counter(int(delay / until * 20) for delay in delays)
    assert max(by_slot.values()) <= 3 * fleet.size / 20


def test_number_of_refused_attempts_grows_much_slower_than_the_outage() -> None:
    counts = []
    for seconds in (10, 60, 600):
        fleet = Fleet(seconds, size=10)
        fleet.connect()
        counts.append(max(fleet.refused.values()))
    assert counts[0] <= 30
    assert counts[1] <= 60
    assert counts[2] <= 240


def test_connection_that_breaks_is_made_again_at_once() -> None:
    clock = Clock()
    outage = Outage(clock)
    assert outage.failed() == 0.0
    outage.end()
    clock.now += STABLE_SECONDS
    assert outage.failed() == 0.0
    assert PAUSE_SECONDS_MIN / 2 <= outage.failed() <= PAUSE_SECONDS_MIN


def test_connection_that_soon_breaks_again_does_not_end_the_outage() -> None:
    clock = Clock()
    outage = Outage(clock, max)
    outage.failed()
    clock.now += 100
    assert outage.failed() == PAUSE_SECONDS_MAX
    outage.end()
    clock.now += STABLE_SECONDS * 0.9
    # Each of several connections that are made says so.
    outage.end()
    assert outage.failed() == PAUSE_SECONDS_MAX
    outage.end()
    clock.now += STABLE_SECONDS * 0.9
    outage.end()
    clock.now += STABLE_SECONDS * 0.9
    assert outage.failed() == 0.0


def test_first_connections_are_no_end_of_an_outage() -> None:
    outage = Outage(Clock())
    outage.end()
    assert outage.failed() == 0.0
    assert outage.failed() > 0
