"""Redriving: the same message comes back, once, at its place, whatever has become of its segment."""

from datetime import timedelta

import psycopg
import pytest
from tests.patience import wait_until
from tests.schemas import qualified
from tests.sql import queue
from tests.sql.queue import sqlstate_of
from tests.sql.race.sessions import Race, Session, side_by_side


def kill(race: Race, ids: list[int]) -> None:
    queue.kill(race.main.connection, ids, queue=race.queue)


def send(race: Race, groups: list[str | None]) -> list[int]:
    return race.main.column(
        "select * from pgmq.send_batch(%s, array(select to_jsonb(i) from generate_series(1, %s) i),"
        " array(select jsonb_strip_nulls(jsonb_build_object('x-pgmq-group', g)) from unnest(%s::text[]) g))",
        race.queue,
        len(groups),
        groups,
    )


def redrive(session: Session, more: str = "delay => 0") -> list[int]:
    return session.column(f"select msg_id from spanmq.redrive('jobs', {more})")


def received(race: Race, qty: int = 1000) -> list[int]:
    return race.main.column("select msg_id from spanmq.receive('jobs', %s)", qty)


def maintain(race: Race, until: str) -> None:
    """Keep house until this has been done."""
    done: list[str] = []
    for _ in range(50):
        done += race.main.column("select action from spanmq.maintain()")
        race.wait_for_other_databases()
        if until in done:
            return
    raise AssertionError(f"{until} is not among {done}")


def pass_segment(race: Race) -> None:
    """Let the ids pass the end of the first segment."""
    race.main.value("select setval(ids, 40000) from spanmq_core.queue")
    race.main.value("select pgmq.send('jobs', '\"late\"')")


def test_redriven_message_is_the_same_one_with_its_attempts_anew(race: Race) -> None:
    [id_] = send(race, [None])
    before = race.main.rows("select msg_id, enqueued_at, message, headers from pgmq.q_jobs")
    assert received(race) == [id_]
    kill(race, [id_])
    assert redrive(race.main) == [id_]
    assert race.main.rows("select msg_id, enqueued_at, message, headers from pgmq.q_jobs") == before
    assert race.main.rows("select msg_id, attempt from spanmq.receive('jobs', 10)") == [(id_, 1)]
    marked = race.main.rows("select redriven_at is not null, redriven_as from spanmq_core.dead_letter")
    assert marked == [(True, id_)]


@pytest.mark.parametrize(
    "call", ["redrive('jobs', delay => {delay})", "redrive_message('jobs', {id_}, delay => {delay})"]
)
def test_delay_of_the_call_goes_before_that_of_the_policy(race: Race, call: str) -> None:
    for setting, delay, seconds in ((None, "null", 60), (5, "null", 5), (5, "0", 0), (0, "7", 7)):
        race.main.value(
            "select spanmq.set_policy('jobs', jsonb_build_object('redrive_delay', %s::int))", setting
        )
        [id_] = send(race, [None])
        kill(race, [id_])
        before = race.main.value("select clock_timestamp()")
        race.main.rows(f"select {qualified(call.format(id_=id_, delay=delay))}")
        latest = race.main.value("select clock_timestamp()")
        visible_at = race.main.value("select vt from pgmq.q_jobs where msg_id = %s", id_)
        assert before <= visible_at - timedelta(seconds=seconds) <= latest
        assert received(race) == ([] if seconds else [id_])


def test_rate_spreads_them_and_nothing_waits(race: Race) -> None:
    ids = send(race, [None] * 300)
    kill(race, ids)
    slowly = "from spanmq.redrive('jobs', rate => 0.001, dry_run => true)"
    assert race.main.value(f"select min(visible_at) < clock_timestamp() + interval '500 s' {slowly}")
    timed = "select msg_id, visible_at from spanmq.redrive('jobs', rate => 10, delay => 5"
    planned = race.main.rows(f"{timed}, dry_run => true)")
    assert (race.left(), race.main.value("select n from spanmq.count_dead_letters('jobs')")) == ([], 300)
    done = race.main.rows(f"{timed})")
    assert [id_ for id_, _ in planned] == [id_ for id_, _ in done] == ids
    seconds = [(at - done[0][1]).total_seconds() for _, at in done]
    assert seconds == pytest.approx([n / 10 for n in range(300)])
    assert race.main.rows("select msg_id, vt from pgmq.q_jobs order by 1") == done


def test_filters_and_quantity_choose_the_lowest_ids(race: Race) -> None:
    ids = send(race, [None] * 10)
    kill(race, ids[5:])
    kill(race, ids[:5])
    assert redrive(race.main, "qty => 3, delay => 0") == ids[:3]
    assert redrive(race.main, "payload => '9', delay => 0") == [ids[8]]
    assert redrive(race.main, "category => 'BUSINESS'") == []
    assert redrive(race.main, "error => 'BOOM', delay => 0") == [*ids[3:8], ids[9]]
    assert received(race) == ids


def test_dead_letter_is_put_back_once_by_two_at_once(race: Race) -> None:
    ids = send(race, [None] * 10)
    kill(race, ids)
    first, second = race.begun(), race.open()
    assert redrive(first, "qty => 6") == ids[:6]
    # The second skips what the first is at, and is not held up.
    assert redrive(second) == ids[6:]
    assert second.value("select spanmq.purge_dead_letters('jobs')") == 0
    first.commit()
    assert redrive(second) == []
    assert race.left() == ids


@pytest.mark.parametrize("fate", ["commit", "rollback"])
def test_one_message_is_put_back_by_who_comes_first(race: Race, fate: str) -> None:
    [id_] = send(race, [None])
    kill(race, [id_])
    first, second = race.begun(), race.open()
    first.value("select spanmq.redrive_message('jobs', %s)", id_)
    later = second.waiting("select spanmq.redrive_message('jobs', %s)", id_)
    first.end(fate)
    if fate == "commit":
        assert sqlstate_of(race.main.connection, later.rows) == "MQ021"
    else:
        assert later.rows() == [(id_,)]
    assert race.left() == [id_]
    assert race.main.column("select n from spanmq.count_dead_letters('jobs')") == []


def test_many_at_once_put_each_back_once(race: Race) -> None:
    ids = send(race, [None] * 200)
    kill(race, ids)
    sessions = [race.open() for _ in range(4)]
    mine: list[list[int]] = [[] for _ in sessions]

    def work(n: int) -> None:
        while some := redrive(sessions[n], "qty => 7, delay => 0"):
            mine[n] += some

    side_by_side(*(lambda n=n: work(n) for n in range(4)))
    assert sorted(id_ for some in mine for id_ in some) == ids
    assert race.left() == ids


def test_message_may_die_again_and_be_put_back_again(race: Race) -> None:
    [id_] = send(race, [None])
    for _ in range(3):
        kill(race, [id_])
        assert redrive(race.main) == [id_]
    assert race.main.value("select count(*) from spanmq_core.dead_letter where redriven_as = %s", id_) == 3
    assert received(race) == [id_]


def test_repaired_message_has_the_new_body_and_its_place(race: Race) -> None:
    ids = send(race, ["g", "g", "g"])
    kill(race, ids[:2])
    call = "select spanmq.redrive_message('jobs', %s, %s, %s, 0)"
    assert race.main.value(call, ids[0], '{"repaired": 1}', '{"x-pgmq-group": "g", "by": "me"}') == ids[0]
    assert race.main.value(call, ids[1], "null", None) == ids[1]
    assert race.main.rows("select msg_id, message, headers from pgmq.read_grouped('jobs', 30, 9)") == [
        (ids[0], {"repaired": 1}, {"x-pgmq-group": "g", "by": "me"}),
        (ids[1], None, {"x-pgmq-group": "g"}),
        (ids[2], 3, {"x-pgmq-group": "g"}),
    ]


def test_changed_message_goes_into_the_group_that_it_names(race: Race) -> None:
    race.main.rows(
        "select spanmq.set_policy('jobs', '{\"ordered\": true, \"dead_letter_blocks_group\": true}')"
    )
    ids = send(race, ["a", "a", "b", "b"])
    kill(race, [ids[0]])
    call = "select spanmq.redrive_message('jobs', %s, headers => %s, delay => 0)"
    assert race.main.value(call, ids[0], '{"x-pgmq-group": "b"}') == ids[0]
    # Its old group is free, and in the new one it comes by its id.
    assert sorted(race.main.column("select msg_id from spanmq.receive('jobs', 2)")) == ids[:2]
    assert race.main.value("select code from spanmq.explain('jobs', %s)", ids[2]) == "behind"


def test_patch_of_the_place_of_groups_changes_the_group(race: Race) -> None:
    race.main.rows(
        'select spanmq.set_policy(\'jobs\', \'{"group_by": "$.tenant", "max_in_flight_per_group": 1}\')'
    )
    bodies = ['{"tenant": "a"}', '{"tenant": "b"}']
    ids = race.main.column("select pgmq.send_batch('jobs', %s::text[]::jsonb[])", bodies)
    kill(race, ids[:1])
    [taken] = race.main.column("select msg_id from spanmq.receive('jobs', 9)")
    patch = '[{"op": "replace", "path": "/tenant", "value": "b"}]'
    assert redrive(race.main, f"delay => 0, patch => '{patch}'") == ids[:1]
    # Its new group is full.
    assert (taken, race.main.column("select msg_id from spanmq.receive('jobs', 9)")) == (ids[1], [])
    assert race.main.value("select code from spanmq.explain('jobs', %s)", ids[0]) == "group_full"


def test_order_within_groups_is_kept(race: Race) -> None:
    ids = send(race, ["a", "b"] * 5)
    kill(race, ids[1:7])
    later = send(race, ["a", "b"])
    assert redrive(race.main, "qty => 4, delay => 0") == ids[1:5]
    assert redrive(race.main) == ids[5:7]
    rows = race.main.rows("select msg_id, headers->>'x-pgmq-group' from pgmq.read_grouped('jobs', 30, 99)")
    of = {group: [id_ for id_, other in rows if other == group] for group in ("a", "b")}
    assert of == {"a": [*ids[::2], later[0]], "b": [*ids[1::2], later[1]]}


@pytest.mark.parametrize("delay", [0, 3600])
def test_redriven_head_of_a_group_waits_for_what_is_in_work_and_all_behind_it_wait(
    race: Race, delay: int
) -> None:
    race.main.rows("""select spanmq.set_policy('jobs', '{"ordered": true}')""")
    ids = send(race, ["a"] * 4)
    receive = "select msg_id from spanmq.receive('jobs', %s)"
    kill(race, ids[:1])
    # Its group went on without it.
    ((lease, second),) = race.main.rows("select lease_id, msg_id from spanmq.receive('jobs', 1)")
    assert second == ids[1]
    putter = race.begun()
    assert redrive(putter, f"delay => {delay}") == ids[:1]
    assert race.main.column(receive, 9) == []
    putter.commit()
    assert race.main.column(receive, 9) == [], "another of its group is in work"
    race.main.rows("select spanmq.ack('jobs', %s, %s)", lease, [second])
    if delay:
        assert race.main.column(receive, 9) == [], "it stands before them"
        race.main.rows("select pgmq.set_vt('jobs', %s, 0)", ids[0])
    assert race.main.column(receive, 2) == [ids[0], ids[2]]
    assert race.main.column(receive, 9) == []


def test_priority_comes_back(race: Race) -> None:
    low, high = (
        race.main.value("select spanmq.send_messages('jobs', array['1'::jsonb], priority => %s)", priority)
        for priority in (0, 9)
    )
    kill(race, [low, high])
    redrive(race.main)
    assert race.main.rows("select msg_id, priority from spanmq_core.unsettled order by msg_id") == [
        (low, None),
        (high, 9),
    ]


def test_expiry_that_is_past_is_taken_off(race: Race) -> None:
    ids = [
        race.main.value("select spanmq.send_messages('jobs', array['1'::jsonb], expires_in => %s)", seconds)
        for seconds in (1e-6, 1000)
    ]
    kill(race, ids)
    assert redrive(race.main) == ids
    rows = race.main.rows("select msg_id, headers ? 'x-spanmq-expires-at' from pgmq.q_jobs order by 1")
    assert [has for _, has in rows] in ([None, True], [False, True])


# The row of a message in the log may be anywhere on its way out.


def test_message_comes_back_when_its_segment_has_gone(race: Race) -> None:
    ids = send(race, ["g"] * 3)
    kill(race, ids)
    pass_segment(race)
    maintain(race, "dropped segment")
    # Two steps: the second finds the segment that the first has made.
    assert redrive(race.main, "qty => 1, delay => 0") == ids[:1]
    assert redrive(race.main) == ids[1:]
    assert race.main.rows("select msg_id, message from pgmq.read_grouped('jobs', 30, 3)") == [
        (id_, n + 1) for n, id_ in enumerate(ids)
    ]
    assert race.main.value("select count(*) from pgmq.delete('jobs', %s)", ids) == 3
    maintain(race, "dropped segment")
    assert race.main.value("select message from pgmq.q_jobs") == "late"


def test_one_segment_is_made_for_all_that_have_gone(race: Race) -> None:
    ids = []
    for n in range(1, 6):
        race.main.value("select setval(ids, %s) from spanmq_core.queue", n * 40_000)
        ids += send(race, [None] * 2)
    kill(race, ids)
    race.main.value("select setval(ids, 400000) from spanmq_core.queue")
    race.main.value("select pgmq.send('jobs', '0')")
    for _ in range(60):
        if not race.main.value("select count(*) from spanmq_core.segment where hi < 300000"):
            break
        race.wait_for_other_databases()
        race.main.rows("select * from spanmq.maintain()")
    before = race.main.value("select count(*) from spanmq_core.segment")
    assert redrive(race.main) == ids
    assert race.main.value("select count(*) from spanmq_core.segment") == before + 1
    assert received(race)[:10] == ids


def test_message_comes_back_when_its_segment_was_truncated(race: Race) -> None:
    ids = send(race, [None] * 3)
    kill(race, ids)
    pass_segment(race)
    maintain(race, "truncated segment")
    assert redrive(race.main) == ids
    for _ in range(10):
        race.main.rows("select * from spanmq.maintain()")
    assert received(race)[:3] == ids


def test_message_comes_back_into_the_copy_of_its_segment(race: Race) -> None:
    ids = send(race, [None] * 2000)
    kill(race, ids[:1990])
    pass_segment(race)
    maintain(race, "copied segment")
    assert redrive(race.main, "qty => 2, delay => 0") == ids[:2]
    maintain(race, "rewrote segment")
    assert redrive(race.main, "qty => 2, delay => 0") == ids[2:4]
    maintain(race, "dropped old table of segment")
    assert redrive(race.main, "qty => 2, delay => 0") == ids[4:6]
    assert race.main.rows("select msg_id, message from spanmq.receive('jobs', 7)") == [
        (ids[n], n + 1) for n in [*range(6), 1990]
    ]


def test_maintain_lets_a_segment_be_that_a_message_comes_back_into(race: Race) -> None:
    ids = send(race, [None] * 3)
    kill(race, ids)
    pass_segment(race)
    maintain(race, "truncated segment")
    session = race.begun()
    assert redrive(session) == ids
    for _ in range(5):
        assert "dropped segment" not in race.main.column("select action from spanmq.maintain()")
    session.commit()
    for _ in range(5):
        race.main.rows("select * from spanmq.maintain()")
    assert received(race)[:3] == ids


def test_segment_is_looked_at_again_when_maintain_has_waited_for_it(race: Race) -> None:
    ids = send(race, [None] * 3)
    kill(race, ids)
    pass_segment(race)
    maintain(race, "truncated segment")
    # Nobody looks back to before the truncation; the horizon moves by a step a look.
    wait_until(
        lambda: race.main.value(
            "select spanmq_core.horizon() > s.settled_at_xid from spanmq_core.segment s where s.state = 'truncated'"
        )
    )
    session, keeper = race.begun(), race.open()
    assert redrive(session) == ids
    # What maintain() does, but patient.
    later = keeper.waiting(
        "select r.action from spanmq_core.queue q, spanmq_core.retire_segments(q, 40001) r"
    )
    session.commit()
    assert later.rows() == []
    assert received(race)[:3] == ids


def test_redrive_in_an_old_snapshot_is_right_or_fails_cleanly(race: Race) -> None:
    ids = send(race, [None] * 3)
    kill(race, ids)
    session = race.open()
    session.begin("repeatable read")
    session.value("select 1 from pgmq.q_jobs")
    assert redrive(race.main, "qty => 1") == ids[:1]
    with pytest.raises(psycopg.errors.SerializationFailure):
        redrive(session)
    session.rollback()
    assert redrive(session) == ids[1:]
