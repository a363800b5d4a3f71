"""The extension `pgmq`: a name without objects, for programs that begin with `create extension pgmq`."""

import importlib.resources
from pathlib import Path

from spanmq.errors import NotPossibleError, SchemaMissingError
from spanmq.schema import manager as schema
from spanmq.schema.manager import UPSTREAM, Connection, Holding
from spanmq.schema.release import Release, load_release, manager

FILES = ("pgmq.control", "pgmq--1.13.0.sql")


def register_extension(connection: Connection, *, release: Release | None = None) -> None:
    """Register the extension `pgmq` in the database of a `connection`, so that creating it if it does not exist passes.

    It has no objects: dropping it, also with `cascade`, leaves spanmq as it is. Uses the server's files of that name,
    PGMQ's own or those of `write_extension`. Does nothing where the extension is registered. Joins a transaction that
    is open on the connection, else commits. `release` is this version if it is None.

    Raises SchemaMissingError without spanmq in the database, NotPossibleError where the database holds PGMQ or the
    server has no such files, MissingPrivilegeError for a role that may not create it.
    """
    release = release or load_release()
    with schema.typed_errors(), schema.locked_transaction(connection):
        current = schema.fetch_state(connection, release)
        if current.holding in UPSTREAM:
            schema.refuse_foreign(current, release)
        if current.holding is Holding.NOTHING:
            raise SchemaMissingError(
                "spanmq is not installed in this database", hint="Install it: spanmq schema install"
            )
        schema.check_server(current)
        schema.execute(connection, [manager("extension", asked="true")])


def write_extension(folder: str | Path) -> tuple[Path, ...]:
    """Write the files of the extension `pgmq` into the folder `extension` of a `folder`; return their paths.

    The server finds them where `folder` is what `pg_config --sharedir` prints, and from PostgreSQL 18 on where it is
    in the setting `extension_control_path`. Raises NotPossibleError where the folder has PGMQ's own files, which stay
    as they are.
    """
    target = Path(folder) / "extension"
    source = importlib.resources.files("spanmq") / "sql" / "extension"
    texts = {target / name: (source / name).read_text(encoding="utf-8") for name in FILES}
    for path, text in texts.items():
        if (
            path.exists()
            and path.read_text(encoding="utf-8") != text
            and "spanmq" not in path.read_text("utf-8")
        ):
            raise NotPossibleError(
                f"{path} is PGMQ's own",
                hint="Where the server has PGMQ's files, register the extension: spanmq schema extension",
                code="upstream_pgmq",
            )
    target.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
        # The server is usually another user.
        path.chmod(0o644)
    return tuple(texts)
