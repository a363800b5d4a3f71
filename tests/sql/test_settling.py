"""nack, reject, release, extend: what becomes of a message, and what is known of it afterwards."""

import pytest
from psycopg.types.json import Jsonb
from tests.sql.queue import Connection, Queue, one

# Unlogged queues have no short ways: so both ways are shown.
KINDS = ("create", "create_unlogged")


@pytest.fixture(params=KINDS)
def orders(connection: Connection, request: pytest.FixtureRequest) -> Queue:
    return Queue(connection, request.param)


def test_nacked_message_comes_again_with_its_story(orders: Queue) -> None:
    lease, [first] = orders.leased(1)
    assert orders.statuses([first]) == ["processing"]
    assert orders.settle("nack", lease, [first], "refused", "DEPENDENCY", 60) == {first: "retrying"}
    assert orders.statuses([first]) == ["failed"]
    assert orders.receive() == (0, [])
    story = orders.rows(
        "select attempt, outcome, category, error, retry_at - failed_at < interval '61 s'"
        " from spanmq.failures('orders', %s)",
        first,
    )
    assert story == [(1, "retrying", "DEPENDENCY", "refused", True)]
    orders.show([first])
    assert orders.statuses([first]) == ["pending"]
    rows = orders.rows("select attempt from spanmq.receive('orders')")
    assert rows == [(2,)]


def test_each_id_has_its_outcome_in_any_order(orders: Queue) -> None:
    orders.policy('{"max_attempts": 2, "backoff_base": 0}')
    ids = orders.send(6)
    lease, _ = orders.receive(4)
    assert set(orders.settle("nack", lease, ids[:2]).values()) == {"retrying"}
    again, held = orders.receive(2)
    assert held == ids[:2], "a backoff of 0 shows them at once"
    asked = [ids[5], ids[1], ids[3], ids[1]]
    assert orders.settle("nack", again, asked) == {ids[1]: "dead", ids[3]: "stale", ids[5]: "stale"}
    assert orders.dead() == [ids[1]]


def test_failures_of_a_thousand_shuffled_ids_cost_a_row_a_block(orders: Queue) -> None:
    lease, ids = orders.leased(1000)
    shuffled = sorted(ids, key=lambda each: each * 7919 % 1000)
    assert set(orders.settle("nack", lease, shuffled, "x", None, 60).values()) == {"retrying"}
    # Four blocks of 256.
    assert orders.value("select count(*) from spanmq_core.failure") == 4


def test_dead_letter_keeps_everything(orders: Queue) -> None:
    orders.policy('{"max_attempts": 2}')
    (first, _) = orders.send(2, '{"x-pgmq-group": "blue", "kind": "a"}')
    lease, held = orders.receive()
    orders.settle("nack", lease, held, "first error", "TRANSIENT")
    orders.show(held)
    lease, _ = orders.receive()
    marks = ("second error", "UNKNOWN", None, "ValueError", "line 1", "worker 7")
    assert orders.settle("nack", lease, [first], *marks) == {first: "dead"}
    ((row),) = orders.rows(
        "select msg_id, message, headers, group_key, attempts, category, error, error_class, traceback,"
        " worker, history, redriven_at, first_failed_at <= last_failed_at, dead_at = last_failed_at"
        " from spanmq_core.dead_letter"
    )
    assert row[:10] == (
        first,
        1,
        {"x-pgmq-group": "blue", "kind": "a"},
        "blue",
        2,
        "UNKNOWN",
        "second error",
        "ValueError",
        "line 1",
        "worker 7",
    )
    (earlier,) = row[10]
    assert (earlier["attempt"], earlier["error"], earlier["category"]) == (1, "first error", "TRANSIENT")
    assert row[11:] == (None, True, True)
    story = orders.rows("select attempt, outcome, error from spanmq.failures('orders', %s)", first)
    assert story == [(1, "retrying", "first error"), (2, "dead", "second error")]
    assert orders.rows("select category, sum(n) from spanmq_core.dead_letter_count group by 1") == [
        ("UNKNOWN", 1)
    ]


def test_reject_is_final(orders: Queue) -> None:
    lease, ids = orders.leased(3)
    assert orders.settle("reject", lease, ids[:2], "bad") == {ids[0]: "dead", ids[1]: "dead"}
    assert orders.rows("select distinct category from spanmq_core.dead_letter") == [("PERMANENT",)]
    assert orders.settle("reject", lease, ids) == {ids[0]: "stale", ids[1]: "stale", ids[2]: "dead"}
    assert orders.left() == []


def test_released_message_was_not_tried(orders: Queue) -> None:
    lease, ids = orders.leased(300)
    assert set(orders.settle("release", lease, ids).values()) == {"released"}
    rows = orders.rows("select msg_id, attempt from spanmq.receive('orders', 300)")
    assert rows == [(each, 1) for each in ids]


def test_extend_holds_all_that_is_left_and_never_less(orders: Queue) -> None:
    lease, ids = orders.leased(300, 30)
    orders.settle("ack", lease, ids[:10])
    orders.rows("select pgmq.delete('orders', %s::bigint)", ids[20])
    gone = [*ids[:10], ids[20]]
    outcomes = {each: "stale" if each in gone else "extended" for each in ids}
    assert orders.settle("extend", lease, ids, 600) == outcomes
    least = "select min(vt) > now() + interval '590 s' from pgmq.q_orders"
    assert orders.value(least)
    assert orders.settle("extend", lease, ids, 1) == outcomes
    assert orders.value(least), "never shorter"


def test_lease_that_ran_out_is_held_again_unless_taken(orders: Queue) -> None:
    lease, ids = orders.leased(2, -1)
    assert orders.statuses(ids) == ["pending"] * 2
    assert orders.settle("extend", lease, ids, 60) == dict.fromkeys(ids, "extended")
    assert orders.receive() == (0, [])
    assert orders.settle("ack", lease, ids) == dict.fromkeys(ids, "acked")


def test_ack_archives_where_the_policy_says_so(orders: Queue) -> None:
    orders.policy('{"archive_on_ack": true}')
    lease, ids = orders.leased(3)
    assert orders.settle("ack", lease, ids[:2]) == dict.fromkeys(ids[:2], "acked")
    assert orders.rows("select msg_id, read_ct, message from pgmq.a_orders order by 1") == [
        (ids[0], 1, 1),
        (ids[1], 1, 2),
    ]
    assert orders.statuses(ids) == ["completed", "completed", "processing"]


def test_status_of_what_has_gone(orders: Queue) -> None:
    ids = orders.send(4)
    (delayed,) = (row[0] for row in orders.rows("select pgmq.send('orders', '1', 60)"))
    lease, _ = orders.receive(2)
    orders.settle("ack", lease, ids[:1])
    orders.rows("select spanmq.cancel('orders', %s)", [ids[3]])
    wanted = ["completed", "processing", "pending", "cancelled", "delayed", "unknown"]
    assert orders.statuses([*ids, delayed, delayed + 1]) == wanted
    orders.rows("select pgmq.purge_queue('orders')")
    assert orders.statuses([ids[1], ids[2]]) == ["unknown"] * 2
    (later,) = orders.send(1)
    assert orders.statuses([later]) == ["pending"]


def test_category_may_have_attempts_and_a_backoff_of_its_own(orders: Queue) -> None:
    orders.policy(
        '{"max_attempts": 9, "jitter": false, "backoff_base": 7, "backoff_factor": 3, "backoff_max": 50}'
    )
    orders.rows(
        "insert into spanmq_core.category_policy (queue_id, category, max_attempts, backoff_base, backoff_factor)"
        " select queue_id, 'DEPENDENCY', 2, 100, 1 from spanmq_core.queue"
    )
    (first,) = orders.send(1)
    waits = []
    for category in ("UNKNOWN", "UNKNOWN", "UNKNOWN", "DEPENDENCY"):
        lease, _ = orders.receive()
        outcome = orders.settle("nack", lease, [first], "x", category)[first]
        orders.show([first])
        waits.append(outcome)
    assert waits == ["retrying"] * 3 + ["dead"]
    (history,) = orders.rows("select history from spanmq_core.dead_letter")
    seconds = orders.rows(
        "select round(extract(epoch from f.retry_at - f.failed_at)) from jsonb_to_recordset(%s::jsonb)"
        " f (retry_at timestamptz, failed_at timestamptz)",
        Jsonb(history[0]),
    )
    assert [int(each) for (each,) in seconds] == [7, 21, 50]


def test_backoff_is_bounded_and_jitter_is_full(connection: Connection) -> None:
    [(least, most, mean)] = connection.execute(
        "select min(w), max(w), avg(w) from (select extract(epoch from spanmq_core.retry_at("
        "  256 * block, 3, 'epoch', 10, 2, 3600, 42)) as w from generate_series(1, 2000) block) b"
    )
    assert 0 <= least < 4
    assert 36 < most <= 40
    assert 17 < mean < 23
    for arguments, wanted in {
        "1000, 'epoch', 10, 10, 60": 60,
        "1, 'epoch', 0, 2, 60": 0,
        "1, 'epoch', 100, 2, 60": 60,
        "2, 'epoch', 1, 1, 60": 1,
        "5, 'epoch', 1, 2, 0": 0,
    }.items():
        call = f"select extract(epoch from spanmq_core.retry_at(1, {arguments}, null))::int"
        assert one(connection, call) == wanted, arguments


def test_messages_have_their_own_attempts(orders: Queue) -> None:
    orders.rows("update spanmq_core.queue set uses_limits = true")
    # Any number may stand there: it is rounded, and at least 1, at most 1000. What is none counts for nothing.
    attempts = {"1": 1, "2": 2, "1.5": 2, "-3": 1, "0": 1, "3e0": 3, "1e300": None, '"many"': None}
    ids = {orders.send(1, f'{{"x-spanmq-max-attempts": {each}}}')[0]: most for each, most in attempts.items()}
    for attempt in (1, 2, 3):
        lease, held = orders.receive()
        assert orders.settle("nack", lease, held, "x", None, 0) == {
            each: "dead" if ids[each] == attempt else "retrying" for each in held
        }
    assert orders.left() == [each for each, most in ids.items() if most is None]


def test_ordered_queue_gives_back_what_is_behind(orders: Queue) -> None:
    orders.policy('{"ordered": true}')
    blue, red, plain = (orders.send(3, f'{{"x-pgmq-group": "{each}"}}') for each in ("blue", "red", ""))
    none = orders.send(3)
    # As a claim that takes several of each group gives them.
    lease, held = orders.receive()
    assert held == [*blue, *red, *plain, *none]
    outcomes = orders.settle("nack", lease, [blue[1], none[0]], "x", None, 60)
    assert set(outcomes.values()) == {"retrying"}
    assert orders.settle("ack", lease, [*blue, *none[1:]]) == {
        blue[0]: "acked",
        blue[1]: "stale",
        blue[2]: "stale",
        none[1]: "stale",
        none[2]: "stale",
    }
    rows = orders.rows(
        "select msg_id, read_ct, vt <= clock_timestamp() from pgmq.q_orders where msg_id = any (%s)",
        [blue[2], *none],
    )
    assert sorted(rows) == [(blue[2], 0, True), (none[0], 1, False), (none[1], 0, True), (none[2], 0, True)]
    assert set(orders.settle("ack", lease, [*red, *plain]).values()) == {"acked"}


def test_empty_and_unknown_ids(orders: Queue) -> None:
    assert orders.settle("nack", 5, []) == {}
    assert orders.rows("select * from spanmq.release('orders', 5, array[null, 3, -1]::bigint[])") == [
        (-1, "stale"),
        (3, "stale"),
    ]
    ends = [-(2**63), 2**63 - 1]
    for name in ("ack", "nack", "release"):
        assert orders.settle(name, 5, ends) == dict.fromkeys(ends, "stale")


def test_long_texts_are_cut(orders: Queue) -> None:
    lease, [first] = orders.leased(1)
    orders.settle("nack", lease, [first], "e" * 20_000, None, 0, "c" * 1000, "t" * 200_000, "w" * 1000)
    rows = orders.rows(
        "select length(error), length(error_class), length(traceback), length(worker)"
        " from spanmq.failures('orders', %s)",
        first,
    )
    assert rows == [(10_000, 500, 100_000, 500)]


def test_purge_keeps_dead_letters_and_drop_removes_them(orders: Queue) -> None:
    lease, ids = orders.leased(3)
    orders.settle("reject", lease, ids[:1])
    orders.settle("nack", lease, ids[1:2], "x", None, 60)
    assert orders.value("select pgmq.purge_queue('orders')") == 2
    assert orders.value("select count(*) from spanmq_core.failure") == 0
    assert orders.dead() == ids[:1]
    orders.rows("select pgmq.drop_queue('orders')")
    assert orders.dead() == []
    assert orders.value("select count(*) from spanmq_core.dead_letter_count") == 0


def test_old_failures_go(orders: Queue) -> None:
    lease, ids = orders.leased(600)
    orders.settle("nack", lease, ids, "x", None, 60)
    orders.rows("update spanmq_core.failure set failed_at = failed_at - interval '25 hours'")
    tidy = "select spanmq_core.tidy_failures(q) from spanmq_core.queue q"
    assert orders.value(tidy) == 0, "their messages are in the queue"
    orders.rows("select pgmq.delete('orders', array(select generate_series(1, 255)::bigint))")
    assert orders.value(tidy) == 0, "looked less than a minute ago"
    orders.rows("update spanmq_core.upkeep set failures_at = '-infinity'")
    assert orders.value(tidy) == 1
    orders.rows("update spanmq_core.failure set failed_at = failed_at - interval '30 days'")
    orders.rows("update spanmq_core.upkeep set failures_at = '-infinity'")
    assert orders.value(tidy) == 2


def test_counts_of_dead_letters_are_folded(orders: Queue) -> None:
    orders.rows(
        "insert into spanmq_core.dead_letter_count select queue_id, 'UNKNOWN', i"
        " from spanmq_core.queue, generate_series(1, 100) i"
    )
    assert orders.value("select spanmq_core.fold_dead_letter_counts(queue_id) from spanmq_core.queue") == 100
    assert orders.rows("select category, n from spanmq_core.dead_letter_count") == [("UNKNOWN", 5050)]
    assert orders.value("select spanmq_core.fold_dead_letter_counts(queue_id) from spanmq_core.queue") == 0


@pytest.mark.parametrize("call", ["ack", "nack", "reject", "release"])
def test_outcomes_ascend_where_groups_lie_between_each_other(connection: Connection, call: str) -> None:
    orders = Queue(connection)
    headers = [Jsonb({"x-pgmq-group": group}) for group in "abcabcab"]
    orders.rows("select pgmq.send_batch('orders', array_fill('1'::jsonb, array[8]), %s::jsonb[])", headers)
    lease, ids = orders.receive()
    assert sorted(orders.settle(call, lease, ids)) == ids


def test_cancelled_message_is_known_as_long_as_its_segment_exists(orders: Queue) -> None:
    ids = orders.send(1)
    assert orders.rows("select * from spanmq.cancel('orders', %s)", ids) == [(ids[0], "cancelled")]
    assert orders.statuses(ids) == ["cancelled"]
    for days in (2, 31):
        orders.rows("update spanmq_core.failure set failed_at = now() - make_interval(days => %s)", days)
        orders.rows("update spanmq_core.upkeep set failures_at = '-infinity'")
        orders.rows("select * from spanmq.maintain()")
        assert orders.statuses(ids) == ["cancelled"]


@pytest.mark.parametrize("n", [1, 3])
def test_a_lease_archives_its_own_messages_only(orders: Queue, n: int) -> None:
    orders.policy('{"archive_on_ack": true}')
    orders.send(2 * n)
    lease, own = orders.receive(n)
    _, others = orders.receive(n)
    assert orders.settle("ack", lease, others) == dict.fromkeys(others, "stale")
    assert orders.value("select count(*) from pgmq.a_orders") == 0
    assert orders.settle("ack", lease, own) == dict.fromkeys(own, "acked")
