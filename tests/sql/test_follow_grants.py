"""Table grants as verbs: what programs written for PGMQ grant to their roles is enough here, and nothing is wider."""

import psycopg
import pytest
from tests.sql import rights
from tests.sql.queue import Connection, column, one, rows, sqlstate_of

from spanmq import schema

ROLE = "spanmq_test_follower"
OTHER = "spanmq_test_follower_2"
FOLLOW = "select * from spanmq.follow_table_grants()"
ALL_OF_IT = "select, insert, update, delete, truncate"


@pytest.fixture
def following(jobs: Connection) -> Connection:
    """A queue `jobs` whose table grants are followed, and two roles without any."""
    jobs.execute(f"create role {ROLE}; create role {OTHER}; {FOLLOW}".encode())
    return jobs


def verbs(connection: Connection, role: str = ROLE, queue: str = "jobs") -> list[str]:
    query = "select verb from spanmq.list_grants(%s) where role = %s"
    return column(connection, query, queue, role)


def grant(connection: Connection, privileges: str, relation: str, role: str = ROLE) -> None:
    connection.execute(f"grant {privileges} on pgmq.{relation} to {role}".encode())


def revoke(connection: Connection, privileges: str, relation: str, role: str = ROLE) -> None:
    connection.execute(f"revoke {privileges} on pgmq.{relation} from {role}".encode())


def maintain(connection: Connection) -> list[str]:
    """Run maintenance to its end, and return the acts of following."""
    acts = []
    while found := rows(connection, "select action, queue from spanmq.maintain()"):
        acts += [f"{action} {queue}" for action, queue in found if "follow" in action]
    return acts


@pytest.mark.parametrize(
    ("on_queue", "on_archive", "followed"),
    [
        ("insert", None, ["send"]),
        ("select", None, []),
        ("select", "select", ["look"]),
        # Of columns alone it does not count.
        ("insert (message), select, update (vt), delete", "select, insert", ["look"]),
        ("update, delete", "select, insert", []),
        ("select, update, delete", "select", ["look"]),
        ("select, update, delete", "select, insert", ["receive"]),
        ("select, insert, update, delete", "select, insert, update, delete", ["send", "receive"]),
        (ALL_OF_IT, None, ["send"]),
        (ALL_OF_IT, ALL_OF_IT, ["manage"]),
        ("all", "all", ["manage"]),
    ],
)
def test_privileges_are_verbs_for_all_that_they_cover(
    following: Connection, on_queue: str, on_archive: str | None, followed: list[str]
) -> None:
    grant(following, on_queue, "q_jobs")
    if on_archive:
        grant(following, on_archive, "a_jobs")
    assert verbs(following) == []
    made = rows(following, FOLLOW)
    assert verbs(following) == followed
    included = {each for verb in followed for each in rights.INCLUDED.get(verb, {verb})}
    assert {verb for _, role, verb in made if role == ROLE} == included
    following.execute(f"revoke all on pgmq.q_jobs, pgmq.a_jobs from {ROLE}".encode())
    rows(following, FOLLOW)
    assert verbs(following) == []
    assert rows(following, "select from spanmq_core.followed_grant") == []


def test_maintenance_follows_later_grants_and_revocations(following: Connection) -> None:
    grant(following, "insert", "q_jobs")
    assert maintain(following) == ["followed table grants jobs"]
    assert verbs(following) == ["send"]
    assert maintain(following) == []
    grant(following, "select", "q_jobs")
    grant(following, "select", "a_jobs")
    revoke(following, "insert", "q_jobs")
    assert maintain(following) == ["followed table grants jobs"]
    assert verbs(following) == ["look"]


@pytest.mark.parametrize(
    ("privileges", "statement"),
    [
        ("insert", "select pgmq.send('jobs', '1')"),
        ("insert", "select 1 / pgmq.send_topic('jobs', '1')"),
        ("insert", "insert into pgmq.q_jobs (message) values ('1')"),
        (ALL_OF_IT, "select pgmq.send_batch('jobs', array['1']::jsonb[])"),
        (ALL_OF_IT, "select pgmq.delete('jobs', 1)"),
        (ALL_OF_IT, "select count(*) from spanmq.receive('jobs', 1)"),
        (ALL_OF_IT, "select pgmq.metrics('jobs')"),
        (ALL_OF_IT, "select pgmq.purge_queue('jobs')"),
        (ALL_OF_IT, "delete from pgmq.q_jobs"),
        (ALL_OF_IT, "select 1 / count(*) from pgmq.metrics_all()"),
        (ALL_OF_IT, "select 1 / count(*) from pgmq.list_queues()"),
        (ALL_OF_IT, "select 1 / pgmq.drop_queue('jobs')::int"),
    ],
)
def test_later_grant_counts_at_the_next_call(following: Connection, privileges: str, statement: str) -> None:
    rows(following, "select pgmq.bind_topic('#', 'jobs')")
    assert rights.outcome(following, statement, ROLE) != "ok"
    grant(following, privileges, "q_jobs")
    grant(following, privileges, "a_jobs")
    assert rights.outcome(following, statement, ROLE) == "ok"
    # Of nobody else, and of no more than the grant.
    assert rights.outcome(following, statement, OTHER) != "ok"
    expected = "42501" if privileges == "insert" else "ok"
    assert rights.outcome(following, "select pgmq.pop('jobs')", ROLE) == expected


def test_later_grant_does_not_count_where_nothing_can_be_followed(jobs: Connection) -> None:
    send = "select pgmq.send('jobs', '1')"
    jobs.execute(f"create role {ROLE}; grant insert on pgmq.q_jobs to {ROLE}".encode())
    assert rights.outcome(jobs, send, ROLE) == "42501"
    rows(jobs, FOLLOW)
    rows(jobs, "select * from spanmq.follow_table_grants(false)")
    assert rights.outcome(jobs, send, ROLE) == "42501"


def test_default_privileges_count_when_a_queue_is_created(following: Connection) -> None:
    following.execute(
        f"alter default privileges in schema pgmq grant all on tables to {ROLE};"
        f"alter default privileges in schema pgmq grant all on sequences to {ROLE}".encode()
    )
    rows(following, "select pgmq.create('later'), pgmq.create_unlogged('fast')")
    for queue in ("later", "fast"):
        assert verbs(following, queue=queue) == ["manage"]
        may = "select has_table_privilege(%s, r, %s) from unnest(%s::text[]) r"
        for privilege in ("trigger", "references"):
            relations = [f"pgmq.q_{queue}", f"pgmq.a_{queue}"]
            assert column(following, may, ROLE, privilege, relations) == [False] * 2
        may_draw = "select has_sequence_privilege(%s, %s, 'usage, update')"
        assert one(following, may_draw, ROLE, f"pgmq.q_{queue}_msg_id_seq") is False
    assert verbs(following) == []
    assert schema.verify(following) == []


def test_without_following_grants_are_none_of_verbs(jobs: Connection) -> None:
    jobs.execute(f"create role {ROLE}; grant all on all tables in schema pgmq to {ROLE}".encode())
    jobs.execute(f"alter default privileges in schema pgmq grant all on tables to {ROLE}".encode())
    rows(jobs, "select pgmq.create('later')")
    assert maintain(jobs) == []
    assert verbs(jobs) == verbs(jobs, queue="later") == []
    may = "select has_table_privilege(%s, %s, 'insert, update, delete, truncate')"
    assert one(jobs, may, ROLE, "pgmq.q_later") is one(jobs, may, ROLE, "pgmq.a_later") is False


def test_public_has_what_was_granted_to_it_and_never_manages(following: Connection) -> None:
    for relation in ("q_jobs", "a_jobs"):
        grant(following, "all", relation, "public")
    rows(following, FOLLOW)
    assert verbs(following, "public") == ["send", "receive"]
    assert rights.outcome(following, "select pgmq.pop('jobs')", ROLE) == "ok"
    revoke(following, "all", "q_jobs", "public")
    rows(following, FOLLOW)
    assert rights.outcome(following, "select pgmq.pop('jobs')", ROLE) == "42P01"


def test_member_of_a_role_has_its_verbs(following: Connection) -> None:
    grant(following, "insert", "q_jobs", OTHER)
    following.execute(f"grant {OTHER} to {ROLE}; {FOLLOW}".encode())
    assert rights.outcome(following, "select pgmq.send('jobs', '1')", ROLE) == "ok"


def test_privilege_that_another_role_passed_on_does_not_count(following: Connection) -> None:
    grant(following, "insert", "q_jobs", f"{ROLE} with grant option")
    following.execute(f"set local role {ROLE}".encode())
    grant(following, "insert", "q_jobs", OTHER)
    following.execute("reset role")
    rows(following, FOLLOW)
    assert (verbs(following), verbs(following, OTHER)) == (["send"], [])


def test_monitoring_role_looks_at_nothing_by_the_select_of_the_installation(following: Connection) -> None:
    rows(following, FOLLOW)
    assert verbs(following, "pg_monitor") == []


def test_revoked_verb_does_not_come_back_by_table_grants(following: Connection) -> None:
    for relation in ("q_jobs", "a_jobs"):
        grant(following, "all", relation)
    for verb, left in (("send", ["receive"]), ("receive", [])):
        rows(following, FOLLOW)
        assert one(following, "select spanmq.revoke_queue(%s, 'jobs', %s)", ROLE, verb) is True
        assert verbs(following) == left
        maintain(following)
        assert verbs(following) == left


def test_verb_on_all_queues_is_followed_by_none_on_each(following: Connection) -> None:
    rows(following, "select spanmq.grant_all(%s, 'look')", ROLE)
    assert maintain(following) == []
    rows(following, "select spanmq.revoke_all(%s, 'look')", ROLE)
    maintain(following)
    assert verbs(following) == []
    assert rights.outcome(following, "select * from pgmq.q_jobs", ROLE) == "42501"


def test_granted_verb_without_table_grants_stays(following: Connection) -> None:
    rows(following, "select spanmq.grant_queue(%s, 'jobs', 'receive')", ROLE)
    grant(following, "insert", "q_jobs")
    rows(following, FOLLOW)
    assert verbs(following) == ["send", "receive"]
    revoke(following, "insert", "q_jobs")
    maintain(following)
    assert verbs(following) == ["receive"]


def test_end_of_following_revokes_what_came_by_it(following: Connection) -> None:
    grant(following, "insert", "q_jobs")
    rows(following, "select spanmq.grant_queue(%s, 'jobs', 'receive')", OTHER)
    assert rows(following, FOLLOW) == [("jobs", ROLE, "send")]
    assert rows(following, "select * from spanmq.follow_table_grants(false)") == []
    assert (verbs(following), verbs(following, OTHER)) == ([], ["receive"])
    assert maintain(following) == []
    rows(following, FOLLOW)
    rows(following, "select spanmq.grant_queue(%s, 'jobs', 'send')", ROLE)
    rows(following, "select * from spanmq.follow_table_grants(false)")
    assert (verbs(following), verbs(following, OTHER)) == (["send"], ["receive"])
    assert sqlstate_of(following, "select spanmq.follow_table_grants(null)") == "MQ002"


def test_role_and_queue_can_be_dropped(following: Connection) -> None:
    for relation in ("q_jobs", "a_jobs"):
        grant(following, "all", relation)
    rows(following, FOLLOW)
    following.execute(f"drop owned by {ROLE}; drop role {ROLE}".encode())
    assert maintain(following) == ["followed table grants jobs"]
    grant(following, "insert", "q_jobs", OTHER)
    rows(following, FOLLOW)
    rows(following, "select pgmq.drop_queue('jobs')")
    maintain(following)
    assert rows(following, "select from spanmq_core.followed_grant") == []


def test_write_into_the_list_of_topics_is_closed(following: Connection) -> None:
    following.execute(f"grant all on all tables in schema pgmq to {ROLE}".encode())
    maintain(following)
    bind = "insert into pgmq.topic_bindings (pattern, queue_name) values ('#', 'jobs')"
    assert rights.outcome(following, bind, ROLE) == "42501"
    places = (
        "instead of insert on pgmq.topic_bindings",
        "before delete on pgmq.a_jobs",
        "instead of insert on pgmq.q_jobs",
    )
    for at in places:
        trigger = (
            f"create trigger taken {at} for each row execute function suppress_redundant_updates_trigger()"
        )
        assert rights.outcome(following, trigger, ROLE) == "42501"


# The setup that a hosted PostgreSQL with queues behind a REST API makes: wrapper functions in a schema of their own,
# run with the caller's rights, for three roles, of which one has all table privileges, also by default.
ROLES = ("spanmq_test_anon", "spanmq_test_authenticated", "spanmq_test_service")
ANON, AUTHENTICATED, SERVICE = ROLES
API = f"""
create schema queues_api;
grant usage on schema queues_api, pgmq to {", ".join(ROLES)};
create function queues_api.send(queue_name text, message jsonb, sleep_seconds integer default 0)
    returns setof bigint language plpgsql set search_path = '' as $$
begin
    return query select * from pgmq.send(queue_name := queue_name, msg := message, delay := sleep_seconds);
end $$;
create function queues_api.send_batch(queue_name text, messages jsonb[], sleep_seconds integer default 0)
    returns setof bigint language plpgsql set search_path = '' as $$
begin
    return query select * from pgmq.send_batch(queue_name := queue_name, msgs := messages, delay := sleep_seconds);
end $$;
create function queues_api.read(queue_name text, sleep_seconds integer, n integer)
    returns setof pgmq.message_record language plpgsql set search_path = '' as $$
begin
    return query select * from pgmq.read(queue_name := queue_name, vt := sleep_seconds, qty := n);
end $$;
create function queues_api.pop(queue_name text)
    returns setof pgmq.message_record language plpgsql set search_path = '' as $$
begin
    return query select * from pgmq.pop(queue_name := queue_name);
end $$;
create function queues_api.archive(queue_name text, message_id bigint)
    returns boolean language plpgsql set search_path = '' as $$
begin
    return pgmq.archive(queue_name := queue_name, msg_id := message_id);
end $$;
create function queues_api.delete(queue_name text, message_id bigint)
    returns boolean language plpgsql set search_path = '' as $$
begin
    return pgmq.delete(queue_name := queue_name, msg_id := message_id);
end $$;
revoke execute on all functions in schema queues_api from public;
grant execute on all functions in schema queues_api to {", ".join(ROLES)};
grant execute on function pgmq.send(text, jsonb, integer), pgmq.send_batch(text, jsonb[], integer),
    pgmq.read(text, integer, integer, jsonb), pgmq.pop(text, integer), pgmq.archive(text, bigint),
    pgmq.delete(text, bigint)
    to {", ".join(ROLES)};
grant all privileges on all tables in schema pgmq to {SERVICE};
alter default privileges in schema pgmq grant all privileges on tables to {SERVICE};
grant usage, select, update on all sequences in schema pgmq to {", ".join(ROLES)};
alter default privileges in schema pgmq grant usage, select, update on sequences to {", ".join(ROLES)};
"""
# The calls of such an API, each on a message that the one before has left.
CALLS = (
    "queues_api.send('{0}', '1')",
    "queues_api.send_batch('{0}', array['2', '3', '4']::jsonb[])",
    "queues_api.read('{0}', 0, 2)",
    "queues_api.archive('{0}', 1)",
    "queues_api.delete('{0}', 2)",
    "queues_api.pop('{0}')",
)
DIRECT = (
    "pgmq.send('{0}', '1')",
    "pgmq.metrics('{0}')",
    "pgmq.q_{0}",
    "pgmq.a_{0}",
    "pgmq.set_vt('{0}', 5, 0)",
    "pgmq.purge_queue('{0}')",
)


@pytest.fixture
def hosted(jobs: Connection) -> Connection:
    """A queue `jobs` made before the setup, and `later` made after it."""
    jobs.execute("".join(f"create role {each};" for each in ROLES).encode())
    jobs.execute(API.encode())
    rows(jobs, FOLLOW)
    rows(jobs, "select pgmq.create('later')")
    return jobs


def outcomes(connection: Connection, queue: str, role: str, calls: tuple[str, ...]) -> list[str]:
    """Return how calls end for a role, one after the other; a statement that is refused changes nothing."""
    ends = []
    connection.execute(f"set local role {role}".encode())
    for call in calls:
        statement = f"select * from {call.format(queue)}"
        try:
            with connection.transaction():
                rows(connection, statement)
            ends.append("ok")
        except psycopg.Error as error:
            ends.append(error.sqlstate or "")
    connection.execute("reset role")
    return ends


@pytest.mark.parametrize("queue", ["jobs", "later"])
def test_role_with_all_table_privileges_calls_all_of_the_api(hosted: Connection, queue: str) -> None:
    assert outcomes(hosted, queue, SERVICE, CALLS) == ["ok"] * len(CALLS)
    assert outcomes(hosted, queue, SERVICE, DIRECT) == ["ok"] * len(DIRECT)
    assert outcomes(hosted, queue, ANON, CALLS) == ["42P01"] * len(CALLS)


def test_role_calls_what_its_table_privileges_allow(hosted: Connection) -> None:
    grant(hosted, "insert, select", "q_jobs", ANON)
    for relation in ("q_jobs", "a_jobs"):
        grant(hosted, "select, insert, update, delete", relation, AUTHENTICATED)
    maintain(hosted)
    refused = ["42501"] * (len(CALLS) - 2)
    assert outcomes(hosted, "jobs", ANON, CALLS) == ["ok", "ok", *refused]
    assert outcomes(hosted, "jobs", AUTHENTICATED, CALLS) == ["ok"] * len(CALLS)
    assert outcomes(hosted, "jobs", AUTHENTICATED, ("pgmq.purge_queue('{0}')",)) == ["42501"]


def test_end_of_the_api_closes_the_queues(hosted: Connection) -> None:
    hosted.execute(f"revoke all on all tables in schema pgmq from {SERVICE}".encode())
    maintain(hosted)
    closed = ["42P01"] * 8 + ["42501"] * 2 + ["42P01"] * 2
    for queue in ("jobs", "later"):
        assert outcomes(hosted, queue, SERVICE, CALLS + DIRECT) == closed
