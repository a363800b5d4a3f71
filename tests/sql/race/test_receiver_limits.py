"""Limits on receivers hold whoever receives at the same time, and nobody waits long for them."""

import random
import threading
from collections import Counter

import pytest
from tests.sql.queue import change_state, send_groups
from tests.sql.race.sessions import Race, Session, together

MESSAGES = 240
RECEIVE = "select msg_id from spanmq.receive(%s, %s, 3600)"


def send(race: Race, groups: int) -> list[int]:
    return send_groups(race.main.connection, race.queue, MESSAGES, f"'g' || i %% {groups}")


@pytest.mark.parametrize(
    ("policy", "most"),
    [
        ('{"max_in_flight": 7}', 7),
        ('{"max_in_flight": 7, "ordered": true}', 7),
        # So many that claims go side by side where there is room.
        ('{"max_in_flight": 64}', 64),
    ],
)
def test_never_more_than_max_in_flight(race: Race, policy: str, most: int) -> None:
    ids = send(race, 40)
    race.main.value("select spanmq.set_policy(%s, %s)", race.queue, policy)
    mutex = threading.Lock()
    held = 0
    delivered: Counter[int] = Counter()

    def work(session: Session, chance: random.Random) -> None:
        nonlocal held
        kept: list[int] = []
        while delivered.total() < len(ids):
            got = session.column(RECEIVE, race.queue, 1 if most > 7 else chance.randint(1, 5))
            with mutex:
                held += len(got)
                assert held <= most
                delivered.update(got)
            if most > 7 and chance.random() < 0.6 and delivered.total() < len(ids):
                kept += got
                got = []
            elif kept:
                got, kept = got + kept, []
            for part in (got[:1], got[1:]):
                # Counted out before it is: whoever takes the room that this makes counts in after.
                with mutex:
                    held -= len(part)
                session.rows("select pgmq.delete(%s, %s::bigint[])", race.queue, part)

    together(race, work)
    assert delivered == Counter(ids)


def test_transactions_that_claim_many_times_keep_to_the_limit(race: Race) -> None:
    # Nobody sees what another transaction has claimed: each took up to half of the limit.
    # Enough runs for each: the rest of one that is split waits for the commit.
    for _ in range(4):
        race.send(40)
    race.main.value("select spanmq.set_policy(%s, '{\"max_in_flight\": 64}')", race.queue)
    holders = [race.open() for _ in range(3)]
    for holder in holders:
        holder.begin()
    # One each; then they are in each other's way until they end.
    taken = [len(holder.column(RECEIVE, race.queue, 1)) for _ in range(2) for holder in holders]
    assert taken == [1, 1, 1, 0, 0, 0]
    for holder in holders:
        holder.commit()
    assert len(race.main.column(RECEIVE, race.queue, 100)) == 64 - 3


def test_who_rolls_a_claim_back_or_commits_it_may_claim_again(race: Race) -> None:
    race.send(20)
    race.send(20)
    race.main.value("select spanmq.set_policy(%s, '{\"max_in_flight\": 64}')", race.queue)
    holder, other = race.open(), race.begun()
    assert len(other.column(RECEIVE, race.queue, 1)) == 1
    holder.begin()
    for _ in range(3):
        holder.rows("savepoint before")
        assert len(holder.column(RECEIVE, race.queue, 1)) == 1
        holder.rows("rollback to savepoint before")
    assert len(holder.column(RECEIVE, race.queue, 1)) == 1
    holder.commit()
    assert len(holder.column(RECEIVE, race.queue, 1)) == 1


def test_who_polls_takes_one_place_of_sixteen(race: Race) -> None:
    race.main.value("select spanmq.set_policy(%s, '{\"max_in_flight\": 64}')", race.queue)
    poller, other = race.begun(), race.open()
    for _ in range(200):
        assert poller.column(RECEIVE, race.queue, 1) == []
    race.send(20)
    assert len(other.column(RECEIVE, race.queue, 1)) == 1
    assert len(poller.column(RECEIVE, race.queue, 1)) == 1


def test_who_finds_every_place_taken_waits_for_one(race: Race) -> None:
    race.send(20)
    race.main.value("select spanmq.set_policy(%s, '{\"max_in_flight\": 64}')", race.queue)
    guard, other = race.begun(), race.open()
    guard.rows(
        "select spanmq_core.lock(%s, 'in flight ' || place) from generate_series(0, 15) place", race.queue_id
    )
    assert other.column(RECEIVE, race.queue, 1) == []
    # It gives up after 50 ms, in which nobody is sure to see it wait.
    definition = race.main.value("select pg_get_functiondef('spanmq_core.room_in_flight'::regproc)")
    assert "'50ms'" in definition
    race.main.connection.execute(definition.replace("'50ms'", "'90s'").encode())
    later = other.waiting(RECEIVE, race.queue, 1)
    guard.commit()
    assert len(later.rows()) == 1


def test_a_group_that_another_is_taking_from_is_left_alone(race: Race) -> None:
    race.main.value("select spanmq.set_policy(%s, '{\"max_in_flight_per_group\": 4}')", race.queue)
    for _ in range(10):
        race.main.value("select pgmq.send(%s, '1', '{\"x-pgmq-group\": \"a\"}'::jsonb)", race.queue)
    holder, other = race.begun(), race.open()
    assert len(holder.column(RECEIVE, race.queue, 3)) == 3
    assert other.column(RECEIVE, race.queue, 9) == []
    holder.commit()
    assert len(other.column(RECEIVE, race.queue, 9)) == 1


@pytest.mark.parametrize(
    ("policy", "waits", "gets"),
    [
        ('{"rate_limit": 1000}', False, 2),
        ('{"max_in_flight": 1000}', False, 2),
        ('{"max_in_flight": 100}', None, 0),
    ],
)
def test_nobody_waits_for_a_long_transaction(race: Race, policy: str, waits: bool | None, gets: int) -> None:
    # Two runs: the rest of the one that the holder splits waits for its commit.
    race.send(10)
    race.send(10)
    race.main.value("select spanmq.set_policy(%s, %s)", race.queue, policy)
    holder, other = race.begun(), race.open()
    assert len(holder.column(RECEIVE, race.queue, 2)) == 2
    later = other.later(RECEIVE, race.queue, 2)
    if waits is not None:
        assert later.waits() is waits
    assert len(later.rows()) == gets
    holder.rollback()
    assert len(other.column(RECEIVE, race.queue, 2)) == 2


def test_message_of_its_last_attempt_is_received_beside_an_open_transaction(race: Race) -> None:
    race.main.value("select spanmq.set_policy(%s, '{\"max_in_flight\": 640}')", race.queue)
    [first] = race.send(1)
    for _ in range(22):
        race.lease(1, -1)
    race.lease(1)
    [second] = race.send(1, new_block=False)
    worker = race.begun()
    assert worker.column("select msg_id from spanmq.receive('jobs', 1)") == [second]
    change_state(race.main.connection, "vt = clock_timestamp()", f"msg_id = {first}")
    assert race.main.column("select msg_id from spanmq.receive('jobs', 1)") == [first]


def test_no_two_receivers_draw_one_token_and_none_waits_for_another(race: Race) -> None:
    settings = '{"rate_limit_per_group": 0.0001, "rate_burst_per_group": 5}'
    race.main.value("select spanmq.set_policy(%s, %s)", race.queue, settings)
    ids = send(race, 2)
    assert race.main.column(RECEIVE, race.queue, 1) == ids[:1]
    holder, other, third = race.begun(), race.open(), race.open()
    assert holder.column(RECEIVE, race.queue, 1) == ids[1:2]
    assert other.column(RECEIVE, race.queue, 9) == ids[2:9:2], "of the group that the holder has not locked"
    # Who closes a bucket waits for no claim of it, and no claim for maintenance that forgets a full one.
    closing = (
        "select c.outcome from spanmq_core.later l, spanmq.close_bucket(%s, l.lease_id, array[l.msg_id], 600) c"
        " where l.msg_id = %s"
    )
    assert third.column(closing, race.queue, ids[0]) == ["closed"]
    race.main.rows("update spanmq_core.bucket set full_ns = 1")
    race.main.rows("update spanmq_core.closed_group set until = now()")
    third.begin()
    third.rows("select spanmq_core.forget_buckets(%s)", race.queue_id)
    assert other.column(RECEIVE, race.queue, 9) == []
    holder.rollback()
    assert other.column(RECEIVE, race.queue, 3) == ids[1:6:2]
    third.rollback()
    assert other.column(RECEIVE, race.queue, 9) == sorted([*ids[7:10:2], *ids[10:19:2]])
    assert other.column(RECEIVE, race.queue, 9) == []


def test_side_by_side_no_group_gets_more_than_its_tokens(race: Race) -> None:
    ids = send(race, 8)
    settings = '{"rate_limit_per_group": 0.0001, "rate_burst_per_group": 12, "max_in_flight_per_group": 20}'
    race.main.value("select spanmq.set_policy(%s, %s)", race.queue, settings)
    mutex = threading.Lock()
    delivered: Counter[int] = Counter()

    def work(session: Session, chance: random.Random) -> None:
        while delivered.total() < 8 * 12:
            got = session.column(RECEIVE, race.queue, chance.randint(1, 5))
            with mutex:
                delivered.update(got)

    together(race, work)
    assert set(delivered.values()) == {1}
    assert set(delivered) <= set(ids)
    assert set(Counter(each % 8 for each in delivered).values()) == {12}
