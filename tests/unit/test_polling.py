"""The pauses between two looks for messages, and when a look first asks what becomes due."""

import pytest

from spanmq.client.polling import AHEAD_SECONDS, Due, Polling


def pauses(polling: Polling, count: int) -> list[float]:
    """Return the next pauses in milliseconds; no announcement ends them."""
    found = []
    for _ in range(count):
        found.append(round(1000 * polling.pause, 6))
        polling.paused()
    return found


@pytest.mark.parametrize(
    ("polling", "expected"),
    [
        (Polling(), [5, 10, 20, 40, 80, 160, 320, 500, 500]),
        (Polling(0.015), [5, 10, 15, 15]),
        (Polling.of_worker(), [12, 120, 1200, 3000, 3000]),
        (Polling.of_worker(0.3), [12, 120, 300, 300]),
        (Polling.of_worker(is_heard=False), [5, 10, 20, 40]),
    ],
)
def test_pauses_grow_up_to_the_longest_and_begin_again(polling: Polling, expected: list[float]) -> None:
    assert pauses(polling, len(expected)) == expected
    polling.restart()
    assert pauses(polling, 2) == expected[:2]


def test_before_a_long_pause_it_asks_what_becomes_due() -> None:
    polling = Polling()
    asked = []
    while not polling.is_asking:
        asked.append(polling.pause)
        polling.paused()
    assert max(asked) < AHEAD_SECONDS <= polling.pause
    polling.due = Due(0.05)
    assert 0 < polling.pause <= 0.05


def test_an_announced_message_that_was_not_found_is_asked_for_soon() -> None:
    polling = Polling(first=0.3)
    polling.paused(True)
    assert (polling.is_asking, polling.pause) == (False, AHEAD_SECONDS)
    polling.paused()
    assert polling.is_asking


def test_a_due_message_that_is_not_to_be_had_is_not_looked_for_at_once_again() -> None:
    polling = Polling(first=0.3)
    polling.due = Due(0)
    polling.paused()
    assert (polling.is_asking, polling.pause) == (False, 0.5)
    polling.paused()
    assert polling.is_asking
