"""The same as `sessions`, of asynchronous software."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

AsyncOpener = Callable[[str], AbstractAsyncContextManager[Any]]


async def connect_asyncpg(dsn: str) -> Any:
    parts = conninfo_to_dict(dsn)
    names = ("host", "port", "user", "password")
    return await asyncpg.connect(database=parts["dbname"], **{name: parts.get(name) for name in names})


@asynccontextmanager
async def asyncpg_in_autocommit(dsn: str) -> AsyncIterator[Any]:
    connection = await connect_asyncpg(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_connection(dsn: str) -> AsyncIterator[Any]:
    async with asyncpg_in_autocommit(dsn) as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def asyncpg_pooled_connection(dsn: str) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(min_size=1, max_size=1, connect=lambda *_, **__: connect_asyncpg(dsn)) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        # A codec of the user's own must not matter.
        await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=repr, decoder=repr)
        yield connection


@asynccontextmanager
async def engine_of(driver: str, dsn: str, **options: Any) -> AsyncIterator[AsyncEngine]:
    connect = connect_asyncpg if driver == "asyncpg" else psycopg.AsyncConnection.connect
    engine = create_async_engine(
        f"postgresql+{driver}://", async_creator=lambda *_, **__: connect(dsn), **options
    )
    try:
        yield engine
    finally:
        await engine.dispose()


@asynccontextmanager
async def sqlalchemy_asyncpg_session(dsn: str) -> AsyncIterator[Any]:
    async with engine_of("asyncpg", dsn) as engine, AsyncSession(engine) as session, session.begin():
        yield session


@asynccontextmanager
async def sqlalchemy_psycopg_connection(dsn: str) -> AsyncIterator[Any]:
    async with engine_of("psycopg", dsn) as engine, engine.begin() as connection:
        yield connection


@asynccontextmanager
async def sqlalchemy_asyncpg_in_autocommit(dsn: str) -> AsyncIterator[Any]:
    async with (
        engine_of("asyncpg", dsn, isolation_level="AUTOCOMMIT") as engine,
        AsyncSession(engine) as session,
    ):
        yield session


@asynccontextmanager
async def sqlalchemy_psycopg_in_autocommit(dsn: str) -> AsyncIterator[Any]:
    async with (
        engine_of("psycopg", dsn, isolation_level="AUTOCOMMIT") as engine,
        engine.connect() as connection,
    ):
        yield connection


SESSIONS: list[AsyncOpener] = [
    asyncpg_connection,
    asyncpg_pooled_connection,
    sqlalchemy_asyncpg_session,
    sqlalchemy_psycopg_connection,
]
IN_AUTOCOMMIT: list[AsyncOpener] = [
    asyncpg_in_autocommit,
    sqlalchemy_asyncpg_in_autocommit,
    sqlalchemy_psycopg_in_autocommit,
]
