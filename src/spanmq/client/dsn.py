"""DSNs: the time limits that a connection passes to the server, and the error for one that cannot be read."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from spanmq.errors import InvalidArgumentError

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
    """Seconds that a statement waits for a `lock`, that a `statement` runs, and for `idle_in_transaction`.

    0: without limit. Raises InvalidArgumentError for more than 2,000,000 seconds.
    """

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


# The default of all clients.
DEFAULT: Final = Timeouts()


def with_timeouts(dsn: str, timeouts: Timeouts | None, *, application_name: str | None = None) -> str:
    """Return a DSN whose connections have these limits; those in the DSN itself take precedence.

    With None nothing is passed at the start of a connection, as some poolers require.
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


# From the first mark to the last: what is quoted may hold marks of its own. Other languages have others.
_QUOTED: Final = re.compile("[\"'`„“”«»].*[\"'`„“”«»]", re.DOTALL)
# It names a driver, which libpq takes for a part of a key=value pair.
_SQLALCHEMY: Final = re.compile(r"\bpostgres(?:ql)?\+\w+://")


def unreadable(error: Exception) -> InvalidArgumentError:
    """Return the error to raise `from None`: a traceback would show the other error's text."""
    said = _QUOTED.sub("…", str(error)).strip()
    hint = "Write postgresql://user@host/database, or host=… dbname=…."
    if scheme := _SQLALCHEMY.search(str(error)):
        hint = f"Write postgresql:// in place of {scheme[0]}, which is SQLAlchemy's."
    return InvalidArgumentError(f"the DSN can't be read: {said}", hint=hint)
