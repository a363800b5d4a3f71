"""Sessions of other software: opened in a transaction that commits at the end of the block, unless that raises."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import django
import psycopg
from django.conf import settings
from django.db.utils import ConnectionHandler
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

Opener = Callable[[str], AbstractContextManager[Any]]


@contextmanager
def engine_of(dsn: str, **options: Any) -> Iterator[Engine]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), **options)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_connection(dsn: str) -> Iterator[Any]:
    with engine_of(dsn) as engine, engine.begin() as connection:
        yield connection


@contextmanager
def sqlalchemy_session(dsn: str) -> Iterator[Any]:
    with engine_of(dsn) as engine, Session(engine) as session, session.begin():
        yield session


@contextmanager
def sqlalchemy_scoped_session(dsn: str) -> Iterator[Any]:
    with engine_of(dsn) as engine:
        registry = scoped_session(sessionmaker(engine))
        try:
            yield registry
            registry.commit()
        finally:
            registry.remove()


class BusinessSession(Session):
    """A program's own."""


@contextmanager
def subclassed_session(dsn: str) -> Iterator[Any]:
    with engine_of(dsn) as engine, BusinessSession(engine) as session, session.begin():
        yield session


def new_django_connection(dsn: str) -> Any:
    """Return a connection that connects when it is used."""
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    parts = conninfo_to_dict(dsn)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    database = {ours: parts.get(theirs, "") for ours, theirs in names.items()}
    return ConnectionHandler({"default": {"ENGINE": "django.db.backends.postgresql", **database}})["default"]


@contextmanager
def django_connection(dsn: str) -> Iterator[Any]:
    connection = new_django_connection(dsn)
    try:
        connection.set_autocommit(False)
        yield connection
        connection.commit()
    finally:
        connection.close()


SESSIONS: list[Opener] = [
    sqlalchemy_connection,
    sqlalchemy_session,
    sqlalchemy_scoped_session,
    subclassed_session,
    django_connection,
]


class Dbapi:
    """A connection of a driver that has nothing of psycopg's own, with rows by name."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.autocommit = connection.autocommit

    def cursor(self) -> Any:
        return self._connection.cursor(row_factory=dict_row)


@contextmanager
def dbapi_in_autocommit(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield Dbapi(connection)


@contextmanager
def django_in_autocommit(dsn: str) -> Iterator[Any]:
    with django_connection(dsn) as connection:
        connection.set_autocommit(True)
        yield connection
        connection.set_autocommit(False)


@contextmanager
def sqlalchemy_in_autocommit(dsn: str) -> Iterator[Any]:
    with engine_of(dsn, isolation_level="AUTOCOMMIT") as engine, engine.connect() as connection:
        yield connection


@contextmanager
def sqlalchemy_session_in_autocommit(dsn: str) -> Iterator[Any]:
    with engine_of(dsn, isolation_level="AUTOCOMMIT") as engine, Session(engine) as session:
        yield session


IN_AUTOCOMMIT: list[Opener] = [
    dbapi_in_autocommit,
    django_in_autocommit,
    sqlalchemy_in_autocommit,
    sqlalchemy_session_in_autocommit,
]
