# Generated from src/spanmq/client/_async/session.py by tools/generate_sync.py: change that file.

"""Calls inside a transaction of another library.

Sent messages become visible when that transaction commits, and never if it does not. Nothing here begins or
commits one, except on a session in autocommit, where several calls that belong together are a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Final

from spanmq.client.call import PROBE, READ_ONLY, Result, SqlCall, flavour_of, missing, refuse_read_only
from spanmq.client.current_handler import refuse_if_cancelled
from spanmq.client.drivers import Driver, driver_of, raise_typed, rows_of
from spanmq.errors import NotPossibleError
from spanmq.model import Flavour

# Unique: to roll back to a savepoint that could not be set must not reach an outer one of its name.
_SAVEPOINTS: Final = count(1)


class SessionLink:
    """Calls over an asynchronous session of other software."""

    def __init__(self, session: object, driver: Driver) -> None:
        self.connection = session
        self._driver = driver
        self._is_spanmq = False
        self._has_begun = False

    def run(self, call: SqlCall[Result]) -> Result:
        """Run one call."""
        refuse_if_cancelled()
        if call.native and not self._is_spanmq and (flavour := self.flavour(call)) != "spanmq":
            raise missing(flavour, call)
        try:
            values = self._driver.fetch(call.statement(self._driver.style), call.parameters())
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error, call)
        return call.result(rows_of(call.shape, values))

    def run_all(self, calls: Iterator[SqlCall[list[Result]]]) -> list[Result]:
        """Run several calls; all are made before the first runs, so that a bad one changes nothing."""
        made = list(calls)
        if len(made) > 1 and self._is_autocommit():
            with self.transaction():
                return [result for call in made for result in self.run(call)]
        return [result for call in made for result in self.run(call)]

    def flavour(self, call: SqlCall[Any] | None = None) -> Flavour:
        """Return which schema the database contains, spanmq or PGMQ; errors name the `call` that needs it."""
        try:
            values = self._driver.fetch(PROBE, {})
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error, call)
        flavour = flavour_of(values)
        self._is_spanmq = flavour == "spanmq"
        return flavour

    def check_writable(self) -> None:
        """Raise ServerReadOnlyError unless the server takes writes."""
        try:
            values = self._driver.fetch(READ_ONLY, {})
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error)
        refuse_read_only(values)

    @contextmanager
    def transaction(self) -> Iterator[SessionLink]:
        """Set a savepoint; on a session in autocommit, begin and commit a transaction."""
        begins = self._is_autocommit()
        savepoint = f"savepoint spanmq_{next(_SAVEPOINTS)}"
        try:
            if begins:
                self._has_begun = True
                self._execute("begin")
            self._execute(savepoint)
            yield self
            # In a transaction that has failed this is an error; a commit would be a silent rollback.
            self._execute(f"release {savepoint}")
            if begins:
                self._execute("commit")
        except BaseException:
            with suppress(Exception):  # the first error is the one to raise
                self._driver.execute("rollback" if begins else f"rollback to {savepoint}")
            raise
        finally:
            if begins:
                self._has_begun = False

    def _is_autocommit(self) -> bool:
        try:
            # After a `begin` some drivers do not know that there is a transaction.
            return not self._has_begun and self._driver.is_autocommit()
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error)

    def _execute(self, statement: str) -> None:
        try:
            self._driver.execute(statement)
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error)

    def address(self) -> str:
        """Refuse: only psycopg's connections tell it."""
        raise NotPossibleError(
            "a client on a session of other software can't be used to install",
            hint="Use a client with a DSN.",
        )


def adapt(session: object) -> SessionLink:
    """Return the way to run calls on a session; raises InvalidArgumentError for one that is not known."""
    return SessionLink(session, driver_of(session))
