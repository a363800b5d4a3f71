# Generated from src/spanmq/client/_async/source.py by tools/generate_sync.py: change that file.

"""The link and the background tasks that a client makes from its DSN, pool or connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from psycopg import Connection
from psycopg_pool import ConnectionPool

from spanmq.client import functions
from spanmq.client._sync.connection import ConnectionLink, Link, PoolLink
from spanmq.client._sync.listener import Listener
from spanmq.client._sync.maintenance import Maintenance
from spanmq.client._sync.pool import Connector
from spanmq.client._sync.session import SessionLink, adapt
from spanmq.client.concurrency import in_place
from spanmq.client.dsn import Timeouts, answer_seconds, with_timeouts
from spanmq.client.installation import install_at
from spanmq.client.password import Password, password_for
from spanmq.schema import Installed


@dataclass(slots=True, kw_only=True)
class Source:
    """The link of a client; over a pool also its listeners, of messages and of settlements, unless it only polls.

    When the pool opens, maintenance begins, if there is an interval in seconds.
    """

    link: Link
    pool_link: PoolLink | None = None
    listener: Listener | None = None
    settle_listener: Listener | None = None
    maintain_interval: float | None = None
    maintenance: Maintenance | None = None

    def __post_init__(self) -> None:
        """Have the pool begin maintenance."""
        if self.pool_link is not None:
            self.pool_link.on_open = self._begin_maintenance

    def open(self) -> None:
        """Open the pool, if there is one; raises ConnectionFailedError."""
        if self.pool_link is not None:
            self.pool_link.open()

    def close(self, *, abandon: bool) -> None:
        """Stop what runs in the background, and close a pool of the client's own; `abandon` as the client's."""
        jobs = [job for job in (self.maintenance, self.listener, self.settle_listener) if job]
        for job in jobs:
            job.stop()
        if self.pool_link is not None and (connector := self.pool_link.connector) is not None:
            connector.abandon(calls=abandon)
        if self.pool_link is not None:
            self.pool_link.close()
        for job in jobs:
            job.join()

    def install(self, *, follow_table_grants: bool) -> Installed:
        """Install the schema over a connection of its own; `follow_table_grants` as `schema.install` has it."""
        address = self.link.address()
        connector = None if self.pool_link is None else self.pool_link.connector
        password = None if connector is None else connector.password
        return in_place(
            partial(install_at, address, password=password, follow_table_grants=follow_table_grants)
        )

    def _begin_maintenance(self) -> None:
        if self.maintain_interval and self.pool_link is not None:
            self.maintenance = Maintenance(self.pool_link, self.maintain_interval)


def source_of(
    dsn: str | None,
    pool: ConnectionPool[Any] | None,
    connection: object | None,
    *,
    pool_size: int,
    timeout: float,
    maintain_interval: float | None,
    durable: bool,
    listen: bool,
    pooler: bool,
    timeouts: Timeouts | None,
    on_connect: Callable[[Connection[Any]], Any] | None,
    password: Password | None,
    answer_bytes_max: int | None,
) -> Source:
    """Return the source for the one of the first three that is given; the options are those of the client."""
    connector: Connector | None = None
    if dsn is not None:
        connector = Connector(
            with_timeouts(dsn, timeouts, pooler=pooler),
            password=password_for(dsn, password),
            pooler=pooler,
            answer_seconds=answer_seconds(dsn, timeouts),
        )
        pool = connector.new_pool(pool_size, on_connect)
    if pool is None:
        return Source(link=_link_over(connection))
    link = PoolLink(
        pool,
        connector=connector,
        address=dsn,
        timeout=timeout,
        durable=durable,
        answer_bytes_max=answer_bytes_max,
    )
    # A pool of one has none to spare.
    can_listen = listen and not pooler and (dsn is not None or pool.max_size > 1)
    return Source(
        link=link,
        pool_link=link,
        listener=Listener(link.dedicated) if can_listen else None,
        settle_listener=Listener(link.dedicated, functions.await_settled) if can_listen else None,
        maintain_interval=maintain_interval,
    )


def _link_over(connection: object) -> Link:
    if isinstance(connection, ConnectionLink | SessionLink):
        return connection
    if isinstance(connection, Connection):
        return ConnectionLink(connection)
    return adapt(connection)
