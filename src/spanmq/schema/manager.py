"""Install, upgrade, verify, print and remove the schema: the only DDL that Python issues.

All that decides is pure (`read_state`, `plan`, `compare`), so a caller with another driver can do the same:
begin, execute `BEGIN`, fetch `STATE_QUERY` and where it says so the two ledger queries, execute what `plan`
returns and `END`, commit.
"""

import enum
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from spanmq.errors import (
    DataLossError,
    MissingPrivilegeError,
    NotPossibleError,
    SchemaMissingError,
    SchemaVersionError,
    ServerReadOnlyError,
    from_driver,
)
from spanmq.schema.release import Release, Statement, load_release, manager, script, statements, version_key

OLDEST_SERVER = 150000
LOCK_PAUSE_SECONDS = 1.0

BEGIN = manager("begin")
END = manager("end")
STATE_QUERY = manager("state")
MIGRATIONS_QUERY = Statement("migrations", "select name, checksum from spanmq_core.migration order by name")
RELEASES_QUERY = Statement(
    "releases", "select version, functions_checksum from spanmq_core.release order by id"
)

Connection = psycopg.Connection[Any]
Row = Mapping[str, Any]


class Holding(enum.StrEnum):
    """The contents of a database: nothing, PGMQ or spanmq."""

    NOTHING = "nothing"
    INSTALLED = "installed"
    NEWER = "newer"
    UPSTREAM_EXTENSION = "upstream-extension"
    UPSTREAM_SQL_ONLY = "upstream-sql-only"


UPSTREAM = (Holding.UPSTREAM_EXTENSION, Holding.UPSTREAM_SQL_ONLY)


@dataclass(frozen=True, slots=True)
class State:
    """The state of a server and a database, as far as an installation depends on it.

    `holding` is what the database has. `version` is that of our schema or of upstream's extension, `migrations` maps
    the names of what was applied to checksums, and `functions_checksum` is that of the functions; None without a
    schema. `has_upstream_queues` says whether PGMQ, if it is there, has queues or archives. `server_version` is
    PostgreSQL's as a number, such as 180001. The server `is_standby`, the session `is_read_only`, and the role
    `may_create` schemas, or need not.
    """

    holding: Holding
    version: str | None
    migrations: Mapping[str, str]
    functions_checksum: str | None
    has_upstream_queues: bool
    server_version: int
    is_standby: bool
    is_read_only: bool
    may_create: bool


@dataclass(frozen=True, slots=True)
class Installed:
    """An installation's result: the `version` now, names of applied `migrations`, and `functions_applied`."""

    version: str
    migrations: tuple[str, ...]
    functions_applied: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing, of a `kind` such as "function", that is not as a fresh install would have it.

    `detail` says more. `problem` is `missing`, `changed`, `unknown` (a migration of a newer version, or a function
    with the name of one of ours), `owner`, `privilege` (that no grant of a verb gives) or `invalid`.
    """

    kind: str
    name: str
    problem: str
    detail: str


FOLLOW = Statement("follow_table_grants", "select from spanmq.follow_table_grants()")


def install(
    connection: Connection,
    *,
    follow_table_grants: bool = False,
    lock_wait_seconds: float = 60.0,
    release: Release | None = None,
) -> Installed:
    """Bring the schema to this version, or to a `release`, in one transaction; do nothing if it is up to date.

    With `follow_table_grants`, privileges on `pgmq.q_<name>` count as verbs from now on; without it, this stays
    as it is.

    Safe to call at every start of a program, from any number of them at once. Joins a transaction that is
    open on the connection (it must be READ COMMITTED), else commits. A table that must change, and that another
    transaction uses, is waited for two seconds, since calls wait behind this one; then everything is rolled back,
    and tried again, for `lock_wait_seconds` in all (once, in an open transaction). Raises NotPossibleError,
    SchemaVersionError, ServerReadOnlyError, MissingPrivilegeError, InvalidTransactionError or
    StatementCancelledError (a lock was not available), and has then changed nothing.
    """
    installed = _apply(
        connection, release or load_release(), reapply=False, lock_wait_seconds=lock_wait_seconds
    )
    if follow_table_grants:
        with typed_errors(), connection.transaction():
            execute(connection, [FOLLOW])
    return installed


def upgrade(
    connection: Connection, *, lock_wait_seconds: float = 60.0, release: Release | None = None
) -> Installed:
    """Bring an installed schema to this version and apply all functions again, which repairs them.

    Runs on a `connection`, as `install` does; `release` is this version if it is None. A function that this version
    lacks, or whose arguments or results differ, is dropped; the new one has the privileges that were granted. Raises
    SchemaMissingError if there is no schema to upgrade, SchemaVersionError where your own objects need a function that
    goes (its `detail` has the statements that create them again), otherwise the errors of `install`, which has
    `lock_wait_seconds`, too.
    """
    return _apply(connection, release or load_release(), reapply=True, lock_wait_seconds=lock_wait_seconds)


def state(connection: Connection, *, release: Release | None = None) -> State:
    """Return the state of the database of a `connection`, seen from this version or from a `release`.

    Raises MissingPrivilegeError without the right to read spanmq's tables, if they exist.
    """
    with typed_errors(), connection.transaction():
        return fetch_state(connection, release or load_release())


def verify(connection: Connection, *, release: Release | None = None) -> list[Difference]:
    """Compare the schema in the database of a `connection` with what this version, or a `release`, installs.

    Returns [] if all is well; changes nothing. Raises MissingPrivilegeError without the right to read spanmq's tables.
    """
    release = release or load_release()
    # Rolled back, because the transaction may be the caller's, and its settings must not change.
    with typed_errors(), connection.transaction(force_rollback=True):
        query(connection, manager("settings"))
        current = fetch_state(connection, release)
        differences = compare(current, release)
        # This version cannot know the objects of another version's functions files.
        if current.functions_checksum == release.functions_checksum:
            rows = query(connection, manager("verify"))
            differences += [Difference(**row) for row in rows]
        return differences


def uninstall(connection: Connection, *, force: bool = False, release: Release | None = None) -> None:
    """Drop the four schemas through a `connection`, in one transaction.

    Raises DataLossError, which names what would be lost, while a queue or an archive holds messages, or your
    own objects are in the schemas or depend on them. With `force` these are dropped, too. `release` is the version
    that drops them. Raises SchemaMissingError if there is nothing to drop.
    """
    release = release or load_release()
    with typed_errors(), locked_transaction(connection):
        current = fetch_state(connection, release)
        if current.holding is Holding.NOTHING:
            raise SchemaMissingError("spanmq is not installed in this database")
        if current.holding is not Holding.NEWER or not force:
            refuse_foreign(current, release)
        check_server(current)
        try:
            execute(connection, [manager("uninstall", force="true" if force else "false")])
        except psycopg.Error as error:
            if error.sqlstate != "MQ006":
                raise
            said = error.diag
            raise DataLossError(
                said.message_primary or "",
                detail=said.message_detail,
                hint=said.message_hint,
                sqlstate=error.sqlstate,
            ) from error


def sql(from_version: str | None = None, *, transaction: bool = True, release: Release | None = None) -> str:
    """Return the installation as a plain SQL script for psql or another migration tool.

    From nothing, or from the schema of `from_version`, to this version or a `release`. The script checks that it is
    run on just that, does all in one transaction (`transaction=False` leaves out begin and commit) and records what
    `install` records. Raises InvalidArgumentError for what is not a version, SchemaVersionError for a newer one.
    """
    return script(release or load_release(), from_version, transaction=transaction)


def read_state(facts: Row, migrations: Sequence[Row], releases: Sequence[Row], release: Release) -> State:
    """Return the State of a row of `STATE_QUERY` and, if it says `has_ledger`, the rows of the other two."""
    applied = {row["name"]: row["checksum"] for row in migrations}
    last = releases[-1] if releases else None
    version = last["version"] if last else None
    if facts["extension_version"] is not None:
        holding, version = Holding.UPSTREAM_EXTENSION, facts["extension_version"]
    elif facts["has_upstream_tables"]:
        holding = Holding.UPSTREAM_SQL_ONLY
    elif version is None:
        holding = Holding.NOTHING
    else:
        is_newer = version_key(version) > version_key(release.version)
        unknown = applied.keys() - {migration.name for migration in release.migrations}
        holding = Holding.NEWER if is_newer or unknown else Holding.INSTALLED
    return State(
        holding=holding,
        version=version,
        migrations=applied,
        functions_checksum=last["functions_checksum"] if last else None,
        has_upstream_queues=holding in UPSTREAM and facts["has_upstream_queues"],
        server_version=facts["server_version"],
        is_standby=facts["is_standby"],
        is_read_only=facts["is_read_only"],
        may_create=facts["may_create_schemas"] or facts["has_schemas"],
    )


def plan(current: State, release: Release, *, reapply: bool) -> list[Statement]:
    """Return the statements to execute: [] if the schema is up to date.

    Raises the errors of `install` and `upgrade`.
    """
    is_empty_extension = current.holding is Holding.UPSTREAM_EXTENSION and not current.has_upstream_queues
    if reapply or not is_empty_extension:
        refuse_foreign(current, release)
    if reapply and current.holding is Holding.NOTHING:
        raise SchemaMissingError(
            "spanmq is not installed in this database", hint="Install it: spanmq schema install"
        )
    for migration in release.migrations:
        if current.migrations.get(migration.name, migration.checksum) != migration.checksum:
            raise SchemaVersionError(
                f"tables/{migration.name} is not the file that was applied to this database",
                hint="A released migration never changes: use the version that applied it.",
                sqlstate="MQ006",
                code="schema_changed",
            )
    pending = [migration for migration in release.migrations if migration.name not in current.migrations]
    there = (current.version, current.functions_checksum)
    if there == (release.version, release.functions_checksum) and not pending and not reapply:
        return []
    check_server(current)
    planned = statements(release, pending)
    if is_empty_extension:
        # Programs that created it go on to find an extension of this name.
        planned = [manager("empty_upstream"), *planned, manager("extension", asked="false")]
    return planned


def compare(current: State, release: Release) -> list[Difference]:
    """Find what the ledger alone tells: versions, missing, changed and unknown migrations."""
    if current.holding not in (Holding.INSTALLED, Holding.NEWER):
        return [Difference("schema", "spanmq", "missing", f"the database holds: {current.holding}")]
    differences = []
    known = {migration.name: migration.checksum for migration in release.migrations}
    for name in sorted(known.keys() | current.migrations.keys()):
        if name not in current.migrations:
            differences.append(Difference("migration", name, "missing", "not applied: upgrade"))
        elif name not in known:
            detail = f"of another version than {release.version}"
            differences.append(Difference("migration", name, "unknown", detail))
        elif known[name] != current.migrations[name]:
            detail = "the file is not the one that was applied"
            differences.append(Difference("migration", name, "changed", detail))
    there = (current.version, current.functions_checksum)
    if there != (release.version, release.functions_checksum):
        detail = f"version {current.version} is installed, this is {release.version}: upgrade"
        differences.append(Difference("functions", "*", "changed", detail))
    return differences


def check_server(current: State) -> None:
    """Raise the typed error for a server or a role that cannot change a schema."""
    if current.server_version < OLDEST_SERVER:
        major, oldest = current.server_version // 10000, OLDEST_SERVER // 10000
        raise SchemaVersionError(
            f"spanmq needs PostgreSQL {oldest} or newer, this server is {major}",
            sqlstate="MQ006",
            code="server_too_old",
        )
    if current.is_standby:
        raise ServerReadOnlyError("the server is a standby", hint="Connect to the primary.", sqlstate="25006")
    if current.is_read_only:
        raise ServerReadOnlyError(
            "transactions of this session are read-only",
            hint="Check the setting default_transaction_read_only of the server, database and role.",
            sqlstate="25006",
        )
    if not current.may_create:
        raise MissingPrivilegeError(
            "the role may not create schemas in this database",
            hint="As its owner: grant create on database … to …",
            sqlstate="42501",
        )


def refuse_foreign(current: State, release: Release) -> None:
    """Raise the typed error for a schema that this version must not touch."""
    if current.holding is Holding.NEWER:
        raise SchemaVersionError(
            f"the schema is of spanmq {current.version}, this is {release.version}",
            hint="Use that version or a newer one.",
            sqlstate="MQ006",
            code="schema_newer",
        )
    if current.holding in UPSTREAM:
        which = f"extension {current.version}" if current.version else "installed from its SQL file"
        raise NotPossibleError(
            f"this database holds PGMQ ({which})",
            hint="Take its queues over with: spanmq schema adopt",
            sqlstate="MQ006",
            code="upstream_pgmq",
        )


@contextmanager
def locked_transaction(connection: Connection) -> Iterator[None]:
    """Run the body in a transaction as the only installer of the database, under settings of our own."""
    is_ours = connection.info.transaction_status is TransactionStatus.IDLE
    with connection.transaction():
        if is_ours:
            # A snapshot taken before the lock was ours would hide what the one before us did.
            connection.execute("set transaction isolation level read committed", prepare=False)
        execute(connection, [BEGIN])
        yield
        execute(connection, [END])


@contextmanager
def typed_errors() -> Iterator[None]:
    """Turn the driver's errors into ours, and keep their notes."""
    try:
        yield
    except psycopg.Error as error:
        typed = from_driver(error)
        if typed is None:
            raise
        for note in getattr(error, "__notes__", ()):
            typed.add_note(note)
        raise typed from error


def fetch_state(connection: Connection, release: Release) -> State:
    """Run the state queries in the transaction that is open."""
    facts = query(connection, STATE_QUERY)[0]
    has_ledger = facts["has_ledger"]
    migrations = query(connection, MIGRATIONS_QUERY) if has_ledger else []
    releases = query(connection, RELEASES_QUERY) if has_ledger else []
    return read_state(facts, migrations, releases, release)


def execute(connection: Connection, planned: Sequence[Statement]) -> None:
    """Execute statements in order; an error carries a note that says in which."""
    with connection.cursor() as cursor:
        for statement in planned:
            try:
                # Unprepared, without parameters: the simple protocol, which takes several commands at once.
                cursor.execute(statement.text.encode(), prepare=False)
            except psycopg.Error as error:
                error.add_note(f"in {statement.name}")
                raise


def query(connection: Connection, statement: Statement) -> list[dict[str, Any]]:
    """Fetch the rows of one statement, whatever row factory the connection has."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statement.text.encode(), prepare=False).fetchall()


def _apply(connection: Connection, release: Release, *, reapply: bool, lock_wait_seconds: float) -> Installed:
    is_ours = connection.info.transaction_status is TransactionStatus.IDLE
    until = time.monotonic() + lock_wait_seconds
    with typed_errors():
        if not reapply:
            # Twenty processes that start with everything in place should not queue for the lock.
            with connection.transaction():
                current = fetch_state(connection, release)
                if not plan(current, release, reapply=False):
                    return Installed(release.version, (), functions_applied=False)
        while True:
            try:
                return _apply_once(connection, release, reapply=reapply)
            except psycopg.errors.LockNotAvailable as error:
                if not is_ours or time.monotonic() > until:
                    error.add_note(
                        "A transaction uses what must change: see pg_stat_activity, end it, and try again."
                    )
                    raise
            # The calls that waited behind this one go first.
            time.sleep(LOCK_PAUSE_SECONDS)


def _apply_once(connection: Connection, release: Release, *, reapply: bool) -> Installed:
    with locked_transaction(connection):
        # Again, now that the lock is ours: another may have done it all meanwhile.
        current = fetch_state(connection, release)
        planned = plan(current, release, reapply=reapply)
        execute(connection, planned)
    names = (migration.name for migration in release.migrations)
    applied = tuple(name for name in names if planned and name not in current.migrations)
    return Installed(release.version, applied, functions_applied=bool(planned))
