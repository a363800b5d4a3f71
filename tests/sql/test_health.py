"""health(), statistics() and doctor() tell what is, at a price that does not grow with messages."""

import re
from typing import Any, LiteralString

import psycopg
import pytest
from tests.patience import wait_until
from tests.sql.queue import Connection, change_state, one, rows
from tests.sql.race.sessions import Race

from spanmq import schema
from spanmq.client import Client


def health(connection: Connection, queue: str = "jobs") -> dict[str, Any]:
    return dict(one(connection, "select to_jsonb(h) from spanmq.health() h where queue = %s", queue))


def finding(connection: Connection, check: str, arguments: str = "") -> tuple[Any, ...]:
    doctor = f"select level, finding from spanmq.doctor({arguments}) where check_name = %s"
    [row] = rows(connection, doctor, check)
    return row


def test_messages_are_counted_by_state(jobs: Connection) -> None:
    assert health(jobs)["backlog"] == 0
    assert health(jobs)["oldest_ready_seconds"] is None
    jobs.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[100]))")
    jobs.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[7]), 3600)")
    # 30 leased in two leases, of which 3 left one by one; 5 whose lease ran out; 4 hidden after a delivery.
    jobs.execute("select spanmq.receive('jobs', 5, 0)")
    expired = jobs.execute("select count(*) from spanmq.receive('jobs', 20, 600)").fetchone()
    jobs.execute("select spanmq.receive('jobs', 10, 600)")
    assert expired == (20,)
    jobs.execute("select pgmq.delete('jobs', array[7, 9, 11])")
    jobs.execute("select pgmq.set_vt('jobs', array[25, 26, 27, 28], 3600)")
    numbers = health(jobs)
    expected = {"backlog": 104, "visible": 70, "in_flight": 23, "delayed": 7, "failed": 4, "receivers": 2}
    assert {name: numbers[name] for name in expected} == expected
    assert 0 <= numbers["oldest_lease_seconds"] < 600
    assert 0 <= numbers["oldest_ready_seconds"] < 600
    query = "select queue_length, queue_visible_length from pgmq.metrics('jobs')"
    assert jobs.execute(query).fetchone() == (numbers["backlog"], numbers["visible"])


def test_lease_that_ran_out_is_visible_since_then(jobs: Connection) -> None:
    jobs.execute("select pgmq.send('jobs', '1')")
    jobs.execute("select spanmq.receive('jobs', 1, 600)")
    change_state(jobs, "vt = now() - interval '100 s'")
    numbers = health(jobs)
    assert (numbers["visible"], numbers["in_flight"], numbers["receivers"]) == (1, 0, 0)
    assert 99 < numbers["oldest_ready_seconds"] < 700


def test_dead_letters_are_counted(jobs: Connection) -> None:
    jobs.execute("select pgmq.create('others')")
    jobs.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[10]))")
    leases = jobs.execute("select msg_id, lease_id from spanmq.receive('jobs', 10)").fetchall()
    ids = [row[0] for row in leases]
    jobs.execute("select spanmq.reject('jobs', %s, %s::bigint[])", [leases[0][1], ids[:4]])
    jobs.execute("select spanmq.nack('jobs', %s, %s::bigint[], retry_in => 60)", [leases[0][1], ids[4:6]])
    jobs.execute("update spanmq_core.dead_letter set dead_at = now() - interval '1 hour' where msg_id = 1")
    numbers = health(jobs)
    names = ("backlog", "dead", "dead_per_minute", "failed", "in_flight")
    assert [numbers[name] for name in names] == [6, 4, 3, 2, 4]
    assert health(jobs, "others")["dead"] == 0


def test_health_reads_no_body_whatever_waits(own_connection: Connection) -> None:
    own_connection.execute("select pgmq.create('jobs')")
    own_connection.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[300]))")
    few = pages_touched(own_connection, "select * from spanmq.health()")
    own_connection.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[25600]))")
    many = pages_touched(own_connection, "select * from spanmq.health()")
    # The rows of their state, and not the hundred pages of their messages.
    assert 0 < logs(many) < logs(few) + 10, (few, many)
    assert logs(pages_touched(own_connection, "select count(message) from pgmq.q_jobs")) > 100


def pages_touched(connection: Connection, query: LiteralString) -> dict[str, int]:
    """Return how many pages of each relation of ours a query looks at: those of catalogues depend on others."""
    pages = """
        select c.relname, pg_stat_get_xact_blocks_fetched(c.oid) from pg_class c
        where c.relnamespace in ('spanmq_core'::regnamespace, 'pgmq'::regnamespace)
    """
    before = dict(connection.execute(pages).fetchall())
    connection.execute(query)
    after = dict(connection.execute(pages).fetchall())
    return {name: n - before[name] for name, n in after.items() if n > before[name]}


def logs(pages: dict[str, int]) -> int:
    """Return how many of them are of messages."""
    return sum(n for name, n in pages.items() if name.startswith("log_"))


def test_waiting_sessions_and_old_snapshots_are_seen(race: Race) -> None:
    race.send(4)
    race.main.rows("select pgmq.create('others')")
    one, two, three = race.begun(), race.open(), race.open()
    one.rows("lock table pgmq.a_jobs in access exclusive mode")
    archives = two.waiting("select pgmq.archive('jobs', 1::bigint), pgmq.archive('jobs', 256::bigint)")
    deletes = three.waiting("select pgmq.delete('jobs', array[256]::bigint[])")
    assert health(race.main.connection)["waiting_sessions"] == 2
    assert health(race.main.connection, "others")["waiting_sessions"] == 1
    age = "select extract(epoch from clock_timestamp() - xact_start) from pg_stat_activity where pid = %s"
    # Those of all databases count, and another test's may be older.
    held = one.value(age, one.pid)
    assert health(race.main.connection)["oldest_snapshot_seconds"] >= held > 0
    one.rollback()
    archives.rows()
    deletes.rows()
    assert health(race.main.connection)["waiting_sessions"] == 0


# Statistics


def sample(connection: Connection, queue: str = "jobs") -> list[Any]:
    """Let a minute be over since the last sample, and take one; give all samples."""
    connection.execute("update spanmq_core.sample set sampled_at = sampled_at - interval '61 s'")
    connection.execute("select * from spanmq.maintain(100)")
    return connection.execute(
        "select sent, received, settled, failed, dead, backlog, in_flight from spanmq.statistics(%s)", [queue]
    ).fetchall()


def test_maintain_keeps_statistics(jobs: Connection) -> None:
    jobs.execute("select pgmq.create('idle')")
    jobs.execute("select * from spanmq.maintain(100)")
    assert sample(jobs) == []
    jobs.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[10]))")
    assert sample(jobs) == [(10, 0, 0, 0, 0, 10, 0)]
    leases = jobs.execute("select msg_id, lease_id from spanmq.receive('jobs', 6)").fetchall()
    ids, lease = [row[0] for row in leases], leases[0][1]
    jobs.execute("select spanmq.ack('jobs', %s, %s::bigint[])", [lease, ids[:3]])
    jobs.execute("select spanmq.reject('jobs', %s, %s::bigint[])", [lease, ids[3:4]])
    jobs.execute("select spanmq.nack('jobs', %s, %s::bigint[], retry_in => 60)", [lease, ids[4:5]])
    # In this one transaction now() stands still, and the failures are older than the sample before.
    jobs.execute("update spanmq_core.sample set sampled_at = sampled_at - interval '1 s'")
    assert sample(jobs)[1:] == [(0, 6, 3, 2, 1, 6, 1)]
    # Within a minute nothing is sampled; an empty, idle queue has no rows.
    jobs.execute("select * from spanmq.maintain(100)")
    assert len(sample(jobs)) == 3
    assert jobs.execute("select * from spanmq.statistics('idle')").fetchall() == []
    assert jobs.execute("select * from spanmq.statistics('jobs', 1e-6)").fetchall() == []


def test_statistics_are_kept_for_three_days(jobs: Connection) -> None:
    jobs.execute("select pgmq.send('jobs', '1')")
    jobs.execute("select * from spanmq.maintain(100)")
    jobs.execute(
        "insert into spanmq_core.statistics"
        " select q.queue_id, now() - h * interval '1 hour', 60, 0, 0, 0, 0, 0, 0, 0, 0"
        " from spanmq_core.queue q, generate_series(1, 1100) h"
    )
    sample(jobs)
    kept = "select count(*), max(now() - sampled_at) < interval '3 days' from spanmq_core.statistics"
    assert jobs.execute(kept).fetchone() == (1101 - 1000, False)
    sample(jobs)
    assert jobs.execute(kept).fetchone() == (71 + 2, True)


def test_clock_that_was_set_back_does_not_end_the_statistics(jobs: Connection) -> None:
    jobs.execute("select pgmq.send('jobs', '1')")
    jobs.execute("select * from spanmq.maintain(100)")
    jobs.execute("update spanmq_core.sample set sampled_at = sampled_at + interval '1 day'")
    jobs.execute("select * from spanmq.maintain(100)")
    assert len(sample(jobs)) == 1


# Doctor


def test_every_finding_has_a_level_and_every_bad_one_an_advice(connection: Connection) -> None:
    checks = rows(connection, "select * from spanmq.doctor(clock_timestamp(), 1)")
    assert len({check for check, _, _, _ in checks}) == len(checks) == 28
    assert all(words for _, _, words, _ in checks)
    assert all((advice is None) == (level == "ok") for _, level, _, advice in checks)
    assert {level for _, level, _, _ in checks} <= {"ok", "warning", "problem"}


# What makes a check find something, how its words end then, and what makes it ok again; without it, an upgrade does.
FINDINGS = {
    "table grants": (
        "grant insert on pgmq.q_jobs to public",
        "they give no right here: public (send on jobs)",
        "select spanmq.follow_table_grants()",
    ),
    "isolation level": (
        "create role isolated; alter role isolated set default_transaction_isolation = 'serializable'",
        "role isolated has serializable",
        "drop role isolated",
    ),
    "triggers": (
        "create trigger mine after insert on pgmq.q_jobs execute function suppress_redundant_updates_trigger()",
        "no send or receive calls mine on pgmq.q_jobs",
        "drop trigger mine on pgmq.q_jobs",
    ),
    # It is PGMQ's; what is the user's own is left alone.
    "functions": (
        (
            "create function pgmq.mine() returns int language sql as 'select 1'; create or replace function"
            " pgmq.purge_queue(queue_name text) returns bigint language sql as 'select 0::bigint'"
        ),
        "these are not as spanmq made them: pgmq.purge_queue(queue_name text)",
        None,
    ),
    "replica role": (
        "create role replica; alter role replica set session_replication_role = replica",
        "session_replication_role is replica for role replica",
        "drop role replica",
    ),
    "publications": (
        (
            "set local client_min_messages = error; create publication of_pgmq for tables in schema pgmq;"
            " create publication of_archive for table pgmq.a_jobs"
        ),
        " of_pgmq",
        "drop publication of_pgmq",
    ),
    "jit": (
        "set local jit = on; alter function spanmq_call.metrics(text) reset jit",
        "1 function may be compiled at each call",
        "set local jit = off",
    ),
    "deadlock_timeout": ("set local deadlock_timeout = '20ms'", "20ms", "set local deadlock_timeout = '1s'"),
}


@pytest.mark.parametrize("check", FINDINGS)
def test_doctor_names_what_is_wrong(jobs: Connection, check: str) -> None:
    wrong, end, remedy = FINDINGS[check]
    assert finding(jobs, check)[0] == "ok"
    jobs.execute(wrong.encode())
    level, words = finding(jobs, check)
    assert level == ("problem" if check == "functions" else "warning")
    assert words.endswith(end)
    assert finding(jobs, "catalogue")[0] == "ok"
    if remedy is None:
        schema.upgrade(jobs)
    else:
        jobs.execute(remedy.encode())
    assert finding(jobs, check)[0] == "ok"


def test_clock_and_connections_are_compared(connection: Connection) -> None:
    assert finding(connection, "clock") == ("ok", "not compared")
    assert finding(connection, "clock", "clock_timestamp()")[0] == "ok"
    assert finding(connection, "clock", "clock_timestamp() - interval '10 s'")[0] == "warning"
    assert finding(connection, "clock", "clock_timestamp() + interval '1 hour'")[0] == "problem"
    assert finding(connection, "connections", "connections => 1000000")[0] == "problem"
    with pytest.raises(psycopg.Error, match="connections must be at least 1"), connection.transaction():
        finding(connection, "connections", "connections => 0")


def test_settings_are_looked_at(connection: Connection) -> None:
    connection.execute("set local track_counts = off")
    assert finding(connection, "autovacuum")[0] == "problem"
    connection.execute("set local track_counts = on")
    row = connection.execute("select current_setting('autovacuum')").fetchone()
    if row != ("on",):  # the tests' own server runs without
        assert finding(connection, "autovacuum")[0] == "problem"
        return
    assert finding(connection, "autovacuum")[0] == "ok"
    connection.execute("alter table spanmq_core.state set (autovacuum_enabled = false)")
    assert finding(connection, "autovacuum") == (
        "problem",
        "autovacuum is off for the tables with the state of messages",
    )


def test_missing_maintenance_is_found(connection: Connection) -> None:
    assert finding(connection, "maintenance")[0] == "ok"
    connection.execute("select pgmq.create('jobs')")
    assert finding(connection, "maintenance") == ("ok", "maintain() has not run yet")
    connection.execute("update spanmq_core.queue set created_at = now() - interval '1 hour'")
    assert finding(connection, "maintenance")[0] == "problem"
    connection.execute("select * from spanmq.maintain()")
    assert finding(connection, "maintenance")[0] == "ok"


def test_stuck_and_abandoned_leases_are_found(jobs: Connection) -> None:
    jobs.execute("select pgmq.create('others')")
    jobs.execute("select pgmq.send('jobs', '1'), pgmq.send('others', '1')")
    jobs.execute("select spanmq.receive('jobs', 1, 7200)")
    jobs.execute("select spanmq.receive('others', 1, 600)")
    assert finding(jobs, "leases")[0] == "ok"
    change_state(jobs, "last_read_at = last_read_at - interval '61 minutes'")
    level, text = finding(jobs, "leases")
    assert level == "warning"
    assert re.search(r"held for over an hour: jobs \(01:0\d:\d\d", text)
    change_state(jobs, "vt = now() - interval '6 min', last_read_at = now()")
    _, text = finding(jobs, "leases")
    assert "expired, and without a receiver: jobs (1 message), others (1 message)" in text


def test_leaking_functions_and_missing_rows_are_found(connection: Connection) -> None:
    assert finding(connection, "rights")[0] == "ok"
    connection.execute("grant execute on function spanmq_core.purge(int) to public")
    assert finding(connection, "rights") == ("problem", "every role may call spanmq_core.purge(integer)")
    connection.execute("select pgmq.create_unlogged('fast'), pgmq.create('safe')")
    for queue, level in (("fast", "ok"), ("safe", "problem")):  # a crash empties the log of an unlogged queue
        connection.execute(
            "insert into spanmq_core.missing select queue_id, 1 from spanmq_core.queue where name = %s",
            [queue],
        )
        assert finding(connection, "segments")[0] == level


def test_held_snapshot_is_named(race: Race) -> None:
    holder = race.open()
    holder.rows("set application_name = 'report'")
    holder.look()
    ours = f"by process {holder.pid} (report), idle in transaction"
    # Snapshots of all databases count: another test's may be the oldest, as long as that runs.
    wait_until(lambda: ours in finding(race.main.connection, "snapshots")[1])
    assert finding(race.main.connection, "snapshots")[0] == "ok"
    holder.rollback()
    assert ours not in finding(race.main.connection, "snapshots")[1]


def test_doctor_and_statistics_know_queues_where_messages_wait_and_no_worker_is(jobs: Connection) -> None:
    """Reports of workers, and what was received, show that there is one."""
    assert finding(jobs, "workers")[0] == "ok"
    sample(jobs)
    jobs.execute("select pgmq.send('jobs', '1')")
    sample(jobs)
    jobs.execute("update spanmq_core.statistics set oldest_ready_seconds = 400 where visible > 0")
    level, words = finding(jobs, "workers")
    assert level == "warning"
    assert "no worker receives them: jobs (1 message for 00:0" in words
    jobs.execute("select spanmq.report_worker(array['jobs'], 'a', 1, 1)")
    assert finding(jobs, "workers")[0] == "ok"
    assert jobs.execute("select workers from spanmq.latest_statistics()").fetchone() == (1,)


def test_groups_that_wait_for_a_dead_letter_are_counted(jobs: Connection) -> None:
    blocked = "select blocked_groups from spanmq.latest_statistics()"
    client = Client(connection=jobs)
    client.queues.set_policy("jobs", ordered=True, dead_letter_blocks_group=True)
    for group in ("a", "a", "b"):
        client.send("jobs", group, group=group)
    assert one(jobs, blocked) == 0
    client.reject(client.receive("jobs", 10), "no")
    assert one(jobs, blocked) == 2
    client.dead_letters.discard("jobs")
    assert one(jobs, blocked) == 0
