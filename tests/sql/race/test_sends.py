"""Many senders at once: ids, the lock under which they are drawn, and the ends of segments."""

import random
import threading

import psycopg
import pytest
from tests.sql.race.sessions import Race, Session, together

BATCH = "select pgmq.send_batch(%s, array_fill('1'::jsonb, array[%s]))"
LAST = "select pg_sequence_last_value(ids) from spanmq_core.queue where queue_id = %s"


def go_to(race: Race, next_id: int) -> None:
    race.main.rows(f"select setval('pgmq.q_{race.queue}_msg_id_seq', %s)", next_id - 1)


def hold_draw_lock(race: Race, session: Session) -> None:
    session.rows(
        "select pg_advisory_lock(ids::oid::bigint) from spanmq_core.queue where queue_id = %s", race.queue_id
    )


def advisory_locks(session: Session) -> int:
    """Count the advisory locks that a session holds."""
    return int(
        session.value(
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
        )
    )


def locks(race: Race) -> int:
    """Count what somebody has locked of the queue."""
    return int(
        race.main.value(
            "select count(*) - (select count(*) from (select from spanmq_core.lock f where f.queue_id = %s"
            " for update skip locked) free) from spanmq_core.lock where queue_id = %s",
            race.queue_id,
            race.queue_id,
        )
    )


def test_batches_have_ids_of_their_own(race: Race) -> None:
    drawn: list[list[int]] = []
    singles: list[int] = []

    def send(session: Session, chance: random.Random) -> None:
        for _ in range(30):
            if chance.random() < 0.5:
                singles.append(session.value("select pgmq.send(%s, '1')", race.queue))
            else:
                drawn.append(session.column(BATCH, race.queue, chance.choice((2, 20, 21, 50, 100, 400))))

    together(race, send)
    # Other senders may come between, but no two messages share an id, and the ids of a batch ascend.
    assert all(ids == sorted(ids) for ids in drawn)
    every = [*singles, *(each for ids in drawn for each in ids)]
    assert sorted(every) == race.left()


def test_lock_for_drawing_ends_with_the_draw(race: Race) -> None:
    one = race.begun()
    one.rows(BATCH, race.queue, 100)
    assert advisory_locks(one) == 0
    one.commit()


def test_batch_does_not_wait_for_another_draw(race: Race) -> None:
    one, two = race.open(), race.open()
    # Any role may take an advisory lock.
    hold_draw_lock(race, one)
    for size in (1, 20, 21, 1000):
        later = two.later(BATCH, race.queue, size)
        assert not later.waits()
        assert len(later.rows()) == size
    assert advisory_locks(two) == 0


def test_tasks_of_one_bulk_write_draw_their_ids_in_turn(race: Race) -> None:
    # Each run of ids is a block, which is copied by a statement of its own: two that drew at once would have thousands.
    reserve = "select first_id, last_id from spanmq.bulk_reserve(%s, 'w', 0, 5000)"
    race.main.rows(reserve, race.queue)
    one, two = race.begun(), race.open()
    [(_, last)] = one.rows(reserve, race.queue)
    later = two.waiting(reserve, race.queue)
    one.commit()
    assert later.rows() == [(last + 1, last + 5000)]


def test_cancelled_draw_leaves_nothing_locked(race: Race) -> None:
    one, two, three = race.open(), race.begun(), race.open()
    # A draw waits here while another transaction changes the sequence.
    one.begin()
    one.rows(f"alter sequence pgmq.q_{race.queue}_msg_id_seq cache 1")
    two.rows("savepoint before")
    later = two.waiting(BATCH, race.queue, 100)
    race.main.rows("select pg_cancel_backend(%s)", two.pid)
    with pytest.raises(psycopg.errors.QueryCanceled):
        later.rows()
    two.rows("rollback to before")
    one.commit()
    assert advisory_locks(two) == 0
    assert len(three.rows(BATCH, race.queue, 100)) == 100
    assert len(two.rows(BATCH, race.queue, 100)) == 100
    two.commit()
    assert len(race.left()) == 200


@pytest.mark.parametrize("is_maintained", [True, False])
def test_segments_end_among_many_senders(race: Race, is_maintained: bool) -> None:
    race.main.rows("update spanmq_core.queue set segment_size = 256 where queue_id = %s", race.queue_id)
    go_to(race, 16300)
    sent: list[int] = []
    mutex = threading.Lock()

    def send(session: Session, chance: random.Random) -> None:
        for _ in range(25):
            session.begin()
            ids = session.column(BATCH, race.queue, chance.choice((1, 3, 90, 300)))
            if is_maintained and chance.random() < 0.2:
                session.commit()
                session.rows("select * from spanmq.maintain()")
            elif chance.random() < 0.2:
                session.rollback()
                continue
            else:
                session.commit()
            with mutex:
                sent.extend(ids)

    together(race, send)
    assert race.left() == sorted(sent)
    assert sorted(race.main.column("select msg_id from pgmq.read(%s, 30, 100000)", race.queue)) == sorted(
        sent
    )


def test_first_message_of_a_segment_holds_up_nobody_at_the_next(race: Race) -> None:
    # The next segment stands ready, so who draws the first id has nothing to make, and nothing to lock.
    race.main.rows("update spanmq_core.queue set segment_size = 256 where queue_id = %s", race.queue_id)
    go_to(race, 10_000)
    race.main.rows("select * from spanmq.maintain()")
    one, two = race.open(), race.open()
    first_ids = race.main.column(
        "select lo from spanmq_core.segment where queue_id = %s order by lo", race.queue_id
    )
    go_to(race, first_ids[1])
    one.begin()
    assert one.value("select pgmq.send(%s, '1')", race.queue) == first_ids[1]
    assert locks(race) == 0
    go_to(race, first_ids[2])
    later = two.later("select pgmq.send(%s, '1')", race.queue)
    assert not later.waits()
    later.rows()
    one.commit()


def test_two_that_need_the_same_new_segment_make_one(race: Race) -> None:
    race.main.rows("update spanmq_core.queue set segment_size = 256 where queue_id = %s", race.queue_id)
    one, two = race.open(), race.open()
    go_to(race, 20000)
    one.begin()
    one.rows("select pgmq.send(%s, '1')", race.queue)
    later = two.later("select pgmq.send(%s, '2')", race.queue)
    # It can't know whether the segment will be there: the last resort, if nobody calls maintain().
    assert later.waits()
    one.rollback()
    later.rows()
    assert race.left() == [20001]
    assert race.main.value("select count(*) from spanmq_core.segment where lo <= 20001 and hi >= 20001") == 1


def test_maintain_goes_on_while_a_sender_makes_a_segment(race: Race) -> None:
    one, two = race.open(), race.open()
    go_to(race, 20000)
    one.begin()
    one.rows("select pgmq.send(%s, '1')", race.queue)
    later = two.later("select * from spanmq.maintain()")
    later.rows()
    one.commit()
    assert race.left() == [20000]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_old_snapshot_makes_no_second_segment(race: Race, isolation: str) -> None:
    # Its last segment is another's last but one: it would make one that overlaps with what it can't see.
    old = race.open()
    old.begin(isolation)
    old.rows("select 1 from spanmq_core.segment")
    race.main.rows("update spanmq_core.queue set segment_size = 65536 where queue_id = %s", race.queue_id)
    go_to(race, 16384)
    race.send(10, new_block=False)
    go_to(race, 16384 + 32768)
    with pytest.raises(psycopg.errors.SerializationFailure):
        old.rows(BATCH, race.queue, 1)
    old.rollback()
    assert len(race.left()) == 10


def test_cancelled_sender_at_the_end_of_a_segment_leaves_nothing_locked(race: Race) -> None:
    one, two, three = race.open(), race.open(), race.open()
    go_to(race, 20000)
    one.begin()
    one.rows("select pgmq.send(%s, '1')", race.queue)
    later = two.waiting("select pgmq.send(%s, '2')", race.queue)
    race.main.rows("select pg_cancel_backend(%s)", two.pid)
    with pytest.raises(psycopg.errors.QueryCanceled):
        later.rows()
    one.commit()
    assert locks(race) == 0
    assert not three.later("select pgmq.send(%s, '3')", race.queue).waits()
    assert len(race.left()) == 2
    assert race.main.value(LAST, race.queue_id) == 20002
