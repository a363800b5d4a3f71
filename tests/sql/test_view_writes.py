"""What statements on the view of a queue do: an insert sends, an update of vt hides, a delete deletes."""

import pytest
from tests.sql.queue import Connection, column, one, rows, sqlstate_of
from tests.sql.race.sessions import Race
from tests.sql.rights import ROLE, give

from spanmq import schema

IDS = "select msg_id from pgmq.q_jobs order by 1"
# How 1,200 messages are before they are changed: sent, leased, visible again, and some of them gone.
STATES = {
    "fresh": "",
    "leased": "select pgmq.read('jobs', 1000, 1200)",
    "visible again": "select pgmq.read('jobs', 0, 1200)",
    "leased one by one": (
        "do $$ begin for i in 1 .. 40 loop perform pgmq.read('jobs', 1000, 1); end loop; end $$"
    ),
    "in part": (
        "select count(*) from pgmq.read('jobs', 1000, 700);"
        " select pgmq.delete('jobs', 5), pgmq.delete('jobs', 300), pgmq.archive('jobs', 301)"
    ),
    "unordered": "select pgmq.set_vt('jobs', i, 1000 - i) from generate_series(1, 500, 7) i",
}
CHANGES = ("true", "msg_id % 3 = 0", "msg_id > 690", "msg_id = 17", "false")


@pytest.fixture(params=STATES)
def jobs_in(request: pytest.FixtureRequest, jobs: Connection) -> Connection:
    """A queue `jobs` with 1,200 messages in one of the states."""
    jobs.execute("select pgmq.purge_queue('jobs'), setval('pgmq.q_jobs_msg_id_seq', 1, false)")
    jobs.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[1200]))")
    if state := STATES[request.param]:
        jobs.execute(state.encode())
    return jobs


def chosen(connection: Connection, ids: list[int], where: str) -> list[int]:
    statement = "select msg_id from unnest(%s::bigint[]) u (msg_id) where"
    return column(connection, f"{statement} {where.replace('%', '%%')} order by 1", ids)


@pytest.mark.parametrize("where", CHANGES)
def test_delete_removes_the_rows_that_it_returns_and_no_other(jobs_in: Connection, where: str) -> None:
    before = column(jobs_in, IDS)
    gone = column(jobs_in, f"delete from pgmq.q_jobs where {where} returning msg_id")
    assert sorted(gone) == chosen(jobs_in, before, where)
    assert column(jobs_in, IDS) == [each for each in before if each not in set(gone)]
    assert one(jobs_in, "select queue_length from pgmq.metrics('jobs')") == len(before) - len(gone)


@pytest.mark.parametrize("where", CHANGES)
def test_update_hides_the_rows_that_it_returns_and_no_other(jobs_in: Connection, where: str) -> None:
    before = dict(rows(jobs_in, "select msg_id, vt from pgmq.q_jobs"))
    at = "timestamptz '2100-01-01 00:00+00'"
    hidden = column(jobs_in, f"update pgmq.q_jobs set vt = {at} where {where} returning msg_id")
    assert sorted(hidden) == chosen(jobs_in, list(before), where)
    after = dict(rows(jobs_in, f"select msg_id, nullif(vt, {at}) from pgmq.q_jobs"))
    assert after == {each: None if each in set(hidden) else vt for each, vt in before.items()}


def test_rows_may_get_times_of_their_own(jobs: Connection) -> None:
    jobs.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[30]))")
    at = "timestamptz '2100-01-01 00:00+00' + (msg_id / 4) * interval '1 hour'"
    jobs.execute(f"update pgmq.q_jobs set vt = {at}".encode())
    assert rows(jobs, f"select msg_id from pgmq.q_jobs where vt <> {at}") == []


def test_insert_sends(jobs: Connection) -> None:
    jobs.execute("select pgmq.purge_queue('jobs')")
    made = rows(
        jobs,
        "insert into pgmq.q_jobs (message, headers, vt) values"
        " ('1', '{\"x-pgmq-group\": \"a\"}', now()), ('2', null, now() + interval '1 hour'), ('3', null, null)"
        " returning msg_id, read_ct, vt > now() + interval '59 minutes', message",
    )
    first = made[0][0]
    assert made == [(first, 0, False, 1), (first + 1, 0, True, 2), (first + 2, 0, False, 3)]
    assert column(jobs, "select msg_id from spanmq.receive('jobs', 9) where group_key = 'a'") == [first]
    jobs.execute("insert into pgmq.q_jobs (message) select to_jsonb(i) from generate_series(1, 30) i")
    assert column(jobs, "select msg_id from pgmq.read('jobs', 0, 99)") == list(range(first + 3, first + 33))


def test_vt_is_a_time(jobs: Connection) -> None:
    jobs.execute("select pgmq.send('jobs', '1')")
    for vt, sqlstate in {"null": "23502", "'infinity'": "MQ002"}.items():
        assert sqlstate_of(jobs, f"update pgmq.q_jobs set vt = {vt}") == sqlstate


def test_statement_within_a_statement_is_complete(jobs: Connection) -> None:
    jobs.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[60]))")
    jobs.execute(
        "create function pg_temp.drop_next(id bigint) returns boolean language plpgsql as $$"
        " begin delete from pgmq.q_jobs where msg_id = id + 1; return found; end $$"
    )
    jobs.execute("delete from pgmq.q_jobs where msg_id % 2 = 0 and pg_temp.drop_next(msg_id)")
    assert set(column(jobs, IDS)) <= {1, 60, 61}
    jobs.execute("with gone as (delete from pgmq.q_jobs returning msg_id) select count(*) from gone")
    assert column(jobs, IDS) == []


# Rights: of the verb, however wide the grants on the view are.


@pytest.mark.parametrize(
    ("statement", "verb"),
    [
        ("delete from pgmq.q_jobs", "receive"),
        ("delete from pgmq.q_jobs where false", "receive"),
        ("update pgmq.q_jobs set vt = now()", "receive"),
        ("insert into pgmq.q_jobs (message) values ('1')", "send"),
    ],
)
def test_writing_through_the_view_needs_the_verb(jobs: Connection, statement: str, verb: str) -> None:
    jobs.execute(f"create role {ROLE}; grant all on pgmq.q_jobs to {ROLE}".encode())
    other = {"send": "receive", "receive": "send"}[verb]
    for held, where in ((None, None), ("look", "jobs"), (other, "jobs"), ("create", "all")):
        with jobs.transaction(force_rollback=True):
            give(jobs, held or "", where)
            jobs.execute(f"set local role {ROLE}".encode())
            assert sqlstate_of(jobs, statement) == "42501"
    for where in ("jobs", "all"):
        with jobs.transaction(force_rollback=True):
            give(jobs, verb, where)
            jobs.execute(f"set local role {ROLE}".encode())
            jobs.execute(statement.encode())


def test_setting_of_a_caller_changes_no_other_queue(jobs: Connection) -> None:
    jobs.execute("select pgmq.create('others'), pgmq.send_batch('others', array['1', '2']::jsonb[])")
    jobs.execute(f"create role {ROLE}; grant select, delete on pgmq.q_jobs to {ROLE}".encode())
    give(jobs, "receive", "jobs")
    numbers = column(jobs, "select queue_id from spanmq_core.queue")
    jobs.execute(f"set local role {ROLE}".encode())
    for number in numbers:
        jobs.execute("select set_config(%s, '({},1,2,2,)', true)", [f"spanmq.view_{number}"])
    jobs.execute("delete from pgmq.q_jobs")
    jobs.execute("reset role")
    assert column(jobs, "select msg_id from pgmq.q_others order by 1") == [1, 2]
    assert schema.verify(jobs) == []


# Beside others: a message is returned to one of them.


def test_message_that_another_deletes_is_not_returned(race: Race) -> None:
    ids = race.send(40)
    delete = "delete from pgmq.q_jobs where msg_id = any (%s) returning msg_id"
    other = race.begun()
    assert other.column(delete, ids[10:20]) == ids[10:20]
    mine = race.open()
    under_way = mine.later("delete from pgmq.q_jobs returning msg_id")
    assert under_way.waits()
    other.commit()
    assert sorted(each for (each,) in under_way.rows()) == ids[:10] + ids[20:]
    assert race.main.column(IDS) == []


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_single_deletes_of_one_lease_do_not_wait(race: Race, end: str) -> None:
    ids = race.send(40)
    race.main.rows("select pgmq.read('jobs', 1000, 40)")
    first, second = race.begun(), race.begun()
    one_of = "delete from pgmq.q_jobs where msg_id = %s returning msg_id"
    assert first.column(one_of, ids[3]) == [ids[3]]
    assert second.column(one_of, ids[4]) == [ids[4]]
    getattr(first, end)()
    second.commit()
    left = set(ids) - {ids[4]} - ({ids[3]} if end == "commit" else set())
    assert race.main.column(IDS) == sorted(left)
    assert race.main.column("delete from pgmq.q_jobs returning msg_id") == sorted(left)
