"""The extension `pgmq` without objects: programs create it, and dropping it leaves spanmq whole."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.sql.queue import Connection, one, rows
from tests.sql.schema.conftest import session_of
from tests.sql.schema.extension_files import open_to_server, use_folder, write_upstream

from spanmq import embedded, schema
from spanmq.errors import MissingPrivilegeError, NotPossibleError, SchemaMissingError
from spanmq.testing.databases import new_database, with_database

CREATE = "create extension if not exists pgmq cascade"
# Version and members; no row without the extension.
REGISTERED = """
    select e.extversion, (select count(*) from pg_depend d
                          where d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid)
    from pg_extension e where e.extname = 'pgmq'
"""


@pytest.fixture
def ours(empty_database: str, server_folder: Path) -> str:
    """The DSN of an empty database whose server has our files."""
    schema.write_extension(server_folder)
    use_folder(empty_database, server_folder)
    return empty_database


@pytest.fixture
def theirs(empty_database: str, server_folder: Path) -> str:
    """The DSN of an empty database whose server has PGMQ's files."""
    write_upstream(server_folder)
    use_folder(empty_database, server_folder)
    return empty_database


def check_it_is_a_name_only(session: Connection) -> None:
    """Create it as programs do, and drop it, with a queue beside it."""
    session.execute("select pgmq.create('orders'), pgmq.send('orders', '1')")
    session.execute(CREATE)
    assert rows(session, REGISTERED) == [("1.13.0", 0)]
    assert schema.verify(session) == []
    session.execute("drop extension pgmq cascade")
    assert rows(session, REGISTERED) == []
    assert schema.verify(session) == []
    assert one(session, "select message from pgmq.read('orders', 30, 1)") == 1


def test_programs_create_and_drop_it_where_the_server_has_our_files(ours: str) -> None:
    with psycopg.connect(ours, autocommit=True) as session:
        schema.install(session)
        check_it_is_a_name_only(session)
        session.execute("create extension pgmq with schema pgmq")
        assert rows(session, REGISTERED) == [("1.13.0", 0)]


def test_installation_comes_after_our_extension(ours: str) -> None:
    with psycopg.connect(ours, autocommit=True) as session:
        warnings: list[str | None] = []
        session.add_notice_handler(lambda diagnostic: warnings.append(diagnostic.message_primary))
        session.execute(CREATE)
        assert warnings == ["this database has no queues of spanmq yet"]
        schema.install(session)
        check_it_is_a_name_only(session)


def test_owner_without_special_rights_registers_it(ours: str, owner: Connection) -> None:
    with session_of(ours, owner.info.user) as session:
        schema.install(session)
        schema.register_extension(session)
        check_it_is_a_name_only(session)


def test_it_is_registered_beside_queues_where_the_server_has_the_files_of_pgmq(theirs: str) -> None:
    with psycopg.connect(theirs, autocommit=True) as session:
        schema.install(session)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            session.execute(CREATE)
        session.execute("create function pgmq.mine() returns int language sql as 'select 1'")
        for _ in range(2):
            schema.register_extension(session)
            check_it_is_a_name_only(session)
        schema.register_extension(session)
        schema.register_extension(session)
        assert one(session, "select pgmq.mine()") == 1
        schema.uninstall(session, force=True)
        assert rows(session, REGISTERED) == []
        assert rows(session, "select nspname from pg_namespace where nspname ~ '(pg|span)mq'") == []


def test_installation_replaces_an_extension_without_queues(theirs: str) -> None:
    with psycopg.connect(theirs, autocommit=True) as session:
        session.execute(CREATE)
        assert schema.state(session).has_upstream_queues is False
        with pytest.raises(NotPossibleError):
            schema.upgrade(session)
        schema.install(session)
        assert rows(session, REGISTERED) == [("1.13.0", 0)]
        assert schema.state(session).holding is schema.Holding.INSTALLED
        check_it_is_a_name_only(session)


@pytest.mark.parametrize(
    ("before", "hint"),
    [
        ("select pgmq.create('orders')", "adopt"),
        # Of a queue whose row was deleted.
        ("create table pgmq.q_orders (msg_id bigint)", "adopt"),
        (
            "create function public.of_message(pgmq.message_record) returns int language sql as 'select 1'",
            "adopt",
        ),
    ],
)
def test_installation_does_not_replace_an_extension_in_use(theirs: str, before: str, hint: str) -> None:
    with psycopg.connect(theirs, autocommit=True) as session:
        session.execute(f"{CREATE}; {before}".encode())
        with pytest.raises(NotPossibleError) as caught:
            schema.install(session)
        assert hint in (caught.value.hint or "")
        assert one(session, "select pgmq.create('others')") == ""
        assert rows(session, REGISTERED)[0][1] > 50


def test_it_is_refused_without_spanmq_and_without_files(session: Connection, upstream: Connection) -> None:
    with pytest.raises(SchemaMissingError):
        schema.register_extension(session)
    with pytest.raises(NotPossibleError, match="holds PGMQ"):
        schema.register_extension(upstream)
    schema.install(session)
    with pytest.raises(NotPossibleError) as caught:
        schema.register_extension(session)
    assert "--folder" in (caught.value.hint or "")


def test_role_that_may_not_create_it_is_told_so(theirs: str, role: str) -> None:
    with psycopg.connect(theirs, autocommit=True) as session:
        schema.install(session)
        session.execute(f"grant select on all tables in schema spanmq_core to {role}".encode())
        with session_of(theirs, role) as other, pytest.raises(MissingPrivilegeError):
            schema.register_extension(other)
        assert schema.state(session).holding is schema.Holding.INSTALLED


def test_files_of_pgmq_are_not_overwritten(server_folder: Path) -> None:
    assert [path.name for path in schema.write_extension(server_folder)] == [
        "pgmq.control",
        "pgmq--1.13.0.sql",
    ]
    assert schema.write_extension(server_folder) == schema.write_extension(str(server_folder))
    write_upstream(server_folder)
    before = {path: path.read_text() for path in server_folder.rglob("*.*")}
    with pytest.raises(NotPossibleError):
        schema.write_extension(server_folder)
    assert {path: path.read_text() for path in server_folder.rglob("*.*")} == before


@pytest.fixture
def other_database(spanmq_server: str) -> Iterator[str]:
    """The DSN of a second empty database."""
    with new_database(spanmq_server) as name:
        yield with_database(spanmq_server, name)


def restore(source: str, target: str, folder: Path, *options: str) -> list[str]:
    """Dump a database and restore it into another; return the errors."""
    programs, dump = embedded.find_binaries(18), folder / "dump.sql"
    subprocess.run([programs / "pg_dump", "--no-owner", *options, "--file", dump, source], check=True)
    done = subprocess.run(
        [programs / "psql", "--quiet", "--no-psqlrc", "--file", dump, target],
        check=False,
        capture_output=True,
        text=True,
    )
    return [line.partition("ERROR:")[2].strip() for line in done.stderr.splitlines() if "ERROR:" in line]


def fill(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        schema.install(session)
        schema.register_extension(session)
        session.execute("select pgmq.create('orders'), pgmq.send('orders', '1')")


def check_restored(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        assert schema.state(session).holding is schema.Holding.INSTALLED
        assert schema.verify(session) == []
        assert one(session, "select message from pgmq.read('orders', 30, 1)") == 1


@pytest.mark.parametrize("files", ["ours", "theirs"])
def test_restore_is_whole_without_the_files(
    files: str, request: pytest.FixtureRequest, other_database: str, server_folder: Path
) -> None:
    source = request.getfixturevalue(files)
    fill(source)
    errors = restore(source, other_database, server_folder)
    # CREATE EXTENSION and COMMENT ON EXTENSION.
    assert [each.partition(" pgmq")[0] for each in errors][:1] == ['extension "pgmq" is not available']
    assert len(errors) <= 2
    check_restored(other_database)


@pytest.mark.parametrize("files", ["ours", "theirs"])
def test_restore_is_whole_on_a_server_with_the_same_files(
    files: str, request: pytest.FixtureRequest, other_database: str, server_folder: Path
) -> None:
    source = request.getfixturevalue(files)
    fill(source)
    use_folder(other_database, server_folder)
    errors = restore(source, other_database, server_folder)
    # From PGMQ's files, a restore would make PGMQ's objects in the place of ours.
    refused = 'extension "pgmq" must be installed in schema "pgmq"'
    assert errors[:1] == ([] if files == "ours" else [refused])
    assert len(errors) <= 2
    check_restored(other_database)
    with psycopg.connect(other_database, autocommit=True) as session:
        schema.register_extension(session)
        check_it_is_a_name_only(session)


def test_our_extension_is_left_out_where_the_files_are_those_of_pgmq(
    ours: str, other_database: str, server_folder: Path
) -> None:
    fill(ours)
    folder = server_folder / "theirs"
    folder.mkdir()
    write_upstream(folder)
    open_to_server(folder)
    use_folder(other_database, folder)
    assert restore(ours, other_database, server_folder, "--exclude-extension", "pgmq") == []
    check_restored(other_database)
