"""Senders of the same deduplication id, or the same group, at once."""

import random
import threading
from itertools import pairwise

import psycopg
import pytest
from tests.patience import WAIT_SECONDS
from tests.sql.queue import sqlstate_of
from tests.sql.race.sessions import Race, Session, side_by_side, together

ONCE = """
    select spanmq.send_messages(
        %s, array_fill('1'::jsonb, array[cardinality(%s::text[])]), dedup_ids => %s::text[])
"""
ORDERED = """
    select spanmq.send_messages(%s, '{1}', array[jsonb_build_object('x-pgmq-group', %s::text)], ordered => true)
"""

HEADS = "select msg_id from spanmq_core.state where queue_id = %s and group_key = 'x'"


def once(session: Session, race: Race, *ids: str) -> list[int]:
    return session.column(ONCE, race.queue, list(ids), list(ids))


@pytest.mark.parametrize("fate", ["commit", "rollback"])
def test_second_with_another_fingerprint_is_refused_once_the_first_commits(race: Race, fate: str) -> None:
    text = f"{ONCE.rstrip().removesuffix(')')}, fingerprint => %s)"
    one, two = race.begun(), race.open()
    one.rows(text, race.queue, ["a"], ["a"], "x")
    later = two.waiting(text, race.queue, ["b", "a"], ["b", "a"], "y")
    one.end(fate)
    if fate == "commit":
        assert sqlstate_of(race.main.connection, later.rows) == "MQ063"
    else:
        assert len(later.rows()) == 2
    assert len(race.left()) == (1 if fate == "commit" else 2)


def test_each_id_is_sent_once_by_many(race: Race) -> None:
    given: dict[str, set[int]] = {}

    def send(session: Session, chance: random.Random) -> None:
        for _ in range(30):
            session.begin()
            ids = [f"id {chance.randrange(60)}" for _ in range(chance.choice((1, 3, 30)))]
            sent = once(session, race, *ids)
            fate = chance.choice(("commit", "commit", "rollback"))
            session.end(fate)
            if fate == "commit":
                for own, message_id in zip(ids, sent, strict=True):
                    given.setdefault(own, set()).add(message_id)

    together(race, send)
    assert all(len(ids) == 1 for ids in given.values())
    assert sorted(next(iter(ids)) for ids in given.values()) == race.left()


def test_expired_id_is_taken_by_one(race: Race) -> None:
    one, two = race.open(), race.open()
    once(one, race, "a")
    race.main.rows("update spanmq_core.deduplication set until = clock_timestamp()")
    one.begin()
    [second] = once(one, race, "a")
    later = two.waiting(ONCE, race.queue, ["a"], ["a"])
    one.commit()
    assert later.rows() == [(second,)]
    assert second > 1


def test_maintain_passes_over_an_id_that_a_sender_holds(race: Race) -> None:
    one, two = race.open(), race.open()
    once(one, race, "a", "b")
    race.main.rows("update spanmq_core.deduplication set until = clock_timestamp()")
    one.begin()
    once(one, race, "a")
    later = two.later("select spanmq_core.forget_duplicates(%s, 100)", race.queue_id)
    assert not later.waits()
    assert later.rows() == [(1,)]
    one.commit()


def test_old_snapshot_is_told_to_try_again(race: Race) -> None:
    one, two = race.open(), race.open()
    one.begin("repeatable read")
    one.rows("select 1 from pgmq.meta")
    once(two, race, "a")
    with pytest.raises(psycopg.errors.SerializationFailure):
        once(one, race, "a")
    one.rollback()


def test_ordered_senders_of_a_group_commit_in_the_order_of_ids(race: Race) -> None:
    one, two, three, four = (race.open() for _ in range(4))
    one.begin()
    first = one.value(ORDERED, race.queue, "x")
    later = two.waiting(ORDERED, race.queue, "x")
    # Nobody else waits: another group, and who does not ask for order.
    assert not three.later(ORDERED, race.queue, "y").waits()
    assert not four.later("select spanmq.send_messages(%s, '{1}')", race.queue).waits()
    one.commit()
    [(second,)] = later.rows()
    assert second > first


def test_messages_without_a_group_are_one(race: Race) -> None:
    one, two = race.begun(), race.open()
    one.value("select spanmq.send_messages(%s, '{1}', ordered => true)", race.queue)
    later = two.waiting("select spanmq.send_messages(%s, '{1}', ordered => true)", race.queue)
    one.rollback()
    later.rows()


def test_ids_of_a_group_are_seen_in_order(race: Race) -> None:
    reader = race.open()
    sending = threading.Event()
    looks = threading.Semaphore(0)
    seen: list[set[int]] = []

    def send(session: Session, chance: random.Random) -> None:
        for number in range(40):
            # Whoever is quicker: there are looks between the first sends and the last ones.
            assert number % 8 or looks.acquire(timeout=WAIT_SECONDS)
            session.begin()
            session.value(ORDERED, race.queue, "x")
            session.rows("select pgmq.send(%s, '0')", race.queue)  # something that takes a moment
            session.commit()

    def look() -> None:
        while not sending.is_set():
            seen.append(set(reader.column(HEADS, race.queue_id)))
            looks.release()

    def send_all() -> None:
        together(race, send)
        sending.set()

    side_by_side(look, send_all, finally_do=sending.set)
    for before, after in pairwise(seen):
        # What appears is newer than all that was there.
        assert max(before, default=0) < min(after - before, default=10**9)


def test_first_use_of_priorities_is_noted_once(race: Race) -> None:
    one, two = race.open(), race.open()
    one.value("select spanmq.send_messages(%s, '{1}', priority => 1)", race.queue)
    one.begin()
    one.value("select spanmq.send_messages(%s, '{1}', priority => 1)", race.queue)
    # Nobody holds the queue's row any more.
    assert not two.later("select spanmq.set_policy(%s, '{\"max_attempts\": 3}')", race.queue).waits()
    one.commit()


def test_first_priority_and_a_new_backlog_limit_do_not_deadlock(race: Race) -> None:
    race.main.rows("""select spanmq.set_policy('jobs', '{"max_backlog": 10}')""")
    holder, governor, sender = race.begun(), race.open(), race.open()
    holder.rows("select from spanmq_core.queue where queue_id = %s for update", race.queue_id)
    setting = governor.waiting("""select spanmq.set_policy('jobs', '{"max_backlog": 20}')""")
    sending = sender.waiting("select spanmq.send_messages('jobs', '{1}', priority => 1)")
    holder.commit()
    assert len(setting.rows()) == len(sending.rows()) == 1
