"""Time limits that a connection brings along, so that a forgotten transaction holds no lock indefinitely."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from spanmq.errors import InvalidArgumentError
from spanmq.unreadable_dsn import unreadable

# A peer that is gone without a word is noticed within a minute, not within libpq's two hours.
KEEPALIVE: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds that a statement waits for a lock, that it runs, that a transaction idles; 0: without limit."""

    lock: float = 5.0
    statement: float = 30.0
    idle_in_transaction: float = 60.0

    def __post_init__(self) -> None:
        """Refuse what PostgreSQL would refuse at each connection."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or not 0 <= value <= 2_000_000:
                raise InvalidArgumentError(
                    f"the time limit {field.name} must be from 0 to 2,000,000 seconds, got {value!r}"
                )


# Of a client that is not told otherwise.
DEFAULT: Final = Timeouts()


def with_timeouts(dsn: str, timeouts: Timeouts | None, *, application_name: str | None = None) -> str:
    """Give a DSN whose connections have these limits; what the DSN itself says goes before.

    With None nothing is passed at the start of a connection, as some poolers want it.
    """
    try:
        parts: dict[str, Any] = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise unreadable(error) from None
    merged: dict[str, Any] = {**KEEPALIVE, **parts}
    if application_name is not None:
        merged.setdefault("application_name", application_name)
    if timeouts is not None:
        limits = {
            "lock_timeout": timeouts.lock,
            "statement_timeout": timeouts.statement,
            "idle_in_transaction_session_timeout": timeouts.idle_in_transaction,
        }
        ours = [f"-c {name}={round(seconds * 1000)}" for name, seconds in limits.items()]
        # The last one counts. Without `options` in a DSN libpq takes them from the environment.
        theirs = parts.get("options") or os.environ.get("PGOPTIONS", "")
        merged["options"] = " ".join([*ours, str(theirs)]).strip()
    return make_conninfo(**merged)
