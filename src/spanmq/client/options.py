"""The arguments of a client: a DSN, a pool or a connection, and its options."""

from psycopg_pool import AsyncConnectionPool, ConnectionPool

from spanmq.client.dsn import Timeouts
from spanmq.errors import InvalidArgumentError


def check_source(
    dsn: object, pool: object, connection: object, kind: type[ConnectionPool] | type[AsyncConnectionPool]
) -> None:
    """Check that there is one of the three, and that it is what its name says; `kind` is the client's pool.

    Raises InvalidArgumentError. A connection is looked at when the way to call over it is chosen.
    """
    if sum(source is not None for source in (dsn, pool, connection)) != 1:
        raise InvalidArgumentError(
            "a client needs either a dsn, a pool or a connection",
            hint='Client("postgresql://…"), Client(pool=…) or Client(connection=…).',
        )
    if dsn is not None:
        check_dsn(dsn)
    if pool is not None and not isinstance(pool, kind):
        if isinstance(pool, ConnectionPool):
            raise InvalidArgumentError(f"{kind_of(pool)} is not asynchronous: pass it to a Client")
        if isinstance(pool, AsyncConnectionPool):
            raise InvalidArgumentError(f"{kind_of(pool)} is asynchronous: pass it to an AsyncClient")
        raise InvalidArgumentError(f"{kind_of(pool)} is not a pool of psycopg_pool", hint=_place(pool))
    if isinstance(connection, str | ConnectionPool | AsyncConnectionPool):
        raise InvalidArgumentError(f"{kind_of(connection)} is not a connection", hint=_place(connection))


def check_options(
    *, pool_size: object, encoder: object, decoder: object, timeouts: object, **seconds: object
) -> None:
    """Check the other arguments of a client; raises InvalidArgumentError.

    An interval of 0 would never pause.
    """
    if isinstance(pool_size, bool) or not isinstance(pool_size, int) or pool_size < 1:
        raise InvalidArgumentError(f"pool_size must be at least 1, got {pool_size!r}")
    for name, value in seconds.items():
        _check_seconds(name, value, or_none=name == "maintain_interval")
    for name, function in (("encoder", encoder), ("decoder", decoder)):
        if function is not None and not callable(function):
            raise InvalidArgumentError(f"{name} must be a function, got {kind_of(function)}")
    if timeouts is not None and not isinstance(timeouts, Timeouts):
        raise InvalidArgumentError(f"timeouts must be Timeouts or None, got {kind_of(timeouts)}")


def check_password(password: object, dsn: object) -> None:
    """Check the function for the password; raises InvalidArgumentError."""
    if password is None:
        return
    if not callable(password):
        raise InvalidArgumentError(
            f"password must be a function that returns it, got {kind_of(password)}",
            hint="A password that stays the same is a part of the DSN.",
        )
    if dsn is None:
        raise InvalidArgumentError("password requires a dsn: a pool or a connection has its own")


def _check_seconds(name: str, value: object, *, or_none: bool) -> None:
    if or_none and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        none = ", or None" if or_none else ""
        raise InvalidArgumentError(f"{name} must be seconds, more than 0{none}, got {value!r}")


def check_dsn(dsn: object) -> str:
    """Return the DSN; raises InvalidArgumentError if it is not a string."""
    if not isinstance(dsn, str):
        raise InvalidArgumentError(f"a DSN must be a string, got {kind_of(dsn)}", hint=_place(dsn))
    return dsn


def kind_of(thing: object) -> str:
    """Return the name of an argument's class."""
    return f"a {type(thing).__module__}.{type(thing).__qualname__}"


def _place(thing: object) -> str:
    if isinstance(thing, str):
        return "A DSN is the first argument of a client."
    if isinstance(thing, ConnectionPool | AsyncConnectionPool):
        return "A client takes a pool by its name: Client(pool=…)."
    return "A client takes a connection, or a session, by its name: Client(connection=…)."
