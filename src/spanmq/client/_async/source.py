"""The link and the background tasks that a client makes from its DSN, pool or connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from spanmq.client import functions
from spanmq.client._async.connection import AsyncConnectionLink, AsyncLink, AsyncPoolLink
from spanmq.client._async.listener import AsyncListener
from spanmq.client._async.maintenance import AsyncMaintenance
from spanmq.client._async.pool import AsyncConnector
from spanmq.client._async.session import AsyncSessionLink, adapt_async
from spanmq.client.concurrency import in_thread
from spanmq.client.dsn import Timeouts, answer_seconds, with_timeouts
from spanmq.client.installation import install_at
from spanmq.client.password import Password, password_for
from spanmq.schema import Installed


@dataclass(slots=True, kw_only=True)
class AsyncSource:
    """The link of a client; over a pool also its listeners, of messages and of settlements, unless it only polls.

    When the pool opens, maintenance begins, if there is an interval in seconds.
    """

    link: AsyncLink
    pool_link: AsyncPoolLink | None = None
    listener: AsyncListener | None = None
    settle_listener: AsyncListener | None = None
    maintain_interval: float | None = None
    maintenance: AsyncMaintenance | None = None

    def __post_init__(self) -> None:
        """Have the pool begin maintenance."""
        if self.pool_link is not None:
            self.pool_link.on_open = self._begin_maintenance

    async def open(self) -> None:
        """Open the pool, if there is one; raises ConnectionFailedError."""
        if self.pool_link is not None:
            await self.pool_link.open()

    async def close(self, *, abandon: bool) -> None:
        """Stop what runs in the background, and close a pool of the client's own; `abandon` as the client's."""
        jobs = [job for job in (self.maintenance, self.listener, self.settle_listener) if job]
        for job in jobs:
            job.stop()
        if self.pool_link is not None and (connector := self.pool_link.connector) is not None:
            connector.abandon(calls=abandon)
        if self.pool_link is not None:
            await self.pool_link.close()
        for job in jobs:
            await job.join()

    async def install(self, *, follow_table_grants: bool) -> Installed:
        """Install the schema over a connection of its own; `follow_table_grants` as `schema.install` has it."""
        address = await self.link.address()
        connector = None if self.pool_link is None else self.pool_link.connector
        password = None if connector is None else connector.password
        return await in_thread(
            partial(install_at, address, password=password, follow_table_grants=follow_table_grants)
        )

    def _begin_maintenance(self) -> None:
        if self.maintain_interval and self.pool_link is not None:
            self.maintenance = AsyncMaintenance(self.pool_link, self.maintain_interval)


def source_of(
    dsn: str | None,
    pool: AsyncConnectionPool[Any] | None,
    connection: object | None,
    *,
    pool_size: int,
    timeout: float,
    maintain_interval: float | None,
    durable: bool,
    listen: bool,
    pooler: bool,
    timeouts: Timeouts | None,
    on_connect: Callable[[AsyncConnection[Any]], Any] | None,
    password: Password | None,
    answer_bytes_max: int | None,
) -> AsyncSource:
    """Return the source for the one of the first three that is given; the options are those of the client."""
    connector: AsyncConnector | None = None
    if dsn is not None:
        connector = AsyncConnector(
            with_timeouts(dsn, timeouts, pooler=pooler),
            password=password_for(dsn, password),
            pooler=pooler,
            answer_seconds=answer_seconds(dsn, timeouts),
        )
        pool = connector.new_pool(pool_size, on_connect)
    if pool is None:
        return AsyncSource(link=_link_over(connection))
    link = AsyncPoolLink(
        pool,
        connector=connector,
        address=dsn,
        timeout=timeout,
        durable=durable,
        answer_bytes_max=answer_bytes_max,
    )
    # A pool of one has none to spare.
    can_listen = listen and not pooler and (dsn is not None or pool.max_size > 1)
    return AsyncSource(
        link=link,
        pool_link=link,
        listener=AsyncListener(link.dedicated) if can_listen else None,
        settle_listener=AsyncListener(link.dedicated, functions.await_settled) if can_listen else None,
        maintain_interval=maintain_interval,
    )


def _link_over(connection: object) -> AsyncLink:
    if isinstance(connection, AsyncConnectionLink | AsyncSessionLink):
        return connection
    if isinstance(connection, AsyncConnection):
        return AsyncConnectionLink(connection)
    return adapt_async(connection)
