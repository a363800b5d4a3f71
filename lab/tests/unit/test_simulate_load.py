"""The load: the same for the same seed, skewed as asked for."""

import random
from collections import Counter
from typing import Any

import pytest

from spanmq_lab.simulate.load import Load
from spanmq_lab.simulate.options import Options
from spanmq_lab.simulate.producer_process import Pace
from spanmq_lab.simulate.work import Work


def load(**options: Any) -> Load:
    return Load(Options(**options))


def fate(**options: Any) -> list[Any]:
    made = load(fill_db=50, keys=9, failure_rate=0.5, poison=0.2, **options)
    return [
        (item, made.work_seconds(item.id), made.is_poison(item.id), made.fails(item.id, 2))
        for item in made.items()
    ]


def test_same_seed_gives_the_same_load() -> None:
    assert fate(seed=5) == fate(seed=5)
    assert fate(seed=5) == fate(seed=5, engine="polling")
    assert fate(seed=5) != fate(seed=6)


def test_keys_are_as_even_or_as_skewed_as_asked_for() -> None:
    even = Counter(item.key for item in load(fill_db=6000, keys=3).items())
    assert max(even.values()) < 1.2 * min(even.values())
    skewed = Counter(item.key for item in load(fill_db=6000, keys=3, skew=1.0).items())
    # 1 : 1/2 : 1/3
    assert 1.8 < skewed["1"] / skewed["2"] < 2.2
    assert 2.6 < skewed["1"] / skewed["3"] < 3.4


def test_shares_are_as_asked_for() -> None:
    made = load(failure_rate=0.25, poison=0.1)
    assert 0.07 < sum(made.is_poison(number) for number in range(2000)) / 2000 < 0.13
    healthy = [number for number in range(2000) if not made.is_poison(number)]
    assert 0.2 < sum(made.fails(number, 1) for number in healthy) / len(healthy) < 0.3
    assert all(made.fails(number, 9) for number in range(2000) if made.is_poison(number))


@pytest.mark.parametrize(
    ("text", "mean"),
    [("fixed:5", 5), ("uniform:1:10", 5.5), ("exponential:4", 4), ("lognormal:5:0.1", 5), ("fixed:0", 0)],
)
def test_work_takes_as_long_as_asked_for(text: str, mean: float) -> None:
    chance = random.Random(1)
    times = [Work.parse(text).seconds(chance) for _ in range(4000)]
    assert min(times) >= 0
    assert 0.93 * mean <= sum(times) / 4000 * 1000 <= 1.07 * mean


def test_rate_is_a_maximum_and_lost_time_is_not_made_up_for() -> None:
    pace = Pace(10.0, began=100.0)
    # Each turn as the time at which it is asked for: on time, late by a second, and on time again.
    turns = [pace.turn(quantity, now) for quantity, now in ((1, 100.0), (1, 100.15), (2, 101.5), (1, 101.5))]
    assert turns == pytest.approx([100.1, 100.2, 101.5, 101.6])


def test_workers_are_shared_among_the_types() -> None:
    twelve = Options(workers=12)
    assert [twelve.workers_of_type(number) for number in range(3)] == [4, 4, 4]
    five = Options(workers=5)
    assert [five.workers_of_type(number) for number in range(3)] == [2, 2, 1]
    two = Options(workers=2)
    assert [two.types_of_worker(number) for number in range(2)] == [[0, 2], [1]]


def test_defaults_are_the_classic_ones() -> None:
    options = Options()
    assert (options.fill_db, options.workers, options.types, options.keys) == (1000, 5, 3, 2)
    assert (options.rate, options.delmsg, options.engine) == (None, False, "spanmq")
