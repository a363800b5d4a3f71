"""By default a message has 25 attempts, over about three weeks. PGMQ's read has no limit."""

from typing import Any

import pytest
from tests.sql.queue import Connection, column
from tests.sql.race.sessions import Race

ATTEMPTS = 25


@pytest.fixture(params=["create", "create_unlogged"])
def jobs(connection: Connection, request: pytest.FixtureRequest) -> Connection:
    connection.execute(f"select pgmq.{request.param}('jobs')".encode())
    return connection


def send(jobs: Connection, n: int) -> list[int]:
    return column(jobs, "select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[%s]))", n)


def fail(jobs: Connection) -> str:
    """Receive the one message, fail it, and return the outcome."""
    query = """select outcome from spanmq.receive('jobs') m,
               spanmq.nack('jobs', m.lease_id, array[m.msg_id], 'it failed', retry_in => 0)"""
    [outcome] = column(jobs, query)
    return str(outcome)


def dead(jobs: Connection) -> list[tuple[Any, ...]]:
    return jobs.execute("select msg_id, attempts, error_class from spanmq.dead_letters('jobs')").fetchall()


def test_message_that_fails_25_times_is_a_dead_letter(jobs: Connection) -> None:
    ids = send(jobs, 1)
    assert [fail(jobs) for _ in range(ATTEMPTS)] == ["retrying"] * (ATTEMPTS - 1) + ["dead"]
    assert dead(jobs) == [(ids[0], ATTEMPTS, None)]


def test_message_whose_lease_runs_out_25_times_is_a_dead_letter(jobs: Connection) -> None:
    ids = send(jobs, 1)
    for attempt in range(ATTEMPTS):
        assert column(jobs, "select attempt from spanmq.receive('jobs', 10, 0)") == [attempt + 1]
    assert column(jobs, "select msg_id from spanmq.receive('jobs', 10, 0)") == []
    assert dead(jobs) == [(ids[0], ATTEMPTS, "LeaseExpired")]


def test_pgmq_reads_without_a_limit(jobs: Connection) -> None:
    ids = send(jobs, 2)
    for attempt in range(ATTEMPTS + 5):
        assert column(jobs, "select read_ct from pgmq.read('jobs', 0, 2)") == [attempt + 1] * 2
        jobs.execute("select spanmq.maintain()")
    assert dead(jobs) == []
    assert column(jobs, "select msg_id from pgmq.pop('jobs', 2)") == ids


def test_policy_can_set_no_limit(jobs: Connection) -> None:
    jobs.execute("""select spanmq.set_policy('jobs', '{"max_attempts": 0}')""")
    assert column(jobs, "select spanmq.get_policy('jobs')->'max_attempts'") == [0]
    ids = send(jobs, 1)
    assert {fail(jobs) for _ in range(ATTEMPTS + 2)} == {"retrying"}
    for _ in range(3):
        assert column(jobs, "select msg_id from spanmq.receive('jobs', 10, 0)") == ids
    assert dead(jobs) == []


def test_25_attempts_take_40_days_at_most(jobs: Connection) -> None:
    # With jitter, a random part of each pause: 20 days in the mean.
    jobs.execute("""select spanmq.set_policy('jobs', '{"jitter": false}')""")
    ids = send(jobs, 1)
    for _ in range(ATTEMPTS - 1):
        jobs.execute(
            "select spanmq.nack('jobs', m.lease_id, array[m.msg_id], 'it failed') from spanmq.receive('jobs') m"
        )
        jobs.execute("select pgmq.set_vt('jobs', %s::bigint, 0)", ids)
    [days] = column(
        jobs,
        "select extract(epoch from sum(retry_at - failed_at))::float / 86400 from spanmq.failures('jobs', %s)",
        *ids,
    )
    assert 40 < days < 40.5
    assert fail(jobs) == "dead"


def test_messages_that_were_taken_with_one_of_the_last_attempt_are_all_delivered(race: Race) -> None:
    # The claim puts them back, and takes that one alone.
    ids = race.send(300)
    race.main.rows("select spanmq.maintain()")
    race.main.rows("select spanmq.maintain()")
    for attempt in range(ATTEMPTS - 2):
        assert race.main.rows("select attempt from spanmq.receive('jobs', 1, 0)") == [(attempt + 1,)]
    received = race.main.column("select msg_id from spanmq.receive('jobs', 200, 600)")
    received += race.main.column("select msg_id from spanmq.receive('jobs', 400, 600)")
    assert sorted(received) == ids
