"""A message's story goes on over its deaths; its group waits for it where the policy says so."""

from typing import Any

import psycopg
import pytest
from tests.schemas import qualified
from tests.sql.queue import Connection, column, one


def settle(connection: Connection, verb: str, **more: Any) -> str:
    """Receive the one message and settle it."""
    receive = "select lease_id, msg_id from spanmq.receive('jobs', 1)"
    lease, id_ = connection.execute(receive.encode()).fetchone() or (0, 0)
    arguments = {"queue": "jobs", "lease_id": lease, "msg_ids": [id_]} | more
    call = ", ".join(f"{name} => %({name})s" for name in arguments)
    [(outcome,)] = connection.execute(f"select outcome from {qualified(verb)}({call})".encode(), arguments)
    return str(outcome)


def test_story_is_told_over_all_deaths(jobs: Connection) -> None:
    id_ = one(jobs, "select pgmq.send('jobs', '1')")
    assert settle(jobs, "nack", error="one", category="UNKNOWN", retry_in=0.0) == "retrying"
    assert settle(jobs, "reject", error="two", category="BUSINESS") == "dead"
    assert one(jobs, "select spanmq.state('jobs', %s)", id_) == "dead"
    assert column(jobs, "select msg_id from spanmq.redrive('jobs', delay => 60)") == [id_]
    assert one(jobs, "select spanmq.state('jobs', %s)", id_) == "delayed"
    one(jobs, "select pgmq.set_vt('jobs', %s, 0)", id_)
    assert one(jobs, "select spanmq.state('jobs', %s)", id_) == "pending"
    assert settle(jobs, "nack", error="three", category="UNKNOWN", retry_in=0.0) == "retrying"
    story = "select outcome, attempt, error from spanmq.failures('jobs', %s)"
    so_far = [("retrying", 1, "one"), ("dead", 2, "two"), ("retrying", 1, "three")]
    assert jobs.execute(story, [id_]).fetchall() == so_far
    assert settle(jobs, "reject", error="four") == "dead"
    assert jobs.execute(story, [id_]).fetchall() == [*so_far, ("dead", 2, "four")]
    letters = jobs.execute(
        "select attempts, error, redriven_at is null, jsonb_array_length(history)"
        " from spanmq.dead_letters('jobs', redriven => null)"
    ).fetchall()
    assert [letter[:3] for letter in letters] == [(2, "two", False), (2, "four", True)]
    column(jobs, "select msg_id from spanmq.redrive('jobs', delay => 0)")
    assert jobs.execute("select outcome from spanmq.failures('jobs', %s)", [id_]).fetchall()[-1] == ("dead",)
    assert settle(jobs, "ack") == "acked"
    assert one(jobs, "select spanmq.state('jobs', %s)", id_) == "completed"


def test_message_that_has_failed_without_end_can_die(jobs: Connection) -> None:
    """With all failures, its history could be larger than a value may be: no receive would get past it."""
    id_ = one(jobs, "select pgmq.send('jobs', '1')")
    one(jobs, "select spanmq.set_policy('jobs', '{\"max_attempts\": 0}')")
    jobs.execute(
        "do $$ begin for i in 1 .. 502 loop"
        " perform n from spanmq.receive('jobs') r"
        " cross join lateral spanmq.nack('jobs', r.lease_id, array[r.msg_id], i::text, 'TRANSIENT', 0) n;"
        " end loop; end $$"
    )
    assert settle(jobs, "reject", error="the last") == "dead"
    letter = jobs.execute(
        "select jsonb_array_length(history), history -> 0 ->> 'error', history -> -1 ->> 'error',"
        " attempts, first_failed_at < (history -> 0 ->> 'failed_at')::timestamptz"
        " from spanmq.dead_letters('jobs')"
    ).fetchone()
    assert letter == (500, "3", "502", 503, True)
    assert jobs.execute("select count(*) from spanmq.failures('jobs', %s)", [id_]).fetchone() == (501,)


def test_rules_and_category_policies_decide_what_a_nack_does(jobs: Connection) -> None:
    jobs.execute("select pgmq.send_batch('jobs', array['1', '2', '3', '4']::jsonb[])")
    assert settle(jobs, "nack", error="invalid date") == "dead"
    jobs.execute("select spanmq.set_category_policy('jobs', 'PERMANENT', '{\"retries\": true}')")
    assert settle(jobs, "nack", error="invalid date", retry_in=60.0) == "retrying"
    jobs.execute("select spanmq.set_category_rule('mine', 'BUSINESS', error => 'boom', queue => 'jobs')")
    assert settle(jobs, "nack", error="boom") == "dead"
    jobs.execute("select spanmq.set_category_policy('jobs', 'TRANSIENT', '{\"max_attempts\": 1}')")
    assert settle(jobs, "nack", error="timeout") == "dead"


def policies(connection: Connection, queue: str | None = None) -> dict[str, tuple[Any, ...]]:
    rows = connection.execute("select * from spanmq.list_category_policies(%s)", [queue]).fetchall()
    return {row[0]: row[1:] for row in rows}


def test_category_policy_of_a_queue_goes_before_the_general_one(jobs: Connection) -> None:
    general = policies(jobs)
    assert [(name, row[0]) for name, row in general.items()] == [
        ("TRANSIENT", True),
        ("DEPENDENCY", True),
        ("PERMANENT", False),
        ("BUSINESS", False),
        ("UNKNOWN", True),
    ]
    assert policies(jobs, "jobs") == general
    set_ = "select spanmq.set_category_policy(%s, %s, %s::jsonb)"
    changed = one(jobs, set_, "jobs", "DEPENDENCY", '{"backoff_base": 5, "max_attempts": 9}')
    assert changed == {
        "category": "DEPENDENCY",
        "retries": True,
        "max_attempts": 9,
        "backoff_base": 5,
        "backoff_factor": None,
        "backoff_max": None,
    }
    one(jobs, set_, "jobs", "DEPENDENCY", '{"backoff_base": null, "backoff_max": 60}')
    assert policies(jobs, "jobs")["DEPENDENCY"] == (True, 9, None, None, 60, "jobs")
    one(jobs, set_, None, "DEPENDENCY", '{"retries": false}')
    assert policies(jobs, "jobs")["DEPENDENCY"] == (True, 9, None, None, 60, "jobs")
    one(jobs, set_, "jobs", "DEPENDENCY", None)
    assert policies(jobs, "jobs")["DEPENDENCY"] == (False, None, None, None, None, None)
    one(jobs, set_, None, "DEPENDENCY", '{"retries": null}')
    assert policies(jobs) == general


def test_refusal_names_the_setting_of_a_category_its_range_and_the_value(jobs: Connection) -> None:
    for settings, said in (
        (
            '{"retries": true, "max_attempts": 0}',
            "max_attempts must be a whole number from 1 to 1000, got: 0",
        ),
        ('{"backoff_max": "long"}', 'backoff_max must be a number of seconds, 0 or more, got: "long"'),
    ):
        with pytest.raises(psycopg.errors.Error) as error, jobs.transaction():
            jobs.execute("select spanmq.set_category_policy('jobs', 'TRANSIENT', %s::jsonb)", [settings])
        assert error.value.diag.message_primary == said


# Costs.


def touched(connection: Connection, query: str) -> int:
    """Count the rows of dead letters that a query reads."""
    count = (
        "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)"
        " from pg_stat_xact_user_tables where relid = 'spanmq_core.dead_letter'::regclass"
    )
    before = int(one(connection, count))
    connection.execute(query.encode())
    return int(one(connection, count)) - before


def test_what_is_found_costs_what_is_shown(own_connection: Connection) -> None:
    # In a database of its own: what ANALYZE finds out of a table's size stays after a rollback.
    jobs = own_connection
    jobs.execute("select pgmq.create('jobs')")
    jobs.execute(
        "insert into spanmq_core.dead_letter (queue_id, msg_id, message, attempts, enqueued_at, first_failed_at,"
        " last_failed_at, dead_at, category, error, error_class, redriven_at)"
        " select q.queue_id, i, jsonb_build_object('n', i), 1, now(), now(), now(),"
        "  '2030-01-01'::timestamptz + i * interval '1 second',"
        "  case i when 29000 then 'BUSINESS' else 'PERMANENT' end,"
        "  'boom', case i when 29001 then 'Rare' else 'Frequent' end, case when i <= 10000 then now() end"
        " from spanmq_core.queue q, generate_series(1, 30000) i"
    )
    jobs.execute("analyze spanmq_core.dead_letter")
    queries = {
        "": 20,
        "after => 29000": 20,
        "category => 'BUSINESS'": 1,
        "category => 'TRANSIENT'": 0,
        "error_class => 'Rare'": 1,
        "since => '2030-01-01 08:15'": 20,
        "until => '2030-01-01'": 0,
    }
    for more, n in queries.items():
        call = f"spanmq.dead_letters(queue => 'jobs', qty => 20{more and ', ' + more})"
        assert one(jobs, f"select count(*) from {call}") == n, more
        assert touched(jobs, f"select * from {call}") <= 700, more
    ids = one(
        jobs, "select array_agg(dead_letter_id) from spanmq_core.dead_letter where msg_id in (10001, 29000)"
    )
    two = f"select * from spanmq.dead_letters('jobs', dead_letter_ids => '{{{ids[0]},{ids[1]}}}')"
    assert touched(jobs, two) <= 20
    assert touched(jobs, "select * from spanmq.redrive('jobs', qty => 20, dry_run => true)") <= 100
    assert touched(jobs, "select * from spanmq.redrive('jobs', qty => 20)") <= 200
    assert touched(jobs, "select * from spanmq.count_dead_letters('jobs')") == 0
