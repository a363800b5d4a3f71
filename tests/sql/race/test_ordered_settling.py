"""What goes back of an ordered group takes along all that is leased behind it."""

import pytest
from tests.schemas import qualified
from tests.sql.race.sessions import Race, Session

NACK = "select outcome from spanmq.nack('jobs', %s, array[%s], 'x', null, 3600)"
SEND = "pgmq.send_batch('jobs', array_fill('1'::jsonb, array[6]), array_fill(%s::jsonb, array[6]))"
ACK = "select outcome from spanmq.ack('jobs', %s, array[%s])"


@pytest.fixture
def race(race: Race) -> Race:
    race.main.rows("""select spanmq.set_policy('jobs', '{"ordered": true}')""")
    return race


def leased(race: Race) -> tuple[Session, Session, int, list[int]]:
    """Lease four messages of one group, each settled by itself."""
    header = '{"x-pgmq-group": "blue"}'
    ids = race.main.column(
        "select pgmq.send_batch('jobs', array['1', '2', '3', '4']::jsonb[], array_fill(%s::jsonb, array[4]))",
        header,
    )
    lease = race.main.value("select max(lease_id) from spanmq.receive('jobs', 4, 60, 4)")
    return race.open(), race.open(), lease, ids


@pytest.mark.parametrize(("fate", "outcome"), [("commit", "stale"), ("rollback", "acked")])
def test_ack_of_a_follower_meets_an_open_nack(race: Race, fate: str, outcome: str) -> None:
    one, two, lease, ids = leased(race)
    one.begin()
    assert one.rows(NACK, lease, ids[1]) == [("retrying",)]
    later = two.waiting(ACK, lease, ids[2])
    assert race.main.rows("select msg_id from spanmq.receive('jobs', 9)") == [], "the group is still in work"
    one.end(fate)
    assert later.rows() == [(outcome,)]
    assert two.rows(ACK, lease, ids[0]) == [("acked",)], "what stands before it stays leased"


def test_nack_meets_an_open_ack_of_a_follower(race: Race) -> None:
    one, two, lease, ids = leased(race)
    one.begin()
    assert one.rows(ACK, lease, ids[2]) == [("acked",)]
    later = two.waiting(NACK, lease, ids[0])
    one.commit()
    assert later.rows() == [("retrying",)]
    left = race.main.rows("select msg_id, read_ct, vt <= clock_timestamp() from pgmq.q_jobs order by 1")
    assert left == [(ids[0], 1, False), (ids[1], 0, True), (ids[3], 0, True)]
    assert race.main.rows("select msg_id from spanmq.receive('jobs', 9)") == [], "it waits for the first"
    race.main.rows("select pgmq.set_vt('jobs', %s::bigint, 0)", ids[0])
    assert race.main.column("select msg_id from spanmq.receive('jobs', 9)") == [ids[0], ids[1], ids[3]]


@pytest.mark.parametrize("singly", [False, True])
@pytest.mark.parametrize("group", ["blue", None])
@pytest.mark.parametrize("max_attempts", [None, 5])
def test_who_overslept_settles_nothing_behind_what_another_has(
    race: Race, max_attempts: int | None, group: str | None, singly: bool
) -> None:
    race.main.rows(
        "select spanmq.set_policy('jobs', jsonb_build_object('max_attempts', %s::int))", max_attempts
    )
    headers = f'{{"x-pgmq-group": "{group}"}}' if group else None
    call = "pgmq.send('jobs', '1', %s::jsonb)" if singly else SEND
    ids = [each for _ in range(6 if singly else 1) for each in race.main.column(f"select {call}", headers)]
    overslept = race.main.value("select max(lease_id) from spanmq.receive('jobs', 6, -1)")
    assert race.main.value("select pgmq.delete('jobs', %s::bigint)", ids[1])
    taken = race.main.rows("select msg_id, lease_id from spanmq.receive('jobs', 1)")
    assert [each for each, _ in taken] == ids[:1]
    for call in (*map("{}('jobs', %s, %s)".format, ("ack", "nack", "reject")), "extend('jobs', %s, %s, 60)"):
        rows = race.main.rows(f"select msg_id, outcome from {qualified(call)}", overslept, ids)
        assert rows == [(each, "stale") for each in ids], call
    assert race.main.rows(ACK, taken[0][1], ids[0]) == [("acked",)]
    seen: list[int] = []
    while rows := race.main.rows("select msg_id, lease_id from spanmq.receive('jobs', 6)"):
        seen += [each for each, _ in rows]
        race.main.rows("select spanmq.ack('jobs', %s, %s)", rows[0][1], [each for each, _ in rows])
    assert seen == ids[2:], "and each of them is delivered once more, in order"


@pytest.mark.parametrize(("fate", "outcome"), [("commit", "stale"), ("rollback", "acked")])
def test_ack_under_a_lease_that_ran_out_meets_an_open_claim(race: Race, fate: str, outcome: str) -> None:
    one, two, _, _ = leased(race)
    race.main.rows("select pgmq.purge_queue('jobs')")
    ids = [each for _ in range(4) for each in race.main.column("select pgmq.send('jobs', '1')")]
    overslept = race.main.value("select max(lease_id) from spanmq.receive('jobs', 4, -1, 4)")
    one.begin()
    assert one.column("select msg_id from spanmq.receive('jobs', 1)") == ids[:1]
    # Not one after the other: each is looked for, and then locked, by itself.
    later = two.waiting("select outcome from spanmq.ack('jobs', %s, %s)", overslept, [ids[1], ids[3]])
    one.end(fate)
    assert later.rows() == [(outcome,)] * 2


def test_retry_is_not_delivered_before_a_fresh_message_that_another_session_settles(race: Race) -> None:
    header = '{"x-pgmq-group": "blue"}'
    ids = race.main.column(f"select {SEND.replace('6', '2')}", header)
    # A delay that has ended.
    last = race.main.value("select pgmq.send('jobs', '1', %s::jsonb)", header)
    race.main.rows("select pgmq.set_vt('jobs', %s::bigint, 0)", last)
    settler = race.begun()
    settler.rows("select pgmq.delete('jobs', %s::bigint)", ids[1])
    receive = "select msg_id from spanmq.receive('jobs', 9)"
    assert race.main.rows(receive) == [(ids[0],)]
    settler.commit()
    assert race.main.rows(receive) == []
    race.main.rows("select pgmq.delete('jobs', %s::bigint)", ids[0])
    assert race.main.rows(receive) == [(last,)]


def test_message_behind_a_failed_one_keeps_the_attempt_that_failed(race: Race) -> None:
    race.main.rows("""select spanmq.set_policy('jobs', '{"ordered": true, "max_attempts": 10}')""")
    ids = race.main.column(f"select {SEND.replace('6', '3')}", '{"x-pgmq-group": "blue"}')
    race.main.rows("select spanmq.nack('jobs', %s, %s, retry_in => 0)", race.lease(3), ids)
    race.lease(3, -1)
    received = race.main.rows("select lease_id, msg_id from spanmq.receive('jobs', 3, 30)")
    assert [each for _, each in received] == ids, "one lease that was lost is no reason to deliver alone"
    race.main.rows("select spanmq.nack('jobs', %s, %s, retry_in => 0)", received[0][0], ids[:1])
    assert race.main.rows("select attempts, lost from spanmq_core.unsettled order by msg_id") == [
        (3, 1),
        (2, 1),
        (2, 1),
    ]


MANY = "select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[300]), array_fill(%s::jsonb, array[300]))"
HIDE = "select pgmq.set_vt('jobs', %s::bigint, 3600)"
ORDERED = """select spanmq.set_policy('jobs', '{"ordered": true, "fill_groups": true}')"""


@pytest.mark.parametrize("hidden", ["before", "after", "before a priority"])
def test_message_hidden_far_behind_the_first_ones_of_its_group_holds_those_behind_it(
    race: Race, hidden: str
) -> None:
    if hidden == "after":
        race.main.rows(ORDERED)
    ids = race.main.column(MANY, '{"x-pgmq-group": "blue"}')
    race.main.rows(HIDE, ids[149])
    if hidden == "before a priority":
        race.main.rows("select spanmq.send_messages('jobs', array['1']::jsonb[], priority => 3)")
    race.main.rows(ORDERED)
    received = race.main.column("select msg_id from spanmq.receive('jobs', 300)")
    assert [each for each in received if each in ids] == ids[:149]


READ_HEADS = "select msg_id from pgmq.read_grouped_head('jobs', 3600, 9)"
HIDES = (
    HIDE,
    "select pgmq.set_vt('jobs', array[%s], 3600)",
    "update pgmq.q_jobs set vt = clock_timestamp() + interval '1 hour' where msg_id = %s",
)


@pytest.mark.parametrize("hide", HIDES)
@pytest.mark.parametrize("first_claim", ["earlier", "later", "open"])
def test_message_hidden_behind_those_of_other_groups_holds_those_behind_it(
    race: Race, hide: str, first_claim: str
) -> None:
    race.main.rows("select spanmq.set_policy('jobs', '{\"ordered\": false}')")
    for _ in range(4):
        race.main.rows(MANY, '{"x-pgmq-group": "blue"}')
    first, _ = race.main.column("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[2]))")
    claimer = race.begun()
    if first_claim != "later":
        assert claimer.column("select msg_id from pgmq.read_grouped('jobs', 3600, 1)") == [1]
    if first_claim == "earlier":
        claimer.commit()
    race.main.rows(hide, first)
    if first_claim == "open":
        claimer.commit()
    if first_claim == "later":
        assert race.main.column(READ_HEADS) == [1]
    # All of the group are in flight or wait for those that are.
    assert race.main.column(READ_HEADS) == []


@pytest.mark.parametrize("hide", HIDES)
def test_set_vt_changes_a_message_where_it_is_and_the_first_of_its_group_go_on(race: Race, hide: str) -> None:
    race.main.rows("select spanmq.set_policy('jobs', '{\"ordered\": false}')")
    race.main.rows("select pgmq.send('jobs', '1')")
    assert race.main.column("select pgmq.delete('jobs', msg_id) from pgmq.read_grouped('jobs', 60, 1)") == [
        True
    ]
    for _ in range(5):
        race.main.rows(MANY, '{"x-pgmq-group": "blue"}')
    ids = race.main.column("select msg_id from pgmq.read('jobs', 0, 1200)")
    race.main.rows(hide, ids[-1])
    assert race.main.column("select msg_id from spanmq_core.later") == []
    assert race.main.column("select msg_id from pgmq.read_grouped('jobs', 3600, 1000)") == ids[:1000]


def test_messages_in_both_tables_are_hidden_once_each(race: Race) -> None:
    ids = race.main.column("select pgmq.send('jobs', '1') from generate_series(1, 4)")
    race.main.rows(HIDE, ids[1])
    given = race.main.column("select msg_id from pgmq.set_vt('jobs', %s::bigint[], 60)", ids)
    assert given == ids


@pytest.mark.parametrize("rival", ["pgmq.delete('jobs', %s)", "pgmq.archive('jobs', %s)"])
@pytest.mark.parametrize("verb", ["nack", "reject", "release"])
def test_what_goes_back_with_its_followers_locks_them_in_the_order_of_ids(
    race: Race, verb: str, rival: str
) -> None:
    ids = race.main.column(
        "select pgmq.send_batch('jobs', array['1', '2', '3']::jsonb[], array(select jsonb_build_object("
        "'x-pgmq-group', g) from unnest(array['blue', 'blue', 'green']) g))"
    )
    lease = race.main.value("select max(lease_id) from spanmq.receive('jobs', 3)")
    holder, one, two = race.begun(), race.open(), race.open()
    holder.rows("select spanmq.extend('jobs', %s, %s, 60)", lease, ids[2:])
    # It takes the second along, which follows the first.
    back = one.waiting(f"select outcome from spanmq.{verb}('jobs', %s, %s)", lease, [ids[0], ids[2]])
    gone = two.waiting(f"select {rival}", ids[1:])
    holder.commit()
    assert len(back.rows()) == 2
    assert (ids[1],) in gone.rows()


@pytest.mark.parametrize("hide", HIDES)
def test_message_whose_hiding_was_open_at_the_first_claim_of_groups_holds_those_behind_it(
    race: Race, hide: str
) -> None:
    race.main.rows("select spanmq.set_policy('jobs', '{\"ordered\": false}')")
    for _ in range(4):
        race.main.rows(MANY, '{"x-pgmq-group": "blue"}')
    hidden, last = race.main.column("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[2]))")
    hider = race.begun()
    hider.rows(hide, hidden)
    hider.rows(hide, 1100)
    assert race.main.column(READ_HEADS) == [1]
    hider.commit()
    assert race.main.column(READ_HEADS) == [], "the message without a group waits for the hidden one"
    race.main.rows("select pgmq.delete('jobs', 1::bigint)")
    ids = race.main.column("select msg_id from pgmq.read_grouped('jobs', 3600, 2000)")
    assert ids == list(range(2, 1100))
    race.main.rows("select pgmq.set_vt('jobs', %s::bigint, 0)", hidden)
    assert race.main.column("select msg_id from pgmq.read_grouped('jobs', 3600, 2000)") == [hidden, last]


BLUE = """'{"x-pgmq-group": "blue"}'"""


@pytest.mark.parametrize(
    ("front", "group"), [("set_vt", True), ("set_vt", False), ("redrive", True), ("late send", True)]
)
@pytest.mark.parametrize("late", ["extend('jobs', %s, %s, 60)", "ack('jobs', %s, %s)"])
@pytest.mark.parametrize("meets", ["committed claim", "open claim", "open call"])
def test_lease_that_ran_out_holds_nothing_behind_what_came_in_front_and_another_has(
    race: Race, group: bool, front: str, late: str, meets: str
) -> None:
    headers = BLUE if group else "'{}'"
    send = f"select pgmq.send('jobs', '1', {headers}::jsonb)"
    sender = race.begun()
    (late_sent,) = sender.column(send) if front == "late send" else (0,)
    dead = 0
    if front == "redrive":
        race.main.rows("select spanmq.set_policy('jobs', '{\"redrive_delay\": 0}')")
        dead = race.main.value(send)
        race.main.rows("select spanmq.reject('jobs', %s, array[%s])", race.lease(1), dead)
    ids = [race.main.value(send) for _ in range(4)]
    overslept = race.main.value("select max(lease_id) from spanmq.receive('jobs', 4, -1)")
    if front == "late send":
        sender.commit()
    elif front == "set_vt":
        race.main.rows("select pgmq.set_vt('jobs', %s::bigint, 0)", ids[0])
    else:
        race.main.rows("select spanmq.redrive_message('jobs', %s)", dead)
    first = {"set_vt": ids[0], "redrive": dead, "late send": late_sent}[front]
    arguments = (overslept, ids[1:])
    one, two = race.begun(), race.open()
    receive = "select msg_id from spanmq.receive('jobs', 1)"
    if meets == "open call":
        assert one.rows(f"select * from spanmq.{late}", *arguments)
        assert two.column(receive) == [], "another session may hold a message of the group"
        one.rollback()
        assert two.column(receive) == [first]
    else:
        assert one.column(receive) == [first]
        if meets == "committed claim":
            one.commit()
    call = f"select count(*) from spanmq.{late} where outcome <> 'stale'"
    if meets == "open claim":
        waiting = two.waiting(call, *arguments)
        one.commit()
        assert waiting.rows() == [(0,)]
    else:
        assert two.value(call, *arguments) == 0
    assert race.main.column(receive) == []
