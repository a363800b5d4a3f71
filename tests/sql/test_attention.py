"""attention() has a row for each reason why an operator should look at a queue, and none for a quiet one."""

from typing import Any

import pytest
from tests.sql.queue import Connection, breaker_report, column, kill, rows

from spanmq.client import Client
from spanmq.model.attention import REASONS, hindrance

REASON = "select reason, level, n, recent, detail from spanmq.attention('{jobs}')"


def sample(jobs: Connection) -> None:
    """Take a sample, as maintain() does once a minute."""
    rows(jobs, "update spanmq_core.sample set sampled_at = sampled_at - interval '61 s'")
    rows(jobs, "select spanmq.maintain()")


def wait_long(jobs: Connection, seconds: int = 301) -> None:
    sample(jobs)
    sample(jobs)
    rows(jobs, "update spanmq_core.statistics set oldest_ready_seconds = %s where visible > 0", seconds)


def test_quiet_queue_needs_none(jobs: Connection) -> None:
    assert rows(jobs, REASON) == []
    rows(jobs, "select spanmq.report_worker(array['jobs'], 'a', 1, 1)")
    rows(jobs, "select pgmq.send('jobs', '1')")
    assert rows(jobs, REASON) == []


def test_messages_without_a_worker_are_a_warning_at_once_and_a_problem_after_five_minutes(
    jobs: Connection,
) -> None:
    rows(jobs, "select pgmq.send('jobs', '1')")
    assert rows(jobs, REASON) == [("no_worker", "warning", 1, None, None)]
    wait_long(jobs)
    assert rows(jobs, REASON) == [("no_worker", "problem", 1, None, None)]


def test_receiver_that_does_not_report_is_a_worker(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send_batch('jobs', '{1,2}')")
    rows(jobs, "select spanmq.receive('jobs', 1)")
    assert rows(jobs, REASON) == []


def test_worker_that_gets_nothing_for_five_minutes_is_a_problem(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send('jobs', '1')")
    wait_long(jobs)
    rows(jobs, "select spanmq.report_worker(array['jobs'], 'a', 1, 1)")
    assert rows(jobs, REASON) == [("stopped", "problem", 1, None, None)]
    wait_long(jobs, 60)
    assert rows(jobs, REASON) == []


def test_wait_of_a_queue_that_delivers_nothing_goes_on_after_the_sample(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send('jobs', '1')")
    wait_long(jobs, 60)
    rows(jobs, "update spanmq_core.statistics set sampled_at = sampled_at - interval '241 s'")
    [(seconds, level)] = rows(jobs, "select seconds, level from spanmq.attention('{jobs}')")
    assert (seconds >= 301, level) == (True, "problem")


def test_open_breaker_has_the_error_of_the_service_and_its_end(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send_batch('jobs', '{1,2,3}')")
    client = Client(connection=jobs)
    for error, category in (("bank is down", "DEPENDENCY"), ("no such card", "UNKNOWN")):
        client.nack(client.receive("jobs", 1), error, category=category, error_class="E", retry_in=600)
    rows(jobs, breaker_report("jobs", 60, "E bank is down"))
    [breaker, failing] = client.health.attention()
    assert (breaker.reason, breaker.level, breaker.n) == ("breaker_open", "problem", 1)
    assert breaker.detail == "E bank is down"
    assert "it tries again in" in breaker.words
    assert (failing.reason, failing.n) == ("failing", 2)


def test_dead_letters_are_a_problem_for_an_hour_and_a_warning_until_they_are_gone(jobs: Connection) -> None:
    ids = column(jobs, "select pgmq.send_batch('jobs', '{1,2,3}')")
    kill(jobs, ids, queue="jobs")
    assert rows(jobs, REASON) == [("dead_letters", "problem", 3, 3, None)]
    rows(jobs, "update spanmq_core.dead_letter set dead_at = dead_at - interval '61 min'")
    assert rows(jobs, REASON) == [("dead_letters", "warning", 3, 0, None)]
    Client(connection=jobs).dead_letters.discard("jobs")
    assert rows(jobs, REASON) == []


def test_paused_queue_needs_attention_only_with_messages(jobs: Connection) -> None:
    rows(jobs, "select spanmq.pause('jobs')")
    assert rows(jobs, REASON) == []
    rows(jobs, "select pgmq.send('jobs', '1')")
    assert rows(jobs, REASON) == [("paused", "warning", 1, None, None)]
    wait_long(jobs)
    assert rows(jobs, REASON) == [("paused", "warning", 1, None, None)]


def test_late_messages_with_a_worker_are_a_warning(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send_batch('jobs', '{1,2}')")
    rows(jobs, "select spanmq.receive('jobs', 1)")
    wait_long(jobs)
    assert rows(jobs, REASON) == [("late", "warning", 1, None, None)]


def test_groups_behind_a_dead_letter_need_attention(jobs: Connection) -> None:
    client = Client(connection=jobs)
    client.queues.set_policy("jobs", ordered=True, dead_letter_blocks_group=True)
    client.send("jobs", 1, group="a")
    client.reject(client.receive("jobs", 1), "no")
    assert [each.reason for each in client.health.attention()] == ["dead_letters", "blocked_groups"]


def test_doctor_names_the_same_queues(jobs: Connection) -> None:
    doctor = "select check_name, level, finding from spanmq.doctor() where check_name in ('delivery', 'dead letters')"
    assert [level for _, level, _ in rows(jobs, doctor)] == ["ok", "ok"]
    ids = column(jobs, "select pgmq.send_batch('jobs', '{1,2,3}')")
    kill(jobs, ids[:2], queue="jobs")
    rows(jobs, breaker_report("jobs"))
    found: dict[str, Any] = {name: (level, finding) for name, level, finding in rows(jobs, doctor)}
    assert found["delivery"] == ("warning", "a circuit breaker is open: jobs (1 message: no route)")
    assert found["dead letters"][1].endswith("jobs (2, of which 2 within the last hour)")
    rows(jobs, breaker_report("jobs", None))
    rows(jobs, "select spanmq.pause('jobs')")
    assert "paused: jobs (1 message)" in rows(jobs, doctor)[0][2]


@pytest.mark.parametrize("queues", [None, ["JOBS"]])
def test_every_reason_has_words_and_what_stops_delivery_is_named(
    jobs: Connection, queues: list[str] | None
) -> None:
    client = Client(connection=jobs)
    rows(jobs, "select pgmq.send_batch('jobs', '{1,2,3}')")
    client.reject(client.receive("jobs", 1), "no")
    client.nack(client.receive("jobs", 1), "no", retry_in=60)
    rows(jobs, "select spanmq.pause('jobs')")
    found = client.health.attention(queues)
    assert {each.reason for each in found} == {"dead_letters", "failing", "paused"} <= REASONS.keys()
    assert [each.rank for each in found] == sorted(each.rank for each in found)
    stop = hindrance(found)
    assert stop is not None
    assert stop.words == "2 messages waiting until it is resumed."
