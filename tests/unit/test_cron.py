"""Times of cron texts, on usual days and on those on which clocks are changed."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from spanmq.client import cron
from spanmq.errors import InvalidArgumentError

# Berlin: 2026-03-29 02:00 becomes 03:00 (+01 to +02), 2026-10-25 03:00 becomes 02:00.
SPRING = datetime(2026, 3, 28, 0, 0, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 0, 0, tzinfo=UTC)


def times(text: str, zone: str, after: datetime, count: int) -> list[str]:
    found, _ = cron.plan(text, zone, after, after)
    return [f"{time:%m-%d %H:%M:%S}" for time in found[:count]]


def test_times_come_after_the_instant_and_in_order() -> None:
    after = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    assert times("*/20 * * * *", "UTC", after, 3) == ["01-01 12:20:00", "01-01 12:40:00", "01-01 13:00:00"]
    assert times("15 * * * * *", "UTC", after, 2) == ["01-01 12:00:15", "01-01 12:01:15"]
    assert times("0 9 * * MON", "UTC", after, 2) == ["01-05 09:00:00", "01-12 09:00:00"]


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        # A fixed time keeps its place on the clock.
        ("0 9 * * *", SPRING, ["03-28 08:00:00", "03-29 07:00:00", "03-30 07:00:00"]),
        ("0 9 * * *", AUTUMN, ["10-24 07:00:00", "10-25 08:00:00", "10-26 08:00:00"]),
        # One that does not exist comes right after the gap, one that exists twice comes once.
        ("30 2 * * *", SPRING, ["03-28 01:30:00", "03-29 01:00:00", "03-30 00:30:00"]),
        ("30 2 * * *", AUTUMN, ["10-24 00:30:00", "10-25 00:30:00", "10-26 01:30:00"]),
    ],
)
def test_days_on_which_clocks_are_changed(text: str, after: datetime, expected: list[str]) -> None:
    assert times(text, "Europe/Berlin", after, 3) == expected


@pytest.mark.parametrize("day", [SPRING, AUTUMN])
def test_every_hour_is_every_hour_on_any_day(day: datetime) -> None:
    found, _ = cron.plan("0 * * * *", "Europe/Berlin", day, day)
    assert all(later - time == timedelta(hours=1) for time, later in pairwise(found[:60]))


def test_plan_says_how_far_it_goes() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    often, until = cron.plan("* * * * *", "UTC", now, now)
    assert (len(often), until) == (cron.TIMES_MAX, often[-1])
    seldom, until = cron.plan("0 0 1 * *", "UTC", now, now)
    assert (len(seldom), until) == (12, now + cron.HORIZON)
    never, until = cron.plan("0 0 29 2 *", "UTC", now, now)
    assert (never, until) == ([], now + cron.HORIZON)


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "60 * * * *", "* * * * * * *", "every day", "0 0 30 2 *", "*/0 * * * *", "a b c d e"],
)
def test_what_is_no_cron_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        cron.check(text, "UTC")


@pytest.mark.parametrize("zone", ["", "Nowhere", "../../etc/passwd", "/etc/passwd", "Europe", "a\0b"])
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidArgumentError):
        cron.check("* * * * *", zone)
