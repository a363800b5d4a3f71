"""Limits on receivers: messages in flight of a queue and of a group, messages a second; and priorities."""

import pytest
from tests.sql.queue import Connection, change_state, column, send_groups


def change(connection: Connection, settings: str) -> None:
    connection.execute("select spanmq.set_policy('jobs', %s)", [settings])


def send(connection: Connection, n: int, group: str = "null") -> list[int]:
    return send_groups(connection, "jobs", n, group)


def receive(connection: Connection, quantity: int, lease: float = 30) -> list[int]:
    return column(connection, "select msg_id from spanmq.receive('jobs', %s, %s)", quantity, lease)


def delete(connection: Connection, ids: list[int]) -> None:
    connection.execute("select count(*) from pgmq.delete('jobs', %s::bigint[])", [ids])


def test_no_more_than_max_in_flight_are_leased(jobs: Connection) -> None:
    ids = send(jobs, 30)
    change(jobs, '{"max_in_flight": 12}')
    assert receive(jobs, 5) == ids[:5]
    assert len(column(jobs, "select msg_id from pgmq.read('jobs', 30, 10)")) == 7
    assert receive(jobs, 10) == []
    delete(jobs, ids[2:4])
    assert len(receive(jobs, 10)) == 2


def test_a_lease_that_ran_out_is_not_in_flight(jobs: Connection) -> None:
    ids = send(jobs, 10)
    change(jobs, '{"max_in_flight": 4}')
    assert receive(jobs, 4, -1) == ids[:4]
    assert receive(jobs, 10) == ids[:4]
    assert receive(jobs, 10) == []


def test_pop_leaves_nothing_in_flight(jobs: Connection) -> None:
    send(jobs, 10)
    change(jobs, '{"max_in_flight": 2}')
    assert len(column(jobs, "select msg_id from pgmq.pop('jobs', 10)")) == 10


def test_no_group_has_more_in_flight_than_its_limit(jobs: Connection) -> None:
    send(jobs, 60, "'g' || i %% 3")
    change(jobs, '{"max_in_flight_per_group": 4}')
    first = receive(jobs, 2)
    assert len(first) == 2
    got = receive(jobs, 50)
    assert len(got) == 10
    assert receive(jobs, 50) == []
    held = [0, 0, 0]
    for each in first + got:
        held[each % 3] += 1
    assert held == [4, 4, 4]
    delete(jobs, got[:1])
    assert [each % 3 for each in receive(jobs, 50)] == [got[0] % 3]


def by_age(connection: Connection, wanted: bool) -> None:
    """Let the next claim go by the age of groups alone, or by turn too."""
    [queue] = column(connection, "select queue_id from spanmq_core.queue where name = 'jobs'")
    connection.execute("select set_config(%s, %s, false)", [f"spanmq.turn_{queue}", "0" if wanted else "1"])


def test_most_claims_of_limited_groups_give_the_oldest(jobs: Connection) -> None:
    ids = send(jobs, 200, "'g' || i")
    change(jobs, '{"max_in_flight_per_group": 2}')
    by_age(jobs, True)
    assert receive(jobs, 20) == ids[:20]
    by_age(jobs, False)
    fair = receive(jobs, 20)
    assert fair[:10] == ids[20:30]
    assert fair != ids[20:40]
    # The one after it goes by age again.
    left = column(
        jobs, "select msg_id from pgmq.q_jobs where vt is null or vt <= clock_timestamp() order by 1"
    )
    assert receive(jobs, 20) == left[:20]


def test_claim_of_the_oldest_gives_no_group_more_than_a_quarter_and_none_beyond_its_limit(
    jobs: Connection,
) -> None:
    send(jobs, 30, "'long'")
    send(jobs, 40, "'g' || i %% 20")
    change(jobs, '{"max_in_flight_per_group": 7}')
    by_age(jobs, True)
    assert len(receive(jobs, 20)) == 20
    groups = (
        "select count(*) from pgmq.q_jobs where vt > clock_timestamp() and headers->>'x-pgmq-group' = 'long'"
    )
    assert column(jobs, groups) == [5]
    by_age(jobs, True)
    assert len(receive(jobs, 20)) == 20
    assert column(jobs, groups) == [7]
    by_age(jobs, True)
    assert len(receive(jobs, 20)) == 7
    assert column(jobs, groups) == [7]


@pytest.mark.parametrize("wanted", [True, False])
def test_claim_of_limited_groups_gives_as_much_as_is_wanted(jobs: Connection, wanted: bool) -> None:
    """Though one group has nearly all, one has fallen due, and some messages have none."""
    send(jobs, 3)
    send(jobs, 50, "'long'")
    send(jobs, 5, "'g' || i")
    change(jobs, '{"max_in_flight_per_group": 40}')
    by_age(jobs, wanted)
    assert len(receive(jobs, 30)) == 30
    assert len(receive(jobs, 2, -1)) == 2
    by_age(jobs, wanted)
    assert len(receive(jobs, 30)) >= 15


def test_a_retry_does_not_hold_a_group_that_has_no_order(jobs: Connection) -> None:
    ids = send(jobs, 6, "'a'")
    change(jobs, '{"max_in_flight_per_group": 2}')
    assert receive(jobs, 5) == ids[:2]
    jobs.execute("select pgmq.set_vt('jobs', %s, 3600)", [ids[0]])
    assert receive(jobs, 5) == ids[2:3]


@pytest.mark.parametrize("quantity", [1, 2, 8])
def test_a_delayed_message_hides_none_of_a_group_that_has_no_order(jobs: Connection, quantity: int) -> None:
    change(jobs, '{"max_in_flight_per_group": 9}')
    ids = send(jobs, 9, "'a'")
    jobs.execute("select pgmq.set_vt('jobs', %s::bigint[], 60)", [ids[:2]])
    # By turn and by age: every claim in a row.
    got = [receive(jobs, quantity) for _ in range(8)]
    assert sorted(each for some in got for each in some) == ids[2:]
    assert all(got[:7] if quantity == 1 else got[: 7 // quantity])


def test_a_rate_limit_gives_its_burst_and_then_nothing(jobs: Connection) -> None:
    ids = send(jobs, 30)
    change(jobs, '{"rate_limit": 0.001, "rate_burst": 10}')
    assert receive(jobs, 4) == ids[:4]
    assert receive(jobs, 100) == ids[4:10]
    assert receive(jobs, 1) == []
    assert column(jobs, "select msg_id from pgmq.pop('jobs')") == []
    change(jobs, '{"rate_limit": null}')
    assert receive(jobs, 100) == ids[10:]


@pytest.mark.parametrize(
    "settings",
    ['{"rate_limit": 0.001, "rate_burst": 10000000}', '{"rate_limit": 1e-12}', '{"rate_limit": 1e300}'],
)
def test_any_rate_that_a_policy_may_have_is_a_rate(jobs: Connection, settings: str) -> None:
    ids = send(jobs, 3)
    change(jobs, settings)
    assert receive(jobs, 1) == ids[:1]


def test_tokens_that_were_not_needed_come_back(jobs: Connection) -> None:
    change(jobs, '{"rate_limit": 0.001, "rate_burst": 10}')
    for _ in range(5):
        assert receive(jobs, 10) == []
    ids = send(jobs, 12)
    assert receive(jobs, 100) == ids[:10]


def test_a_message_at_its_last_attempts_takes_no_token_twice(jobs: Connection) -> None:
    ids = send(jobs, 2)
    for _ in range(23):
        column(jobs, "select msg_id from spanmq.receive('jobs', 1, 1e-6)")
    change(jobs, '{"rate_limit": 0.001, "rate_burst": 1}')
    assert receive(jobs, 1) == ids[:1]


def test_tokens_come_with_time(jobs: Connection) -> None:
    ids = send(jobs, 30)
    change(jobs, '{"rate_limit": 2, "rate_burst": 5}')
    assert receive(jobs, 10) == ids[:5]
    # The bucket would have been full so much earlier: as if four seconds had passed.
    jobs.execute(
        "select setval(('spanmq_core.rate_' || queue_id)::regclass,"
        " pg_sequence_last_value(('spanmq_core.rate_' || queue_id)::regclass) - 2000000000)"
        " from spanmq_core.queue where name = 'jobs'"
    )
    assert len(receive(jobs, 10)) in (4, 5)


def send_with(connection: Connection, priority: int, n: int = 1) -> list[int]:
    return column(
        connection,
        "select spanmq.send_messages('jobs', array_fill('1'::jsonb, array[%s::int]), priority => %s)",
        n,
        priority,
    )


def test_the_highest_priority_comes_first_and_by_id_among_equals(jobs: Connection) -> None:
    low = send(jobs, 3)
    five = send_with(jobs, 5, 2)
    nine = send_with(jobs, 9)
    more = send_with(jobs, 5)
    assert receive(jobs, 1) == nine
    assert receive(jobs, 2) == five
    assert receive(jobs, 2) == [*more, low[0]]
    assert column(jobs, "select msg_id from pgmq.pop('jobs', 9)") == low[1:]


@pytest.mark.parametrize("slots", [1, 2, 7])
def test_messages_of_a_call_come_by_priority_and_then_by_id(jobs: Connection, slots: int) -> None:
    low = send(jobs, 2)
    four = send_with(jobs, 4, 2)
    six = send_with(jobs, 6)
    more = send_with(jobs, 4)
    rows = jobs.execute(
        "select msg_id, slot, lease_id from spanmq.receive('jobs', 9, 60, %s)", [slots]
    ).fetchall()
    assert [row[0] for row in rows] == [*six, *four, *more, *low]
    assert [row[1] for row in rows] == [{1: 1, 2: n // 3 + 1, 7: n + 1}[slots] for n in range(6)]
    outcomes = column(
        jobs, "select outcome from spanmq.ack('jobs', %s, %s)", rows[0][2], [row[0] for row in rows]
    )
    assert outcomes == ["acked"] * 6


def test_order_of_groups_counts_more_than_priority(jobs: Connection) -> None:
    change(jobs, '{"ordered": true}')
    ids = [*send(jobs, 2), *send_with(jobs, 9), *send_with(jobs, 4)]
    assert receive(jobs, 9) == ids


def test_waiting_weighs_levels(jobs: Connection) -> None:
    low = send(jobs, 2)
    high = send_with(jobs, 3, 2)
    older = "vt = vt - %s * interval '1 s'"
    change_state(jobs, older, "msg_id <= 2", 150)
    assert receive(jobs, 1) == high[:1]
    change_state(jobs, older, "msg_id <= 2", 40)
    assert receive(jobs, 2) == low


def test_a_priority_stays_through_splits_and_retries(jobs: Connection) -> None:
    low = send(jobs, 3)
    high = send_with(jobs, 4, 6)
    got = receive(jobs, 2)
    assert got == high[:2]
    delete(jobs, got[:1])
    jobs.execute("select pgmq.set_vt('jobs', %s, 0)", [got[1]])
    assert receive(jobs, 2, -1) == high[1:3]
    assert sorted(receive(jobs, 5)) == high[1:]
    assert receive(jobs, 5) == low


def test_a_priority_behind_a_long_backlog_is_found(jobs: Connection) -> None:
    send(jobs, 3000, "'g' || i")
    high = send_with(jobs, 1, 3)
    assert receive(jobs, 2) == high[:2]
