"""DSNs: what a connection of our own passes to the server at its start, and the error for one that cannot be read."""

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
# Of several hosts, the next one is tried after this time.
CONNECT_SECONDS_OF_SEVERAL: Final = 2
# How much longer than its limit for a statement the server may be silent.
ANSWER_MARGIN_SECONDS: Final = 5.0
# What the SQL relies on, and a database or a role may set otherwise. It comes last, so that it counts.
RELIED_ON: Final = "-c default_transaction_isolation=read\\ committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds that a statement waits for a `lock`, that a `statement` runs, and for `idle_in_transaction`.

    The server keeps these; None: those of the server, database or role. `answer` is the client's own limit: a
    connection whose server is silent for this time, while a statement runs, is closed; None: the limit of the statement
    and 5 more, or none without that. It is closed sooner if the server, asked over a new connection, does not answer
    either, or does not work on the statement. 0: without limit; with an `answer` of 0 the server is not asked. Raises
    InvalidArgumentError for more than 2,000,000 seconds.
    """

    lock: float | None = 5.0
    statement: float | None = 30.0
    idle_in_transaction: float | None = 60.0
    answer: float | None = None

    def __post_init__(self) -> None:
        """Refuse what PostgreSQL would refuse at each connection."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if not isinstance(value, int | float) or not 0 <= value <= 2_000_000:
                raise InvalidArgumentError(
                    f"the time limit {field.name} must be from 0 to 2,000,000 seconds, got {value!r}"
                )


# The default of all clients.
DEFAULT: Final = Timeouts()
# None but those of the server.
UNLIMITED: Final = Timeouts(lock=None, statement=None, idle_in_transaction=None)


def with_timeouts(
    dsn: str, timeouts: Timeouts | None, *, application_name: str | None = None, pooler: bool = False
) -> str:
    """Return a DSN whose connections have these limits; those in the DSN itself take precedence.

    They are READ COMMITTED by default, whatever the database or the role sets. With a `pooler` nothing is passed at the
    start of a connection, as some poolers require. A DSN of several hosts finds the one that is writable, unless it
    says otherwise.
    """
    parts = parts_of(dsn)
    merged: dict[str, Any] = {**KEEPALIVE, **parts}
    if application_name is not None:
        merged.setdefault("application_name", application_name)
    if "," in _hosts_of(parts):
        merged["connect_timeout"] = parts.get("connect_timeout", CONNECT_SECONDS_OF_SEVERAL)
        if "PGTARGETSESSIONATTRS" not in os.environ:
            merged.setdefault("target_session_attrs", "read-write")
    if not pooler:
        limits = limits_of(timeouts or UNLIMITED)
        ours = [f"-c {name}={round(seconds * 1000)}" for name, seconds in limits.items()]
        merged["options"] = " ".join(filter(None, [*ours, _options_of(parts), RELIED_ON]))
    return make_conninfo(**merged)


def is_for_writing(dsn: str) -> bool:
    """Return whether a DSN is for a writable server, as far as it says: the next connection may find one."""
    session_kind = parts_of(dsn).get("target_session_attrs") or os.environ.get("PGTARGETSESSIONATTRS")
    return session_kind not in ("any", "read-only", "standby", "prefer-standby")


def limits_of(timeouts: Timeouts) -> dict[str, float]:
    """Return the limits that the server keeps, in seconds, by the names of its settings."""
    limits = {
        "lock_timeout": timeouts.lock,
        "statement_timeout": timeouts.statement,
        "idle_in_transaction_session_timeout": timeouts.idle_in_transaction,
    }
    return {name: seconds for name, seconds in limits.items() if seconds is not None}


def answer_seconds(dsn: str, timeouts: Timeouts | None) -> float | None:
    """Return how long the server of a DSN may be silent while a statement runs.

    0: as long as it works on the statement; None: without limit.
    """
    if timeouts is None:
        return 0.0
    if timeouts.answer is not None:
        return timeouts.answer or None
    statement = timeouts.statement
    # The last one counts, as for the server.
    for number, unit in _STATEMENT_TIMEOUT.findall(_options_of(parts_of(dsn))):
        statement = float(number) * _SECONDS_OF.get(unit, 0.0)
    return statement + ANSWER_MARGIN_SECONDS if statement else 0.0


def parts_of(dsn: str) -> dict[str, Any]:
    """Return the parts of a DSN; raises InvalidArgumentError for one that cannot be read."""
    try:
        return conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise unreadable(error) from None


def _options_of(parts: dict[str, Any]) -> str:
    # Without `options` in a DSN libpq takes them from the environment.
    return str(parts.get("options") or os.environ.get("PGOPTIONS", "")).strip()


def _hosts_of(parts: dict[str, Any]) -> str:
    return str(parts.get("host") or parts.get("hostaddr") or os.environ.get("PGHOST", ""))


_STATEMENT_TIMEOUT: Final = re.compile(r"(?:-c\s*|--)statement[_-]timeout\s*=\s*'?([0-9.]+)\s*([a-z]*)")
_SECONDS_OF: Final = {"": 0.001, "us": 1e-6, "ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

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
