"""When the breaker tries, opens and closes; no clock but the one that it is told."""

import pytest

from spanmq.errors import InvalidArgumentError
from spanmq.worker.breaker import Breaker, BreakerPolicy

POLICY = BreakerPolicy(failures=4, tries=2, pause=10.0)


def fail(breaker: Breaker, count: int = 1, at: float = 0.0, *, is_counted: bool = True) -> list[str | None]:
    return [breaker.failed(at, is_counted=is_counted, error="down") for _ in range(count)]


def opened(at: float = 0.0) -> Breaker:
    breaker = Breaker(POLICY)
    assert fail(breaker, 4, at) == [None, None, None, "tried"]
    breaker.trying(2, at)
    fail(breaker, 2, at)
    assert [breaker.tried(1, at), breaker.tried(1, at)] == [None, "opened"]
    return breaker


def test_failures_in_a_row_lead_to_a_trial_and_its_last_failure_opens_it() -> None:
    breaker = opened(at=100.0)
    assert (breaker.state, breaker.failures, breaker.error) == ("open", 6, "down")
    assert breaker.remaining(104.0) == 6.0


def test_one_that_is_handled_among_many_that_fail_ends_the_row() -> None:
    breaker = Breaker(POLICY)
    for _ in range(100):
        assert fail(breaker, 3) == [None] * 3
        assert breaker.succeeded() is None
    assert breaker.state == "closed"


def test_retries_that_fail_do_not_count() -> None:
    breaker = Breaker(POLICY)
    assert set(fail(breaker, 1000, is_counted=False)) == {None}
    assert fail(breaker, 3) == [None] * 3


def test_any_success_closes_it_with_an_empty_row() -> None:
    breaker = opened()
    assert breaker.succeeded() == "closed"
    assert fail(breaker, 3) == [None] * 3


def test_trial_begins_when_the_pause_is_over() -> None:
    breaker = opened(at=100.0)
    assert breaker.look(109.9) is None
    assert breaker.look(110.0) == "tried"
    assert (breaker.state, breaker.tries) == ("trial", 2)
    # It waits for messages.
    assert breaker.look(500.0) is None
    breaker.trying(2, 500.0)
    assert breaker.look(509.9) is None
    assert breaker.tries == 0
    fail(breaker, 1, 511.0)
    assert breaker.tried(1, 511.0) is None
    assert breaker.succeeded() == "closed"


def test_retry_in_a_trial_shows_that_it_is_not_over_and_does_not_lengthen_the_pause() -> None:
    breaker = opened()
    breaker.look(10.0)
    breaker.trying(1, 10.0)
    fail(breaker, 1, 10.0, is_counted=False)
    assert breaker.tried(1, 10.0) == "opened"
    assert breaker.remaining(10.0) == 10.0


def test_trial_of_which_nothing_was_handled_continues() -> None:
    breaker = opened()
    breaker.look(10.0)
    breaker.trying(2, 10.0)
    assert breaker.tried(2, 10.0) is None
    assert (breaker.state, breaker.tries) == ("trial", 2)


def test_trial_with_slow_handlers_is_followed_by_another() -> None:
    breaker = opened()
    breaker.look(10.0)
    breaker.trying(2, 10.0)
    assert breaker.look(19.9) is None
    assert breaker.look(20.0) == "tried"
    assert breaker.tries == 2


def test_each_opening_has_a_number_until_it_is_closed() -> None:
    breaker = opened()
    number = breaker.number
    assert number > 0
    breaker.look(10.0)
    breaker.trying(1, 10.0)
    fail(breaker)
    breaker.tried(1, 10.0)
    assert breaker.number == number
    assert breaker.close() == "closed"
    assert breaker.close() is None
    assert breaker.number == 0
    assert opened().number != number


def test_without_a_policy_it_stays_closed() -> None:
    breaker = Breaker(None)
    assert set(fail(breaker, 1000)) == {None}
    assert breaker.state == "closed"


@pytest.mark.parametrize(
    "bad", [{"failures": 0}, {"tries": 0}, {"tries": 1.5}, {"pause": 0}, {"pause": 3601}]
)
def test_policy_that_makes_no_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError, match="breaker"):
        BreakerPolicy(**bad)  # type: ignore[arg-type]
