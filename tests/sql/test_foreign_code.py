"""Code that roles hang on an archive: that of other roles than the owner is refused, the owner's goes on."""

import psycopg
import pytest
from tests.sql.queue import Connection, column, one, rows, sqlstate_of
from tests.sql.rights import ROLE, own_role

from spanmq import schema

FIRES = "returns trigger language plpgsql as 'begin raise notice ''fired''; return new; end'"
ARCHIVE = "select pgmq.archive('jobs', pgmq.send('jobs', '1'))"


@pytest.fixture
def archive(jobs: Connection) -> Connection:
    """A session of the owner with a queue `jobs`; a role may make triggers and foreign keys on its archive."""
    jobs.execute(f"create role {ROLE}; create schema theirs authorization {ROLE}".encode())
    jobs.execute(f"grant trigger, references on pgmq.a_jobs to {ROLE}".encode())
    jobs.execute(f"create function public.ours() {FIRES}".encode())
    return jobs


def as_role(connection: Connection, statements: str) -> None:
    connection.execute(f"set local role {ROLE}; {statements}; reset role".encode())


def test_trigger_of_the_owner_fires(archive: Connection) -> None:
    archive.execute(
        "create trigger ours before insert on pgmq.a_jobs for each row execute function public.ours()"
    )
    fired: list[str | None] = []
    archive.add_notice_handler(lambda notice: fired.append(notice.message_primary))
    assert one(archive, ARCHIVE) is True
    assert "fired" in fired
    archive.execute("select spanmq.maintain()")
    assert schema.verify(archive) == []


@pytest.mark.parametrize(
    "trigger",
    [
        "create trigger t before insert on pgmq.a_jobs for each row execute function theirs.theirs()",
        "create trigger t before insert on pgmq.a_jobs for each statement execute function theirs.theirs()",
        (
            "create constraint trigger t after insert on pgmq.a_jobs initially deferred"
            " for each row execute function theirs.theirs()"
        ),
        (
            "create trigger t before insert on pgmq.a_jobs for each row when (theirs.asks())"
            " execute function public.ours()"
        ),
        "create trigger t before insert on pgmq.a_jobs for each row execute function public.ours('x')",
    ],
)
def test_archiving_with_a_trigger_of_another_role_is_refused(archive: Connection, trigger: str) -> None:
    as_role(
        archive,
        f"create function theirs.theirs() {FIRES};"
        f" create function theirs.asks() returns boolean language sql as 'select true'; {trigger}",
    )
    refused = pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"trigger t on pgmq\.a_jobs")
    with refused as caught, archive.transaction():
        rows(archive, ARCHIVE)
    assert (caught.value.diag.message_hint or "").startswith("Drop it.")
    [difference] = [difference for difference in schema.verify(archive) if difference.problem != "privilege"]
    assert (difference.kind, difference.name, difference.problem) == ("trigger", "t on pgmq.a_jobs", "code")
    finding = one(archive, "select finding from spanmq.doctor() where check_name = 'rights'")
    assert "trigger t on pgmq.a_jobs" in finding
    archive.execute("drop trigger t on pgmq.a_jobs")
    assert one(archive, ARCHIVE) is True


ARCHIVES = {
    "a fresh message": ARCHIVE,
    "one that was read": "select pgmq.archive('jobs', (select msg_id from pgmq.read('jobs', 30, 1)))",
    "one of several that were read": "select pgmq.archive('jobs', (select max(msg_id) from pgmq.read('jobs', 9, 3)))",
    "several": "select pgmq.archive('jobs', array(select msg_id from pgmq.read('jobs', 30, 3)))",
    "an ack": "select a.* from spanmq.receive('jobs', 3) m, spanmq.ack('jobs', m.lease_id, array[m.msg_id]) a",
    "an ack with results": (
        "select a.* from spanmq.receive('jobs') m,"
        " spanmq.ack_with_results('jobs', m.lease_id, array[m.msg_id], array['1']::jsonb[], 60) a"
    ),
}


@pytest.mark.parametrize("statement", ARCHIVES.values(), ids=list(ARCHIVES))
def test_no_way_into_the_archive_fires_a_trigger_of_another_role(archive: Connection, statement: str) -> None:
    archive.execute("select spanmq.set_policy('jobs', '{\"archive_on_ack\": true}')")
    archive.execute("select pgmq.send('jobs', to_jsonb(i)) from generate_series(1, 5) i")
    as_role(
        archive,
        f"create function theirs.theirs() {FIRES}; create trigger t before insert on pgmq.a_jobs"
        " for each row execute function theirs.theirs()",
    )
    assert sqlstate_of(archive, statement) == "42501"
    archive.execute("drop trigger t on pgmq.a_jobs")
    rows(archive, statement)
    assert one(archive, "select count(*) from pgmq.a_jobs") > 0


def test_owner_s_trigger_with_arguments_fires_if_no_other_role_may_execute_it(archive: Connection) -> None:
    archive.execute("revoke execute on function public.ours() from public")
    archive.execute(
        "create trigger t before insert on pgmq.a_jobs for each row execute function public.ours('x')"
    )
    assert one(archive, ARCHIVE) is True


def test_trigger_on_a_partition_of_an_archive_is_refused(archive: Connection) -> None:
    archive.execute(
        b"alter table pgmq.a_jobs rename to a_old; create table pgmq.a_jobs (like pgmq.a_old including defaults)"
        b" partition by range (msg_id)"
    )
    archive.execute("create table pgmq.a_jobs_all partition of pgmq.a_jobs default")
    archive.execute(f"grant trigger on pgmq.a_jobs_all to {ROLE}".encode())
    assert one(archive, ARCHIVE) is True
    as_role(
        archive,
        f"create function theirs.theirs() {FIRES};"
        " create trigger t before insert on pgmq.a_jobs_all for each row execute function theirs.theirs()",
    )
    assert sqlstate_of(archive, ARCHIVE) == "42501"
    archive.execute("select spanmq.maintain()")
    assert one(archive, "select has_table_privilege(%s, 'pgmq.a_jobs_all', 'trigger')", ROLE) is False


def test_foreign_key_of_another_role_keeps_no_queue(archive: Connection) -> None:
    rows(archive, ARCHIVE)
    as_role(
        archive,
        "create table theirs.kept (id bigint references pgmq.a_jobs); insert into theirs.kept values (1)",
    )
    archive.execute("select pgmq.convert_archive_partitioned('jobs', '1', '1'), pgmq.send('jobs', '1')")
    assert one(archive, ARCHIVE) is True
    warnings: list[str] = []
    archive.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
    archive.execute("set local client_min_messages = warning; select spanmq.maintain()")
    assert ["foreign key" in text for text in warnings] == [True]
    # The rest of maintenance goes on.
    assert one(archive, "select count(*) from spanmq_core.upkeep where trouble is not null") == 0
    assert one(archive, "select count(*) from pgmq.a_jobs") == 2
    assert one(archive, "select pgmq.drop_queue('jobs')") is True
    assert column(archive, "select id from theirs.kept") == [1]


def test_trigger_made_while_a_message_is_archived_waits(database: str) -> None:
    """The check and the insert see the same triggers."""
    with psycopg.connect(database) as archiving, psycopg.connect(database) as making:
        archiving.execute("select pgmq.create('jobs'), pgmq.send('jobs', '1')")
        archiving.commit()
        archiving.execute("select pgmq.archive('jobs', 1)")
        making.execute("set lock_timeout = '50ms'")
        making.execute(f"create function pg_temp.t() {FIRES}".encode())
        with pytest.raises(psycopg.errors.LockNotAvailable):
            making.execute(
                "create trigger t before insert on pgmq.a_jobs for each row execute function pg_temp.t()"
            )


def test_old_snapshot_archives_only_where_no_trigger_can_be_new(database: str) -> None:
    with (
        psycopg.connect(database, autocommit=True) as owner,
        own_role(owner) as role,
        psycopg.connect(database) as old,
    ):
        owner.execute("select pgmq.create('jobs'), pgmq.send('jobs', '1'), pgmq.send('jobs', '1')")
        old.execute("set transaction isolation level repeatable read")
        assert one(old, "select pgmq.archive('jobs', 1)") is True
        old.rollback()
        old.execute("set transaction isolation level repeatable read")
        old.execute("select 1")
        owner.execute(f"grant trigger on pgmq.a_jobs to {role}".encode())
        owner.execute(f"grant create on database {owner.info.dbname} to {role}".encode())
        with pytest.raises(psycopg.DatabaseError, match="needs READ COMMITTED") as caught:
            old.execute("select pgmq.archive('jobs', 2)")
        assert caught.value.sqlstate == "MQ003"
        old.rollback()


def test_open_change_of_an_archive_keeps_no_other_privilege(database: str) -> None:
    with (
        psycopg.connect(database, autocommit=True) as owner,
        own_role(owner) as role,
        psycopg.connect(database) as theirs,
    ):
        owner.execute(f"grant create, temporary on database {owner.info.dbname} to {role}".encode())
        owner.execute("select pgmq.create('jobs'), pgmq.create('others')")
        owner.execute(f"grant trigger on pgmq.a_jobs, pgmq.a_others, pgmq.meta to {role}".encode())
        theirs.execute(f"set role {role}; create schema theirs; create function theirs.t() {FIRES}".encode())
        theirs.execute(
            "create trigger t before insert on pgmq.a_jobs for each row execute function theirs.t()"
        )
        owner.execute("select spanmq.maintain()")
        held = (
            "select r from unnest('{a_jobs,a_others,meta}'::text[]) r"
            " where has_table_privilege(%s, 'pgmq.' || r, 'trigger')"
        )
        assert column(owner, held, role) == ["a_jobs"]
        theirs.rollback()
        owner.execute("select spanmq.maintain()")
        assert column(owner, held, role) == []
