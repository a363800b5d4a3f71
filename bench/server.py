"""The server of a run: a private PostgreSQL 18 of the product's own, or one that the user names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# As a careful operator sets a small server; everything else is as in the embedded server, autovacuum on. With
# these no checkpoint falls into a run of seconds.
SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
}


@contextmanager
def serving(dsn: str | None) -> Iterator[str]:
    """Give the DSN of the server to measure on; a private one lives as long as the context."""
    if dsn is not None:
        yield dsn
        return
    from spanmq import embedded

    with embedded.temporary(version=18, settings=SETTINGS) as server:
        yield server.dsn
