"""Ids of which one message is pending, or that stand for a time: senders, receivers and redrives at once."""

import random

import pytest
from tests.sql.queue import sqlstate_of
from tests.sql.race.sessions import Later, Race, Session, together

SEND = """
    select spanmq.send_messages(
        'jobs', array_fill('1'::jsonb, array[cardinality(%(ids)s::text[])]), dedup_ids => %(ids)s::text[],
        dedup_until => %(until)s, on_duplicate => %(mode)s)
"""
CLAIM = "select msg_id, lease_id from spanmq.receive('jobs')"
REDRIVE = "select msg_id, beside from spanmq.redrive('jobs', delay => 0)"
DOUBLE = """
    select headers->>'x-spanmq-dedup-id', array_agg(msg_id) from pgmq.q_jobs group by 1 having count(*) > 1
"""


def given(*ids: str, until: str | None = "settled", mode: str = "keep") -> dict[str, object]:
    return {"ids": list(ids), "until": until, "mode": mode}


def send(session: Session, *ids: str, until: str | None = "settled", mode: str = "keep") -> list[int]:
    return session.column(SEND, given(*ids, until=until, mode=mode))


def sending(session: Session, *ids: str, until: str | None = "settled", mode: str = "keep") -> Later:
    """Start a send that waits for another transaction."""
    return session.waiting(SEND, given(*ids, until=until, mode=mode))


def only(later: Later) -> int:
    [(message_id,)] = later.rows()
    assert isinstance(message_id, int)
    return message_id


@pytest.mark.parametrize("fate", ["commit", "rollback"])
@pytest.mark.parametrize(
    ("until", "mode"),
    [("settled", "keep"), ("started", "keep"), ("settled", "replace"), ("settled", "raise"), (None, "keep")],
)
def test_second_sender_waits_for_the_first(race: Race, until: str | None, mode: str, fate: str) -> None:
    one, two = race.begun(), race.open()
    [first] = send(one, "a", until=until)
    later = sending(two, "b", "a", until=until, mode=mode)
    one.end(fate)
    if fate == "commit" and mode == "raise":
        assert sqlstate_of(race.main.connection, later.rows) == "MQ066"
        assert race.left() == [first]
        return
    [(other,), (second,)] = later.rows()
    assert (second == first) is (fate == "commit" and mode == "keep")
    assert race.left() == sorted([other, second])


@pytest.mark.parametrize("fate", ["commit", "rollback"])
def test_sender_waits_for_the_claim_of_a_message_that_may_be_started(race: Race, fate: str) -> None:
    one, two, three, four = (race.open() for _ in range(4))
    assert send(one, "a", "b") == [1, 2]
    one.begin()
    assert one.value(CLAIM) == 1
    started = sending(two, "a", until="started")
    replacing = sending(three, "a", mode="replace")
    # What is pending until it is settled is so now, and no other message is waited for.
    assert send(four, "a") == [1]
    assert send(four, "b", until="started") == [2]
    one.end(fate)
    assert only(started) == (3 if fate == "commit" else 1)
    replaced = only(replacing)
    states = race.main.column("select spanmq.state('jobs', i) from generate_series(1, %s) i", replaced)
    # The one that is in flight, or was in the queue with the id.
    assert states[0] == ("processing" if fate == "commit" else "cancelled")
    assert states[-1] == "pending"


def test_receiver_that_sends_with_the_id_of_its_message_does_not_deadlock(race: Race) -> None:
    one, two = race.open(), race.open()
    for session in (one, two):
        session.rows("set deadlock_timeout = '10ms'")
    assert send(one, "a", until="started") == [1]
    one.begin()
    assert one.value(CLAIM) == 1
    later = sending(two, "a", until="started")
    assert send(one, "a", until="started") == [2]
    one.commit()
    assert only(later) == 2


def test_message_is_not_started_before_the_end_of_those_who_count_on_it(race: Race) -> None:
    one, two = race.open(), race.open()
    assert send(one, "a", until="started") == [1]
    one.begin()
    assert send(one, "a", until="started") == [1]
    assert two.rows(CLAIM) == []
    one.commit()
    assert two.value(CLAIM) == 1


def test_id_is_free_with_the_transaction_that_settles(race: Race) -> None:
    one, two = race.open(), race.open()
    send(one, "a")
    one.begin()
    one.rows("select spanmq.ack('jobs', lease_id, array[msg_id]) from spanmq.receive('jobs')")
    assert send(one, "a") == [2]
    assert send(two, "a") == [1]
    one.rollback()
    assert send(two, "a") == [1]
    two.rows("select pgmq.delete('jobs', 1)")
    assert send(one, "a") == [3]
    assert race.left() == [3]


@pytest.mark.parametrize("fate", ["commit", "rollback"])
@pytest.mark.parametrize("first", ["send", "redrive"])
def test_redrive_and_send_of_one_id_wait_for_each_other(race: Race, first: str, fate: str) -> None:
    one, two = race.open(), race.open()
    send(one, "a")
    one.rows("select spanmq.reject('jobs', lease_id, array[msg_id]) from spanmq.receive('jobs')")
    one.begin()
    if first == "send":
        assert send(one, "a") == [2]
        later = two.waiting(REDRIVE)
        one.end(fate)
        assert later.rows() == [(1, 2 if fate == "commit" else None)]
        assert race.left() == [2 if fate == "commit" else 1]
    else:
        assert one.rows(REDRIVE) == [(1, None)]
        later = sending(two, "a")
        one.end(fate)
        assert only(later) == (1 if fate == "commit" else 2)
        assert len(race.left()) == 1


@pytest.mark.parametrize("until", ["settled", None])
def test_batches_in_opposite_order_do_not_deadlock(race: Race, until: str | None) -> None:
    holder, one, two = race.open(), race.open(), race.open()
    for session in (one, two):
        session.rows("set deadlock_timeout = '10ms'")
    for number in range(3):
        ids = [f"{letter}{number}" for letter in "bca"]
        holder.begin()
        send(holder, ids[0], until=until)
        waiting = []
        for session, own in ((two, ids), (one, ids[::-1])):
            waiting.append(session.later(SEND, given(*own, until=until)))
            assert waiting[-1].waits()
        holder.rollback()
        assert waiting[0].rows() == waiting[1].rows()[::-1]
    assert len(race.left()) == 9


def test_maintenance_passes_over_an_id_that_a_sender_takes(race: Race) -> None:
    one, two = race.open(), race.open()
    send(one, "a", "b", "c")
    race.main.rows("select pgmq.delete('jobs', array[1, 2])")
    race.main.rows("update spanmq_core.dedup_holder set look_at = clock_timestamp()")
    one.begin()
    [taken] = send(one, "a")
    later = two.later("select spanmq_core.forget_holders(%s, 100)", race.queue_id)
    assert not later.waits()
    assert later.rows() == [(1,)]
    one.commit()
    assert send(two, "a", "c") == [taken, 3]


def test_one_message_is_pending_for_each_id_among_many_sessions(race: Race) -> None:
    def work(session: Session, chance: random.Random) -> None:
        for _ in range(25):
            session.begin()
            act = chance.choice(("send", "send", "send", "ack", "reject", "redrive", "forget"))
            if act == "send":
                send(session, *chance.sample("abcdef", chance.choice((1, 2, 5))))
            elif act == "redrive":
                session.rows(REDRIVE)
            elif act == "forget":
                session.rows("select spanmq_core.forget_holders(%s, 2)", race.queue_id)
            else:
                session.rows(f"select spanmq.{act}('jobs', lease_id, array[msg_id]) from ({CLAIM}) r")
            assert session.rows(DOUBLE) == []
            session.end(chance.choice(("commit", "commit", "rollback")))
            assert session.rows(DOUBLE) == []

    together(race, work)
    assert race.main.rows(DOUBLE) == []
    # Each id that is free can be taken.
    ids = race.main.column("select msg_id from pgmq.q_jobs")
    assert set(send(race.main, *"abcdef")) >= set(ids)
    assert len(race.left()) == 6
