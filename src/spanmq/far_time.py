"""Times that PostgreSQL has and Python has not: before the year 1, after 9999, and infinity."""

from datetime import UTC, datetime
from typing import Final

# A day within Python's range, so that they can be shown in any time zone.
EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)


def read_time(text: str) -> datetime:
    """Read a time as PostgreSQL writes it in JSON; for one that Python has not the nearest."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return EARLIEST if text.startswith("-") or text.endswith("BC") else LATEST
