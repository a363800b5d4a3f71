"""Recurring messages: what is due is sent once, by whoever keeps house."""

import random
from typing import Any

import pytest
from tests.sql.queue import Connection, column, one, rows
from tests.sql.race.sessions import Race, Session, together

from spanmq.client import Client

PLAN = """
    select spanmq.plan_schedule(
        %s, planned_until,
        array(select clock_timestamp() + make_interval(secs => s) from unnest(%s::float8[]) s),
        clock_timestamp() + interval '1 year')
    from spanmq_core.schedule where name = %s
"""
SENT = """
    select message, headers - 'x-spanmq-scheduled-at' from pgmq.q_jobs order by msg_id
"""


def schedule(connection: Connection, more: str = "", name: str = "tick") -> None:
    text = f"select spanmq.schedule(%s, 'jobs', '* * * * *', '{{\"a\": 1}}'{more})"
    connection.execute(text.encode(), [name])


def plan(connection: Connection, *seconds: float, name: str = "tick") -> Any:
    """Plan times, as seconds from now."""
    return one(connection, PLAN, name, list(seconds), name)


def fire(connection: Connection) -> list[Any]:
    return rows(
        connection, "select action, queue, detail from spanmq.maintain(1) where action = 'sent scheduled'"
    )


def sent(connection: Connection) -> list[Any]:
    return rows(connection, SENT)


def left(connection: Connection) -> Any:
    return one(connection, "select count(*) from spanmq_core.schedule_time")


def test_what_is_due_is_sent_once(jobs: Connection) -> None:
    schedule(jobs, ', headers => \'{"x-pgmq-group": "g"}\'')
    assert plan(jobs, -1, 3600) is True
    assert fire(jobs) == [("sent scheduled", "jobs", "tick")]
    assert fire(jobs) == []
    assert sent(jobs) == [({"a": 1}, {"x-pgmq-group": "g", "x-spanmq-schedule": "tick"})]
    assert left(jobs) == 1
    listed = "select last_msg_id, last_at < clock_timestamp(), next_at > last_at from spanmq.list_schedules()"
    assert rows(jobs, listed) == [(1, True, True)]


def test_message_names_the_time_that_it_is_for(jobs: Connection) -> None:
    schedule(jobs)
    plan(jobs, -3600)
    fire(jobs)
    assert one(
        jobs,
        "select clock_timestamp() - s.last_at between interval '59 minutes' and interval '61 minutes'"
        " and (q.headers->>'x-spanmq-scheduled-at')::timestamptz = s.last_at"
        " from pgmq.q_jobs q, spanmq.list_schedules() s",
    )


def test_missed_times_give_one_message_together(jobs: Connection) -> None:
    schedule(jobs)
    plan(jobs, -300, -200, -100, 3600)
    assert fire(jobs) == [("sent scheduled", "jobs", "tick, 2 missed")]
    assert len(sent(jobs)) == 1
    assert left(jobs) == 1


def test_missed_times_give_one_each_where_asked_for(jobs: Connection) -> None:
    schedule(jobs, ", catch_up => true")
    plan(jobs, *(-i for i in range(1, 251)), 3600)
    counts = []
    while fire(jobs):
        counts.append(len(sent(jobs)))
    assert counts == [100, 200, 250]
    at = column(jobs, "select headers->>'x-spanmq-scheduled-at' from pgmq.q_jobs order by msg_id")
    assert at == sorted(at)


def test_schedule_is_run_once_beside_its_times(jobs: Connection) -> None:
    schedule(jobs, ", catch_up => true")
    plan(jobs, 3600)
    jobs.execute("select spanmq.pause_schedule('tick')")
    ran = one(jobs, "select spanmq.run_schedule('tick')")
    assert rows(
        jobs,
        "select msg_id, headers->>'x-spanmq-schedule',"
        " (headers->>'x-spanmq-scheduled-at')::timestamptz between now() - interval '1 hour' and clock_timestamp()"
        " from pgmq.q_jobs",
    ) == [(ran, "tick", True)]
    assert left(jobs) == 1


def test_paused_schedule_lets_its_times_pass(jobs: Connection) -> None:
    schedule(jobs, ", catch_up => true")
    plan(jobs, -5, 3600)
    jobs.execute("select spanmq.pause_schedule('tick')")
    assert fire(jobs) == []
    jobs.execute("select spanmq.resume_schedule('tick')")
    assert fire(jobs) == []
    assert left(jobs) == 1


def test_changed_text_forgets_the_times_and_the_same_keeps_them(jobs: Connection) -> None:
    schedule(jobs)
    plan(jobs, -5, 3600)
    schedule(jobs, ", headers => '{\"b\": 2}'")
    assert left(jobs) == 2
    fire(jobs)
    assert sent(jobs) == [({"a": 1}, {"b": 2, "x-spanmq-schedule": "tick"})]
    schedule(jobs, ", 'Europe/Berlin'")
    assert left(jobs) == 0
    assert one(jobs, "select count(*) from spanmq.list_schedules()") == 1


def test_schedules_want_times_until_they_have_enough(jobs: Connection) -> None:
    upcoming = "select {} from spanmq.upcoming_schedules() where name is {}"
    wanting = upcoming.format("name, plan_from >= planned_until", "not null")
    schedule(jobs)
    assert rows(jobs, wanting) == [("tick", True)]
    plan(jobs, 3600)
    assert rows(jobs, wanting) == []
    assert rows(jobs, upcoming.format("due_in between 3500 and 3600", "null")) == [(True,)]


def test_plan_that_came_too_late_is_ignored(jobs: Connection) -> None:
    schedule(jobs)
    until = one(jobs, "select planned_until from spanmq_core.schedule")
    plan(jobs, 3600)
    late = "select spanmq.plan_schedule('tick', %s, array[now()], now() + interval '2 years')"
    assert one(jobs, late, until) is False
    assert left(jobs) == 1


# With others at the same time.


def prepare(race: Race, *seconds: float, more: str = "", name: str = "tick") -> None:
    schedule(race.main.connection, more, name)
    plan(race.main.connection, *seconds, name=name)


def test_many_schedulers_send_each_time_once(race: Race) -> None:
    for number in range(4):
        prepare(race, *(-i for i in range(1, 121)), more=", catch_up => true", name=f"s{number}")

    def keep(session: Session, chance: random.Random) -> None:
        for _ in range(12):
            session.begin()
            session.rows("select spanmq.maintain(%s)", chance.choice((1, 3)))
            session.end(chance.choice(("commit", "commit", "rollback")))

    together(race, keep)
    while race.main.rows("select from spanmq.maintain() where action = 'sent scheduled'"):
        pass
    text = "select count(*), count(distinct headers) from pgmq.q_jobs"
    assert race.main.rows(text) == [(480, 480)]
    assert left(race.main.connection) == 0


def test_crash_of_a_scheduler_loses_nothing(race: Race) -> None:
    prepare(race, -1)
    one, two = race.begun(), race.open()
    assert fire(one.connection) == [("sent scheduled", "jobs", "tick")]
    # Another does not send it again.
    assert fire(two.connection) == []
    one.drop()
    assert sent(race.main.connection) == []
    assert fire(two.connection) == [("sent scheduled", "jobs", "tick")]
    assert len(sent(race.main.connection)) == 1


def test_who_keeps_house_for_long_does_not_hold_schedules_up(race: Race) -> None:
    one = race.begun()
    one.rows("select spanmq.maintain()")
    prepare(race, -1)
    assert fire(race.main.connection) == [("sent scheduled", "jobs", "tick")]
    one.commit()


def test_changed_schedule_is_passed_over_until_the_change_is_committed(race: Race) -> None:
    prepare(race, -1)
    prepare(race, -1, name="other")
    one = race.begun()
    one.rows("select spanmq.unschedule('tick')")
    assert fire(race.main.connection) == [("sent scheduled", "jobs", "other")]
    one.rollback()
    assert fire(race.main.connection) == [("sent scheduled", "jobs", "tick")]


# On behalf of the role that made it.


@pytest.mark.parametrize(
    "loss",
    [
        "select spanmq.revoke_queue('spanmq_test_maker', 'jobs', 'send')",
        "drop owned by spanmq_test_maker; drop role spanmq_test_maker",
    ],
)
def test_schedule_is_paused_when_its_role_may_no_longer_send(jobs: Connection, loss: str) -> None:
    jobs.execute(
        "create role spanmq_test_maker; select spanmq.grant_queue('spanmq_test_maker', 'jobs', 'send');"
        " set role spanmq_test_maker"
    )
    schedule(jobs)
    jobs.execute("reset role")
    plan(jobs, -1)
    assert fire(jobs) == [("sent scheduled", "jobs", "tick")]
    schedule(jobs, name="other")
    for name in ("tick", "other"):
        plan(jobs, -1, name=name)
    jobs.execute(loss.encode())
    assert fire(jobs) == []
    assert fire(jobs) == [("sent scheduled", "jobs", "other")]
    listed = "select name, is_paused, made_by <> current_user, pause_reason from spanmq.list_schedules()"
    reason = "role spanmq_test_maker may not send into queue jobs"
    assert rows(jobs, listed) == [
        ("other", False, False, None),
        ("tick", True, True, reason),
    ]
    # A role that may send takes it over.
    schedule(jobs)
    jobs.execute("select spanmq.resume_schedule('tick')")
    plan(jobs, -1)
    assert fire(jobs) == [("sent scheduled", "jobs", "tick")]
    assert ("tick", False, False, None) in rows(jobs, listed)


def test_role_plans_the_schedules_of_the_queues_into_which_it_may_send(jobs: Connection) -> None:
    schedule(jobs, name="another's")
    jobs.execute("select pgmq.create('others'), spanmq.schedule('hidden', 'others', '* * * * *', '1')")
    jobs.execute("create role spanmq_test_maker")
    for verb in ("send", "look"):
        jobs.execute("select spanmq.grant_queue('spanmq_test_maker', 'jobs', %s)", [verb])
    jobs.execute("set local role spanmq_test_maker")
    client = Client(connection=jobs)
    client.schedules.create("tick", "jobs", "* * * * *", 1)
    assert [schedule.name for schedule in client.schedules.list() if schedule.next_at] == [
        "another's",
        "tick",
    ]
    jobs.execute("reset role")
    assert [schedule.name for schedule in client.schedules.list() if not schedule.next_at] == ["hidden"]


def test_message_that_cannot_be_sent_stops_no_other_schedule(jobs: Connection) -> None:
    jobs.execute("select pgmq.create('broken')")
    jobs.execute("select spanmq.schedule('a', 'broken', '* * * * *', '1')")
    schedule(jobs)
    for name in ("a", "tick"):
        plan(jobs, -1, name=name)
    jobs.execute("select setval('pgmq.q_broken_msg_id_seq', 9223372036854775807)")
    assert fire(jobs) == [("sent scheduled", "jobs", "tick")]
