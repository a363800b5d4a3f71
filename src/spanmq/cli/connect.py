"""The choice of the database of a command."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spanmq.cli.failure import say

if TYPE_CHECKING:
    import psycopg

    from spanmq.client import Client

# Without a handler Python writes warnings to stderr. The error that follows describes a broken connection
# better.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

# Longer than this a server is silent only if it is gone.
ANSWER_SECONDS: Final = 3600.0
# The sessions of shells that are remembered.
SESSIONS_MAX: Final = 50


@contextmanager
def address(dsn: str | None) -> Iterator[str]:
    """Yield the DSN, or that of the embedded server, which runs as long as the block."""
    if dsn is not None:
        yield dsn
        return
    from spanmq import embedded

    with embedded.start() as server:
        if _is_new_to_this_shell(server.folder):
            say(f"spanmq: using the embedded server in {server.folder} (--dsn or SPANMQ_DSN names another)")
        yield server.dsn


def _is_new_to_this_shell(folder: Path) -> bool:
    """Return whether no command of this session of a shell has used the server, and remember that one has."""
    session, file = str(os.getsid(0)), folder / "announced"
    try:
        known = file.read_text().split() if file.exists() else []
        if session in known:
            return False
        file.write_text(" ".join([*known[-SESSIONS_MAX:], session]))
    except OSError:
        pass  # a line too many
    return True


@contextmanager
def client(dsn: str | None, *, sealed: bool = False, is_brief: bool = False) -> Iterator[Client]:
    """Yield a client whose bodies are JSON as the server returned it; `sealed` ones stay encrypted.

    `is_brief` says that no statement takes long: it then has the time limits of any client.
    """
    from spanmq.client import Client
    from spanmq.client.dsn import Timeouts
    from spanmq.codec.body import RawJson
    from spanmq.codec.encryption import Encryption

    with (
        address(dsn) as conninfo,
        Client(
            conninfo,
            pool_size=2,
            decoder=RawJson,
            # A command may run for long, and its output may be read slowly: Ctrl-C ends it. Its waits for
            # locks delay other sessions, so they are limited.
            timeouts=Timeouts()
            if is_brief
            else Timeouts(statement=0, idle_in_transaction=0, answer=ANSWER_SECONDS),
            encryption=None if sealed else Encryption.from_environment(),
        ) as opened,
    ):
        if dsn is None:
            _make_ready(opened)
        yield opened


@contextmanager
def prepared_address(dsn: str | None = None) -> Iterator[str]:
    """Yield the DSN, or that of the embedded server, with the schema installed there."""
    from spanmq.client import Client

    with address(dsn) as conninfo:
        if dsn is None:
            with Client(conninfo, pool_size=2) as opened:
                _make_ready(opened)
        yield conninfo


def _make_ready(opened: Client) -> None:
    """Install the schema if it is missing: the embedded server is for queues only."""
    if opened.admin.flavour() == "none":
        say(f"spanmq: installed the schema {opened.install().version} in it")


@contextmanager
def connection(dsn: str | None) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection in autocommit, for statements outside the client."""
    from spanmq.client.single_connection import connect

    with address(dsn) as conninfo, connect(conninfo) as opened:
        yield opened
