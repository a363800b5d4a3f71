"""Rate limits of groups: buckets, what messages cost, where the group is, and buckets that a receiver closes."""

import pytest
from tests.sql.queue import Connection, column, one, rows
from tests.sql.test_receiver_limits import change, delete, receive, send

# So slow that no token comes during a test.
SLOW = '"rate_limit_per_group": 0.0001, "rate_burst_per_group"'


def later_by(connection: Connection, seconds: float) -> None:
    """Let that time pass for the buckets."""
    connection.execute("update spanmq_core.bucket set full_ns = full_ns - %s * 1e9", [seconds])
    connection.execute("update spanmq_core.closed_group set until = until - %s * interval '1 s'", [seconds])


def reasons(connection: Connection, message_id: int) -> list[str]:
    codes = column(connection, "select code from spanmq.explain('jobs', %s)", message_id)
    return [code for code in codes if code != "no_worker"]


CALLS = ["receive('jobs', 9)", "read('jobs', 60, 9)", "pop('jobs', 9)", "read_grouped('jobs', 60, 9)"]


@pytest.mark.parametrize("more", ["", ', "ordered": true', ', "max_in_flight_per_group": 3'])
@pytest.mark.parametrize("call", CALLS)
def test_each_group_has_its_tokens_in_every_call(jobs: Connection, call: str, more: str) -> None:
    change(jobs, f"{{{SLOW}: 2{more}}}")
    firsts = [*send(jobs, 3, "'a'")[:2], *send(jobs, 3)[:2], *send(jobs, 1, "'b'")]
    schema = "spanmq" if call.startswith("receive") else "pgmq"
    got: list[int] = []
    while came := column(jobs, f"select msg_id from {schema}.{call}"):
        got += came
        delete(jobs, came)
    assert sorted(got) == firsts
    later_by(jobs, 10_000)
    assert sorted(receive(jobs, 9)) == [3, 6], "a token of each"


def test_messages_of_groups_without_tokens_hide_no_other(jobs: Connection) -> None:
    change(jobs, f"{{{SLOW}: 1}}")
    send(jobs, 2000, "'a'")
    send(jobs, 600, "'g' || i %% 20")
    assert receive(jobs, 1) == [1]
    [last] = send(jobs, 1, "'quiet'")
    got = [message for _ in range(25) for message in receive(jobs, 2)]
    assert last in got
    assert len(got) == 21
    assert receive(jobs, 50) == []


def test_bucket_has_a_row_until_it_is_full_and_goes_with_the_transaction_that_drew(jobs: Connection) -> None:
    change(jobs, '{"rate_limit_per_group": 1, "rate_burst_per_group": 5}')
    send(jobs, 3, "'g' || i")
    with jobs.transaction(force_rollback=True):
        assert len(receive(jobs, 3)) == 3
    assert one(jobs, "select count(*) from spanmq_core.bucket") == 0
    assert len(receive(jobs, 3)) == 3
    assert one(jobs, "select count(*) from spanmq_core.bucket") == 3
    rows(jobs, "select spanmq.maintain()")
    assert one(jobs, "select count(*) from spanmq_core.bucket") == 3, "none is full yet"
    later_by(jobs, 5)
    rows(jobs, "select spanmq.maintain()")
    assert one(jobs, "select count(*) from spanmq_core.bucket") == 0


def test_message_draws_what_it_costs(jobs: Connection) -> None:
    change(jobs, f'{{{SLOW}: 10, "rate_cost": "$.tokens", "group_by": "header:tenant"}}')
    query = (
        "select pgmq.send('jobs', jsonb_build_object('tokens', %s::int), jsonb_build_object('tenant', 'a'))"
    )
    ids = [one(jobs, query, cost) for cost in (0, 4, 4, 40, 1, 1)]
    assert [reasons(jobs, id_) for id_ in ids] == [["visible"]] * 4 + [["in_line"]] * 2
    assert receive(jobs, 2) == ids[:2]
    assert receive(jobs, 9) == ids[2:4], "the last one leaves a debt"
    later_by(jobs, 380_000)
    assert reasons(jobs, ids[4]) == ["group_rate"]
    assert receive(jobs, 9) == []
    later_by(jobs, 10_000)
    assert receive(jobs, 9) == ids[4:5]


@pytest.mark.parametrize(
    ("place", "body", "headers", "group"),
    [
        ("$.tenant.id", '{"tenant": {"id": 7}}', None, "7"),
        ("$.tenant.id", '{"tenant": {"id": {}}}', '{"x-pgmq-group": "a"}', None),
        ("$.tenant", "3", None, None),
        ("header:tenant", "{}", '{"tenant": "x"}', "x"),
        ("header:tenant", '{"tenant": "x"}', None, None),
    ],
)
def test_group_is_where_the_policy_says_however_it_is_sent(
    jobs: Connection, place: str, body: str, headers: str | None, group: str | None
) -> None:
    change(jobs, f'{{"group_by": "{place}"}}')
    arguments = {"body": body, "headers": headers}
    for query in (
        "select pgmq.send('jobs', %(body)s::jsonb, %(headers)s::jsonb)",
        "select pgmq.send('jobs', %(body)s::jsonb, %(headers)s::jsonb, 60)",
        "select pgmq.send_batch('jobs', array[%(body)s]::jsonb[], array[%(headers)s]::jsonb[])",
        "select spanmq.send_messages('jobs', array[%(body)s]::jsonb[], array[%(headers)s]::jsonb[])",
        "insert into pgmq.q_jobs (msg_id, read_ct, message, headers) values (5, 1, %(body)s, %(headers)s)",
        "select spanmq.replay('jobs', 'jobs', msg_ids => '{1}')",
    ):
        jobs.execute(query, arguments)
    if headers is None:
        jobs.execute("select pgmq.send('jobs', %(body)s::jsonb)", arguments)
        jobs.execute("select pgmq.send_batch('jobs', array[%(body)s]::jsonb[])", arguments)
    keys = column(jobs, "select group_key from spanmq_core.unsettled")
    assert keys == [group] * (6 if headers else 8)
    [lease] = column(jobs, "select lease_id from spanmq.receive('jobs', 1)")
    rows(jobs, "select spanmq.reject('jobs', %s, '{1}', 'no')", lease)
    assert one(jobs, "select group_key from spanmq_core.dead_letter") == group


CLOSE = "select outcome from spanmq.close_bucket('jobs', %s, %s::bigint[], %s)"


def test_receiver_closes_the_bucket_of_its_message_for_all(jobs: Connection) -> None:
    change(jobs, '{"rate_limit_per_group": 1000, "rate_burst_per_group": 1000}')
    ids = [*send(jobs, 3, "'a'"), *send(jobs, 2, "'b'")]
    [lease] = column(jobs, "select lease_id from spanmq.receive('jobs', 1)")
    assert column(jobs, CLOSE, lease, [*ids[:2], 99], 600) == ["closed", "stale", "stale"]
    assert column(jobs, CLOSE, lease, ids[:1], 60) == ["closed"], "a later end counts"
    assert reasons(jobs, ids[1]) == ["group_rate"]
    due_in = one(jobs, "select spanmq.look_ahead('jobs')")
    assert 0 < due_in <= 60, "who waits looks when a bucket opens"
    assert receive(jobs, 9, 0) == ids[3:]
    later_by(jobs, 599)
    assert receive(jobs, 9, 0) == ids[3:]
    later_by(jobs, 1)
    assert sorted(receive(jobs, 9, 0)) == ids[1:]
    rows(jobs, "select spanmq.maintain()")
    assert one(jobs, "select count(*) from spanmq_core.closed_group") == 0


def test_receiver_closes_the_bucket_of_a_queue(jobs: Connection) -> None:
    ids = send(jobs, 20)
    [lease] = column(jobs, "select lease_id from spanmq.receive('jobs', 1)")
    assert column(jobs, CLOSE, lease, ids[:1], 60) == ["unlimited"]
    change(jobs, '{"rate_limit": 2, "rate_burst": 5}')
    assert receive(jobs, 1) == ids[1:2]
    assert column(jobs, CLOSE, lease, ids[:1], 60) == ["closed"]
    assert column(jobs, CLOSE, lease, ids[:1], 6) == ["closed"]
    assert reasons(jobs, ids[2]) == ["rate"]
    assert receive(jobs, 1) == []
    due_in = one(jobs, "select spanmq.look_ahead('jobs')")
    assert 6 < due_in <= 60
    bucket = "('spanmq_core.rate_' || queue_id)::regclass"
    passed = (
        f"select setval({bucket}, pg_sequence_last_value({bucket}) - %s) from spanmq_core.queue"
        " where name = 'jobs'"
    )
    jobs.execute(passed, [60_000_000_000])
    assert reasons(jobs, ids[2]) == ["visible"]
    assert receive(jobs, 9) == ids[2:3], "one token, and the next ones with time"
    jobs.execute(passed, [1_000_000_000])
    assert receive(jobs, 9)[:2] == ids[3:5]


def test_groups_get_shares_by_their_weights_however_long_their_backlogs(jobs: Connection) -> None:
    send(jobs, 400, "'hot'")
    send(jobs, 40, "'g' || i %% 2")
    change(jobs, '{"group_shares": {}}')
    query = "select msg_id, group_key from spanmq.receive('jobs', %s)"
    groups = [row[1] for _ in range(12) for row in rows(jobs, query, 1)]
    assert sorted(groups) == ["g0"] * 4 + ["g1"] * 4 + ["hot"] * 4
    [quiet] = send(jobs, 1, "'quiet'")
    assert quiet in [message for _ in range(4) for message in receive(jobs, 1)], "as many claims as groups"
    [loose] = send(jobs, 1)
    assert loose in [message for _ in range(4) for message in receive(jobs, 1)]
    groups = [row[1] for row in rows(jobs, query, 12)]
    assert sorted(groups) == ["g0"] * 4 + ["g1"] * 4 + ["hot"] * 4
    change(jobs, '{"group_shares": {"hot": 4, "g1": 2}}')
    groups = [row[1] for row in rows(jobs, query, 14)]
    assert sorted(groups) == ["g0"] * 2 + ["g1"] * 4 + ["hot"] * 8
    change(jobs, '{"group_shares": {"hot": 1000000}}')
    groups = [row[1] for _ in range(20) for row in rows(jobs, query, 1)]
    assert groups.count("hot") >= 19
