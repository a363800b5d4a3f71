"""When the breaker opens, tries and closes; no clock but the one that it is told."""

import pytest

from spanmq.errors import InvalidArgumentError
from spanmq.worker.breaker import Breaker, BreakerPolicy

POLICY = BreakerPolicy(rate=0.5, window=4, pause=10.0, pause_max=30.0)


def opened(at: float = 0.0) -> Breaker:
    breaker = Breaker(POLICY)
    for _ in range(3):
        assert breaker.record(True, at) is None
    assert breaker.record(True, at) == "opened"
    return breaker


def test_breaker_opens_when_the_share_of_failures_in_a_full_window_is_reached() -> None:
    breaker = Breaker(POLICY)
    assert [breaker.record(failed, 0.0) for failed in (True, False, False, False)] == [None] * 4
    # The first failure has left the window.
    assert [breaker.record(failed, 0.0) for failed in (True, False)] == [None] * 2
    assert breaker.record(True, 0.0) == "opened"
    assert breaker.state == "open"


def test_few_failures_do_not_open_it() -> None:
    breaker = Breaker(POLICY)
    assert {breaker.record(number % 4 == 0, 0.0) for number in range(100)} == {None}


def test_open_breaker_tries_when_the_pause_is_over() -> None:
    breaker = opened(at=100.0)
    assert breaker.look(109.9) is None
    assert breaker.remaining(104.0) == 6.0
    assert breaker.look(110.0) == "tried"
    assert breaker.look(110.0) is None


def test_what_was_begun_before_it_opened_changes_nothing() -> None:
    breaker = opened()
    assert breaker.record(False, 1.0) is None
    assert breaker.state == "open"


def test_success_of_the_trial_closes_it_with_an_empty_window() -> None:
    breaker = opened()
    breaker.look(10.0)
    assert breaker.record(False, 11.0) == "closed"
    assert [breaker.record(True, 11.0) for _ in range(3)] == [None] * 3


def test_each_failed_trial_doubles_the_pause_up_to_the_longest() -> None:
    breaker = opened()
    for at, pause in ((10.0, 20.0), (30.0, 30.0), (60.0, 30.0)):
        assert breaker.look(at) == "tried"
        assert breaker.record(True, at) == "opened"
        assert breaker.remaining(at) == pause
    breaker.look(90.0)
    breaker.record(False, 90.0)
    assert breaker.pause_seconds == 10.0


@pytest.mark.parametrize("bad", [{"rate": 0}, {"rate": 1.1}, {"window": 0}, {"pause": 0}, {"pause": 61}])
def test_policy_that_makes_no_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError, match="breaker"):
        BreakerPolicy(**bad)  # type: ignore[arg-type]
