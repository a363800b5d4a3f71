"""The times of a cron expression in a time zone, as instants. Reads neither a clock nor the database.

An expression has five fields (minute, hour, day of the month, month, day of the week), with the meaning of
Debian's cron, or six, with the second first. When a clock is changed, Debian's rules apply, too: a fixed time
that does not exist is moved to the end of the gap, one that exists twice occurs once; with `*` in the minute
or the hour the expression follows the clock.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from spanmq.errors import ExtraNotInstalledError, InvalidArgumentError

# As many times are planned at once, for as long, whichever is less; the server takes no more in one call.
TIMES_MAX: Final = 1_000
HORIZON: Final = timedelta(days=366)


def check(cron: str, time_zone: str) -> None:
    """Raise InvalidArgumentError unless the text and the zone mean something."""
    next(_times(cron, time_zone, datetime(2000, 1, 1, tzinfo=UTC)), None)


def plan(cron: str, time_zone: str, after: datetime, now: datetime) -> tuple[list[datetime], datetime]:
    """Return the times after an instant, TIMES_MAX or up to HORIZON from now, and until when these are all."""
    end = now + HORIZON
    times: list[datetime] = []
    for time in islice(_times(cron, time_zone, after), TIMES_MAX):
        if time > end:
            return times, end
        times.append(time)
    return (times, times[-1]) if len(times) == TIMES_MAX else (times, end)


def _times(cron: str, time_zone: str, after: datetime) -> Iterator[datetime]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise ExtraNotInstalledError("cron expressions need the package cronsim", extra="schedule") from error
    zone = _zone(time_zone)
    try:
        times = CronSim(cron, after.astimezone(zone))
    except CronSimError as error:
        raise InvalidArgumentError(
            f"{cron!r} is not a cron expression: {error}",
            hint="Such as '*/5 * * * *': minute, hour, day of the month, month, day of the week.",
        ) from error
    return (time.astimezone(UTC) for time in times)


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidArgumentError(
            f"no time zone has the name {name!r}", hint="One is Europe/Berlin."
        ) from error
