"""Attempts and expiry: which messages a claim may still deliver."""

import pytest
from tests.schemas import qualified
from tests.sql.queue import Queue, change_state, expire_leases


def crash(orders: Queue, n: int = 100, poison: int | None = None) -> list[int]:
    """Receive under a lease that runs out at once if the poison is among them; else handle all."""
    lease, ids = orders.receive(n, 60)
    if poison is None or poison in ids:
        expire_leases(orders.connection, "lease_id = %s", lease)
    elif ids:
        orders.settle("ack", lease, ids)
    return ids


@pytest.mark.parametrize(
    "call",
    [
        "receive('orders', 100)",
        "receive('orders', 100, 30, 3)",
        "read('orders', 30, 100)",
        "read('orders', 30, 100, '{}')",
        "pop('orders', 100)",
        "read_grouped('orders', 30, 100)",
        "read_grouped_rr('orders', 30, 100)",
        "read_grouped_head('orders', 30, 100)",
    ],
)
def test_claim_that_meets_a_lease_of_the_last_attempt_gives_its_messages_up(orders: Queue, call: str) -> None:
    orders.policy('{"max_attempts": 1}')
    ids = orders.send(3)
    assert crash(orders) == ids
    (later,) = orders.send(1)
    rows = orders.rows(f"select msg_id from {qualified(call)}")
    assert rows == [(later,)]
    assert orders.dead() == ids
    found = orders.rows(
        "select distinct category, error_class, attempts, history from spanmq_core.dead_letter"
    )
    assert found == [("UNKNOWN", "LeaseExpired", 1, [])]
    assert orders.rows("select * from pgmq.q_orders where msg_id = any (%s)", ids) == []


def test_maintain_gives_them_up_where_nobody_receives(orders: Queue) -> None:
    orders.policy('{"max_attempts": 2}')
    ids = orders.send(300)
    crash(orders, 300)
    for _ in range(2):
        orders.rows("select spanmq.maintain()")
    assert orders.dead() == [], "one attempt is left"
    assert crash(orders) == ids[:1], "alone"
    orders.rows("select spanmq.maintain()")
    assert orders.dead() == ids[:1]
    assert orders.left() == ids[1:]


def test_endless_attempts_are_as_in_pgmq(orders: Queue) -> None:
    ids = orders.send(10)
    for attempt in range(1, 10):
        read = orders.rows("select msg_id, read_ct from pgmq.read('orders', 0, 100)")
        assert read == [(each, attempt) for each in ids]
    assert orders.rows("select attempt, last_error from spanmq.receive('orders')") == [
        (10, "the lease ran out")
    ]


def test_rest_of_a_lease_that_ran_out_is_still_held(orders: Queue) -> None:
    ids = orders.send(10)
    old, _ = orders.receive(10, -1)
    _, taken = orders.receive(4)
    assert taken == ids[:4]
    assert orders.settle("ack", old, ids) == dict.fromkeys(ids[:4], "stale") | dict.fromkeys(ids[4:], "acked")


def test_last_error_comes_with_the_message(orders: Queue) -> None:
    ids = orders.send(4)
    lease, _ = orders.receive(3)
    orders.settle("nack", lease, ids[:2], "both")
    orders.settle("nack", lease, ids[2:3], None, "DEPENDENCY", None, "TimeoutError")
    orders.show(ids)
    lease, _ = orders.receive(1)
    orders.settle("nack", lease, ids[:1], "again")
    orders.show(ids)
    wanted = [(ids[0], 3, "again"), (ids[1], 2, "both"), (ids[2], 2, "TimeoutError"), (ids[3], 1, None)]
    assert orders.rows("select msg_id, attempt, last_error from spanmq.receive('orders', 4, 60, 2)") == wanted


def test_lease_of_the_policy_where_none_is_named(orders: Queue) -> None:
    orders.send(2)
    orders.policy('{"lease": 7000}')
    for call in ("receive('orders')", "receive('orders', 1, null, 2)"):
        assert orders.rows(f"select vt - last_read_at > interval '6999 s' from {qualified(call)}") == [
            (True,)
        ]


# Expiry. Messages say it in their headers; how the row gets into spanmq_core.expiry is sending's part.


def expiring(orders: Queue, n: int) -> list[int]:
    """Send messages that have expired since."""
    rows = orders.rows(
        "select * from spanmq.send_messages('orders', array(select to_jsonb(i) from generate_series(1, %s) i),"
        " expires_in => 60)",
        n,
    )
    orders.rows("update spanmq_core.expiry set expires_at = clock_timestamp() - interval '1 s'")
    return [message_id for (message_id,) in rows]


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize(
    "call",
    ["receive('orders', 3)", "read('orders', 30, 3)", "pop('orders', 3)", "read_grouped('orders', 30, 3)"],
)
def test_expired_message_is_never_delivered(orders: Queue, call: str, drops: bool) -> None:
    orders.policy(f'{{"drop_expired": {str(drops).lower()}}}')
    ids = expiring(orders, 7)
    later = orders.send(2)
    assert orders.rows(f"select msg_id from {qualified(call)}") == [(each,) for each in later]
    assert orders.dead() == ([] if drops else ids)
    assert orders.statuses(ids[:1]) == ["expired" if drops else "dead"]
    assert orders.value("select count(*) from spanmq_core.expiry") == 0
    if not drops:
        found = orders.rows("select distinct category, attempts from spanmq_core.dead_letter")
        assert found == [("EXPIRED", 0)]


def test_maintain_takes_what_expired_but_not_what_is_in_work(orders: Queue) -> None:
    ids = expiring(orders, 1)
    orders.rows("update spanmq_core.expiry set expires_at = clock_timestamp() + interval '1 hour'")
    lease, held = orders.receive()
    assert held == ids
    delayed = orders.rows(
        "select * from spanmq.send_messages('orders', array['1', '2']::jsonb[], delay => 600, expires_in => 60)"
    )
    orders.rows("select pgmq.delete('orders', %s::bigint)", delayed[1][0])
    orders.rows("update spanmq_core.expiry set expires_at = clock_timestamp() - interval '1 s'")
    orders.rows("select spanmq.maintain()")
    assert orders.dead() == [delayed[0][0]]
    assert orders.rows("select msg_id from spanmq_core.expiry") == [(ids[0],)], "the deleted one's row went"
    assert orders.settle("nack", lease, ids, "x", None, 0) == {ids[0]: "retrying"}
    assert orders.receive() == (0, [])
    assert orders.dead() == [ids[0], delayed[0][0]]


def test_maintain_takes_what_expired_in_a_lease_that_ran_out(orders: Queue) -> None:
    ids = expiring(orders, 5)
    orders.rows("update spanmq_core.expiry set expires_at = clock_timestamp() + interval '1 hour'")
    assert crash(orders) == ids
    orders.rows("update spanmq_core.expiry set expires_at = clock_timestamp() where msg_id = %s", ids[2])
    orders.rows("select spanmq.maintain()")
    assert orders.dead() == [ids[2]]
    assert orders.receive()[1] == [*ids[:2], *ids[3:]]


def test_what_expired_behind_much_that_is_in_work_has_its_turn(orders: Queue) -> None:
    held = expiring(orders, 6)
    orders.rows("update spanmq_core.expiry set expires_at = clock_timestamp() + interval '1 hour'")
    lease, received = orders.receive()
    assert received == held
    (free,) = expiring(orders, 1)
    orders.rows("update spanmq_core.expiry set expires_at = clock_timestamp() - interval '1 hour'")
    # Two at a time, and its second is over at once.
    expire = (
        "select spanmq_core.expire(q, clock_timestamp() - interval '2 seconds', 2) from spanmq_core.queue q"
    )
    assert [orders.value(expire) for _ in range(4)] == [0, 0, 0, 1]
    assert orders.dead() == [free]
    # Round again: what came back meanwhile, at the left.
    orders.settle("nack", lease, held[:1], "x", None, 0)
    assert sum(orders.value(expire) for _ in range(4)) == 1
    assert orders.dead() == [held[0], free]


@pytest.mark.parametrize("later", [False, True])
def test_maintain_gives_up_what_is_shown_after_its_last_attempt(orders: Queue, later: bool) -> None:
    orders.policy('{"max_attempts": 1}')
    ids = orders.send(3)
    assert orders.receive()[1] == ids
    orders.rows("select pgmq.set_vt('orders', %s::bigint, %s)", ids[1], 1 if later else 0)
    if later:
        change_state(orders.connection, "vt = clock_timestamp()", "lease_id = 0 and vt > clock_timestamp()")
    orders.send(2)
    orders.rows("select spanmq.maintain()")
    assert orders.rows("select msg_id, error_class from spanmq_core.dead_letter") == [
        (ids[1], "NoAttemptLeft")
    ]


def test_the_look_for_spent_messages_goes_on_where_it_ended(orders: Queue) -> None:
    orders.policy('{"max_attempts": 1}')
    orders.rows("select pgmq.send('orders', '1') from generate_series(1, 1500)")
    shown = orders.value("select max(msg_id) from pgmq.q_orders")
    orders.rows("select pgmq.set_vt('orders', id, 0) from generate_series(1, 1500) id")
    change_state(orders.connection, "attempts = 1", "msg_id = %s", shown)
    orders.rows("select spanmq.maintain()")
    assert orders.dead() == []
    orders.rows("select spanmq.maintain()")
    assert orders.dead() == [shown]
    assert orders.value("select spent_to from spanmq_core.upkeep") == 0


def test_messages_with_attempts_of_their_own_are_given_up_by_themselves(orders: Queue) -> None:
    rows = orders.rows(
        "select * from spanmq.send_messages('orders', array['1', '2']::jsonb[], max_attempts => 1)"
    )
    once = [message_id for (message_id,) in rows]
    endless = orders.send(2)
    assert crash(orders) == [*once, *endless]
    assert orders.receive()[1] == endless
    assert orders.dead() == once


@pytest.mark.parametrize("call", ["receive('orders', 100)", "read_grouped('orders', 30, 100)"])
def test_lease_that_ran_out_is_a_failure_only_of_messages_with_a_limit(orders: Queue, call: str) -> None:
    if call.startswith("receive"):
        orders.policy('{"max_attempts": 0}')  # it has a limit by default
    limited = orders.value("select spanmq.send_messages('orders', array['1']::jsonb[], max_attempts => 9)")
    expiring = orders.value("select spanmq.send_messages('orders', array['2']::jsonb[], expires_in => 60)")
    (endless,) = orders.send(1)
    assert crash(orders) == [limited, expiring, endless]
    assert orders.rows(f"select msg_id from {qualified(call)}") == [(limited,), (expiring,), (endless,)]
    failed = orders.rows("select msg_id, outcome, error_class from spanmq.failures_between('orders', 1, 100)")
    assert failed == [(limited, "expired", "LeaseExpired")]


@pytest.mark.parametrize("mode", ["receive('orders', 10)", "read_grouped('orders', 30, 10)"])
def test_newer_message_of_a_group_does_not_pass_one_whose_lease_ran_out(orders: Queue, mode: str) -> None:
    orders.policy('{"ordered": true, "max_attempts": 2}')
    (other,) = orders.send(1, '{"x-pgmq-group": "b"}')
    (late,) = orders.send(1, '{"x-pgmq-group": "a"}')
    leases = {ids[0]: lease for lease, ids in (orders.receive(1), orders.receive(1))}
    expire_leases(orders.connection, "lease_id = %s", leases[late])
    orders.settle("release", leases[other], [other])
    (newer,) = orders.send(1, '{"x-pgmq-group": "a"}')
    # It has one attempt left, so it is delivered alone, whichever group comes first.
    found = [[each for (each,) in orders.rows(f"select msg_id from {qualified(mode)}")] for _ in range(3)]
    assert sorted(found) == [[], [other], [late]]
    assert newer in orders.left()


@pytest.mark.parametrize(
    "call",
    ["receive('orders', 9)", "read('orders', 30, 9)", "pop('orders', 9)", "read_grouped('orders', 30, 9)"],
)
@pytest.mark.parametrize("own", [False, True])
def test_message_that_set_vt_shows_again_has_no_more_attempts_than_others(
    orders: Queue, call: str, own: bool
) -> None:
    if own:
        orders.rows("select spanmq.send_messages('orders', array['1', '2']::jsonb[], max_attempts => 2)")
        ids = orders.left()
    else:
        orders.policy('{"max_attempts": 2}')
        ids = orders.send(2)
    for _ in range(2):
        assert orders.receive()[1] == ids
        orders.show(ids)
    (later,) = orders.send(1)
    assert orders.rows(f"select msg_id from {qualified(call)}") == [(later,)]
    found = orders.rows(
        "select msg_id, category, error_class, attempts from spanmq_core.dead_letter order by 1"
    )
    assert found == [(each, "UNKNOWN", "NoAttemptLeft", 2) for each in ids]


def test_category_with_more_attempts_than_the_queue_keeps_them(orders: Queue) -> None:
    orders.policy('{"max_attempts": 1}')
    orders.rows("select spanmq.set_category_policy('orders', 'TRANSIENT', '{\"max_attempts\": 3}')")
    ids = orders.send(3)
    lease, held = orders.receive()
    for outcome in ("retrying", "retrying", "dead"):
        assert held == ids
        assert orders.settle("nack", lease, ids, "x", "TRANSIENT") == dict.fromkeys(ids, outcome)
        orders.show(ids)
        lease, held = orders.receive()
    assert orders.dead() == ids


@pytest.mark.parametrize("call", ["receive('orders', 9)", "pop('orders', 9)", "read_grouped('orders', 9, 9)"])
@pytest.mark.parametrize("death", ["lost", "expired", "shown"])
@pytest.mark.parametrize("policy", ['"ordered": true', '"max_in_flight_per_group": 9'])
def test_claim_that_buries_the_head_of_a_group_gives_nothing_behind_it(
    orders: Queue, call: str, death: str, policy: str
) -> None:
    orders.policy(f'{{{policy}, "dead_letter_blocks_group": true, "max_attempts": 1}}')
    blue = '{"x-pgmq-group": "blue"}'
    if death == "expired":
        first = orders.value(
            "select * from spanmq.send_messages('orders', array['1']::jsonb[], array[%s]::jsonb[],"
            " expires_in => 60)",
            blue,
        )
        orders.rows("update spanmq_core.expiry set expires_at = clock_timestamp() - interval '1 s'")
    else:
        (first,) = orders.send(1, blue)
        if death == "lost":
            assert crash(orders) == [first]
        else:
            assert orders.receive()[1] == [first]
            orders.show([first])
    behind = orders.send(3, blue)
    other = orders.send(2, '{"x-pgmq-group": "red"}')
    assert [each for (each,) in orders.rows(f"select msg_id from {qualified(call)}")] == other
    assert orders.dead() == [first]
    assert orders.rows("select msg_id, read_ct from pgmq.q_orders where not msg_id = any (%s)", other) == [
        (each, 0) for each in behind
    ]
    assert orders.receive()[1] == [], "the group waits"
    orders.rows("select spanmq.purge_dead_letters('orders')")
    assert orders.receive()[1] == behind


@pytest.mark.parametrize("drops", [False, True])
def test_what_stands_before_a_dead_letter_of_its_group_goes_on(orders: Queue, drops: bool) -> None:
    orders.policy(
        f'{{"ordered": true, "dead_letter_blocks_group": true, "drop_expired": {str(drops).lower()}}}'
    )
    ids = [
        each
        for (each,) in orders.rows(
            "select * from spanmq.send_messages('orders', array['1', '2', '3', '4', '5']::jsonb[],"
            ' array_fill(\'{"x-pgmq-group": "blue"}\'::jsonb, array[5]), expires_in => 60)'
        )
    ]
    orders.rows(
        "update spanmq_core.expiry set expires_at = clock_timestamp() - interval '1 s' where msg_id = any (%s)",
        [ids[1], ids[3]],
    )
    lease, held = orders.receive()
    if drops:
        assert held == [ids[0], ids[2], ids[4]]
        return
    assert held == ids[:1]
    orders.settle("ack", lease, held)
    assert orders.receive()[1] == []
    assert orders.dead() == [ids[1], ids[3]]


def test_maintain_goes_on_past_what_is_expired_and_in_work(orders: Queue) -> None:
    ids = expiring(orders, 1100)
    orders.rows("update spanmq_core.expiry set expires_at = clock_timestamp() + interval '1 hour'")
    _, held = orders.receive(1050, 36_000)
    assert held == ids[:1050]
    orders.rows("update spanmq_core.expiry set expires_at = clock_timestamp() - interval '1 s'")
    # What maintain() does, without an end to its second.
    expire = (
        "select spanmq_core.expire(q, clock_timestamp() + interval '1 hour', 1000) from spanmq_core.queue q"
    )
    assert orders.value(expire) == 50
    orders.rows("select spanmq.maintain()")
    assert orders.dead() == ids[1050:]
    assert orders.value("select count(*) from spanmq_core.expiry") == 1050


@pytest.mark.parametrize("call", ["receive('orders', 10, 30)", "pop('orders', 10)"])
def test_group_whose_head_died_of_a_lease_that_held_it_all_waits(orders: Queue, call: str) -> None:
    orders.policy('{"ordered": true, "dead_letter_blocks_group": true, "max_attempts": 1}')
    ids = orders.send(4, '{"x-pgmq-group": "blue"}')
    assert crash(orders, 10) == ids
    assert orders.rows(f"select msg_id from {qualified(call)}") == []
    assert orders.dead() == ids, "with one attempt, a lost lease is final"
    orders.rows("select spanmq.redrive('orders', delay => 0)")
    assert orders.receive()[1] == ids
