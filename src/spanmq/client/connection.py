"""What both clients ask of a connection of psycopg: its address, whether it is alive, what its errors mean."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, BaseConnection
from psycopg.conninfo import make_conninfo

from spanmq import errors
from spanmq.client.call import Call

_LIMIT: Final = "select pg_catalog.set_config('statement_timeout', %s, true)"


def address_of(connection: BaseConnection[Any]) -> str:
    """Return the DSN of a connection, with the password, which psycopg's own DSN lacks."""
    return make_conninfo(connection.info.dsn, password=connection.info.password or None)


def is_alive(connection: BaseConnection[Any]) -> bool:
    """Return False if the server has hung up, without a round trip: a call would be of unknown outcome."""
    try:
        # The first reads the server's last words, the second the end that follows them.
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return True


def typed(
    error: psycopg.Error, connection: BaseConnection[Any], call: Call[Any] | None = None
) -> errors.SpanmqError:
    """Return the typed error for an error of psycopg."""
    function, queue = (call.function, call.queue) if call else (None, None)
    # An error that no server sent: psycopg may not have noticed yet that the connection is closed.
    if connection.closed or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None):
        return errors.lost(function=function, queue=queue)
    found = errors.from_driver(error, function=function, queue=queue)
    if isinstance(found, errors.ConnectionLostError):
        return errors.lost(function=function, queue=queue)
    if found is not None:
        return found
    if isinstance(error, psycopg.DataError):  # psycopg's own: it could not pass a value
        return errors.InvalidArgumentError(str(error), function=function, queue=queue)
    return errors.ServerError(str(error), function=function, queue=queue)


async def limit_statements(connection: AsyncConnection[Any], seconds: float) -> None:
    """Limit the time of each statement that follows in the transaction that is open."""
    try:
        await connection.execute(_LIMIT, [f"{seconds * 1000:g}"])
    except psycopg.Error as error:
        raise typed(error, connection) from error
