"""When the next message comes back by itself, for who waits."""

from typing import Any

from tests.sql.queue import Connection, one, rows


def ahead(connection: Connection) -> float | None:
    seconds: float | None = one(connection, "select spanmq.look_ahead('JOBS')")
    return seconds


def send(connection: Connection, delay: float = 0) -> None:
    rows(connection, "select pgmq.send('jobs', '1', clock_timestamp() + make_interval(secs => %s))", delay)


def receive(connection: Connection, lease: float) -> list[tuple[Any, ...]]:
    return rows(connection, "select msg_id, lease_id from spanmq.receive('jobs', 1, %s)", lease)


def test_nothing_is_known_of_an_empty_queue_and_of_what_is_ready(jobs: Connection) -> None:
    assert ahead(jobs) is None
    send(jobs)
    assert ahead(jobs) is None


def test_the_first_of_delay_backoff_and_lease_is_told(jobs: Connection) -> None:
    send(jobs)
    [(message, lease)] = receive(jobs, 900)
    assert 800 < (ahead(jobs) or 0) <= 900
    send(jobs, 700)
    assert 600 < (ahead(jobs) or 0) <= 700
    jobs.execute("select spanmq.nack('jobs', %s, %s, retry_in => 500)", [lease, [message]])
    assert 400 < (ahead(jobs) or 0) <= 500


def test_what_came_back_before_is_passed_over(jobs: Connection) -> None:
    send(jobs)
    receive(jobs, -1)
    assert ahead(jobs) is None
    send(jobs, 300)
    assert 200 < (ahead(jobs) or 0) <= 300


def test_rate_limit_tells_when_it_lets_the_next_one_through(jobs: Connection) -> None:
    for _ in range(3):
        send(jobs)
    jobs.execute("""select spanmq.set_policy('jobs', '{"rate_limit": 0.001, "rate_burst": 2}')""")
    assert ahead(jobs) is None
    assert len(receive(jobs, 9000)) == 1
    assert 8900 < (ahead(jobs) or 0) <= 9000
    assert len(receive(jobs, 9000)) == 1
    assert 900 < (ahead(jobs) or 0) <= 1000
    assert receive(jobs, 9000) == []
    send(jobs, 500)
    assert 400 < (ahead(jobs) or 0) <= 500


def test_many_are_asked_for_at_once_and_of_what_is_gone_nothing_is_known(jobs: Connection) -> None:
    jobs.execute("select pgmq.create('others'), pgmq.create('hidden')")
    send(jobs, 300)
    jobs.execute("select pgmq.send('others', '1', clock_timestamp() + interval '500 s')")
    jobs.execute("create role looker")
    for queue in ("jobs", "others"):
        jobs.execute("select spanmq.grant_queue('looker', %s, 'receive')", [queue])
    text = "select spanmq.look_ahead(array['others', 'nothing', 'JOBS', 'hidden', '', null])"
    jobs.execute("set role looker")
    others, nothing, mine, *rest = one(jobs, text)
    jobs.execute("reset role")
    assert 400 < others <= 500
    assert 200 < mine <= 300
    assert [nothing, *rest] == [None] * 4
