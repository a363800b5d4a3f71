"""Subscriptions that come and go beside senders, publishers and maintain()."""

import threading
from functools import partial

import psycopg
import pytest
from tests.patience import WAIT_SECONDS
from tests.sql.race.sessions import Race, Session, side_by_side
from tests.sql.segment import FIRST_ID, SIZE, did, maintain, make_queue, send_past, tables

CREATE = "select spanmq.create_subscription('lake', 'jobs')"
DROP = "select pgmq.drop_queue('lake')"
SENDS = {
    "send": "select pgmq.send('jobs', '1')",
    "batch": "select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[300]))",
    "with priority": "select spanmq.send_messages('jobs', array['1']::jsonb[], priority => 3)",
    "with an expiry": "select spanmq.send_messages('jobs', array['1', '2']::jsonb[], expires_in => 100)",
}


def ids_in(race: Race, queue: str = "lake") -> list[int]:
    return race.main.column(f"select msg_id from pgmq.q_{queue} order by msg_id")


def queues_with_messages(race: Race) -> int:
    return int(race.main.value("select count(distinct queue_id) from spanmq_core.unsettled"))


@pytest.mark.parametrize("way", SENDS)
def test_creation_waits_for_who_has_sent_and_others_see_it(race: Race, way: str) -> None:
    before, creator, after = race.begun(), race.open(), race.open()
    early = before.column(SENDS[way])
    creator.begin()
    creating = creator.waiting(CREATE)
    before.commit()
    creating.rows()
    # This one has looked at the queue's row, and waits where it draws its ids.
    sending = after.waiting(SENDS[way])
    creator.commit()
    late = [row[0] for row in sending.rows()]
    assert ids_in(race) == late
    assert ids_in(race, "jobs") == early + late
    flags = "select distinct uses_priority, uses_limits from spanmq_core.queue"
    assert len(race.main.rows(flags)) == 1


@pytest.mark.parametrize(
    "look",
    [
        "select * from pgmq.metrics('jobs')",
        "select * from spanmq.health()",
        "select * from spanmq.latest_statistics()",
        "select * from spanmq.doctor()",
        "select * from spanmq.receiver_log('jobs')",
        "select * from spanmq.receiver_open('jobs')",
    ],
)
def test_creation_does_not_wait_for_who_only_looks(race: Race, look: str) -> None:
    race.send(3)
    observer = race.begun()
    assert observer.rows(look)
    race.main.rows("set lock_timeout = '10s'")
    race.main.rows(CREATE)
    observer.commit()


@pytest.mark.parametrize("way", SENDS)
def test_what_is_sent_as_a_subscription_goes_leaves_nothing(race: Race, way: str) -> None:
    race.main.rows(CREATE)
    before, dropper, after = race.begun(), race.begun(), race.begun()
    before.rows(SENDS[way])
    # It waits for none that has only sent, but the first one has written the queue's row.
    dropping = dropper.later(DROP)
    dropping.waits()
    before.commit()
    assert dropping.rows() == [(True,)]
    sending = after.later(SENDS[way])
    sending.waits()
    dropper.commit()
    sending.rows()
    after.commit()
    maintain(race)
    assert queues_with_messages(race) == 1


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_sender_with_an_old_snapshot_misses_nothing(race: Race, isolation: str) -> None:
    sender = race.open()
    sender.rows(SENDS["send"])
    sender.begin(isolation)
    sender.rows("select count(*) from pgmq.q_jobs")
    race.main.rows(CREATE)
    for way in SENDS.values():
        sender.rows("savepoint before")
        with pytest.raises(psycopg.errors.SerializationFailure):
            sender.rows(way)
        sender.rows("rollback to before")
    sender.rollback()
    sender.begin(isolation)
    sent = sender.column(SENDS["batch"])
    sender.commit()
    assert ids_in(race)[-300:] == sent


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_sender_that_still_sees_a_dropped_subscription_leaves_nothing(race: Race, isolation: str) -> None:
    race.main.rows(CREATE)
    sender = race.open()
    first = sender.column(SENDS["send"])
    sender.begin(isolation)
    sender.rows("select count(*) from pgmq.q_jobs")
    race.main.rows(DROP)
    second = sender.column(SENDS["send"])
    sender.commit()
    maintain(race)
    assert (ids_in(race, "jobs"), queues_with_messages(race)) == (first + second, 1)


def test_rolled_back_creation_disturbs_nobody(race: Race) -> None:
    race.main.begin()
    race.main.rows(CREATE)
    race.main.rollback()
    sender = race.open()
    for isolation in ("read committed", "repeatable read"):
        sender.begin(isolation)
        sender.rows(SENDS["batch"])
        sender.commit()
    assert race.main.value("select count(*) from pgmq.q_jobs") == 600


def test_creation_gives_up_and_lets_senders_go_on_meanwhile(race: Race) -> None:
    sleeper, creator, sender = race.begun(), race.open(), race.open()
    sleeper.rows(SENDS["send"])
    creating = creator.waiting(CREATE)
    # Each waits for a piece of the wait at most.
    for _ in range(3):
        sender.rows(SENDS["send"])
    sleeper.commit()
    creating.rows()
    sleeper.begin()
    sleeper.rows(SENDS["send"])
    creator.rows("set lock_timeout = '300ms'")
    with pytest.raises(psycopg.Error, match="queue jobs does not end") as raised:
        creator.rows("select spanmq.create_subscription('more', 'jobs')")
    assert raised.value.sqlstate == "MQ061"
    sleeper.commit()
    assert len(ids_in(race)) == 1
    assert creator.value("show lock_timeout") == "300ms"


PUBLISH = "select spanmq.bulk_publish('jobs', 'w', 0, %s, array[%s::bigint])"


def test_publishing_and_creation_wait_for_each_other(race: Race) -> None:
    write, block, _, _ = race.reserve(300)
    creator, publisher = race.begun(), race.open()
    creator.rows(CREATE)
    publishing = publisher.waiting(PUBLISH, write, block)
    creator.commit()
    publishing.rows()
    assert ids_in(race) == ids_in(race, "jobs") == list(range(1, 301))


def test_creation_waits_for_what_is_being_published(race: Race) -> None:
    write, block, _, _ = race.reserve(300)
    creator, publisher = race.open(), race.begun()
    publisher.rows(PUBLISH, write, block)
    creating = creator.waiting(CREATE)
    publisher.commit()
    creating.rows()
    assert ids_in(race) == []
    assert len(ids_in(race, "jobs")) == 300


def test_first_use_of_priority_beside_a_creation_is_noted_in_both(race: Race) -> None:
    creator, sender = race.begun(), race.open()
    creator.rows(CREATE)
    sending = sender.waiting(SENDS["with priority"])
    creator.commit()
    sending.rows()
    assert race.main.column("select uses_priority from spanmq_core.queue") == [True, True]


def test_nobody_misses_a_message_while_subscriptions_come_and_go(race: Race) -> None:
    # How many subscriptions were there when it began, and the ids.
    sent: list[tuple[int, list[int]]] = []
    made: list[str] = []
    stop = threading.Event()
    sends = threading.Semaphore(0)

    def send(session: Session, way: str) -> None:
        while not stop.is_set():
            there = len(made)
            sent.append((there, session.column(SENDS[way])))
            sends.release()

    def come_and_go(session: Session) -> None:
        try:
            for number in range(8):
                # Whoever is quicker: there are sends before each change.
                for _ in SENDS:
                    assert sends.acquire(timeout=WAIT_SECONDS)
                session.rows(f"select spanmq.create_subscription('s{number}', 'jobs')")
                made.append(f"s{number}")
                session.rows(
                    "select spanmq.create_subscription('passing', 'jobs', waiting => %s)", number % 2 == 0
                )
                session.rows("select pgmq.drop_queue('passing')")
        finally:
            stop.set()

    side_by_side(
        *(partial(send, race.open(), way) for way in SENDS),
        partial(come_and_go, race.open()),
        finally_do=stop.set,
    )
    for number, name in enumerate(made):
        got = set(ids_in(race, name))
        for there, ids in sent:
            # Whole or not at all, and surely if it was sent when the subscription was there.
            assert got.isdisjoint(ids) or got.issuperset(ids)
            assert there <= number or got.issuperset(ids)
    assert ids_in(race, "jobs") == sorted(i for _, ids in sent for i in ids)


@pytest.fixture
def segmented(race: Race) -> Race:
    make_queue(race)
    return race


def settle(race: Race, queue: str, ids: list[int]) -> None:
    assert sorted(race.main.column("select pgmq.delete(%s, %s::bigint[])", queue, ids)) == sorted(ids)


def test_segments_wait_for_the_slowest(segmented: Race) -> None:
    segmented.main.rows(CREATE)
    ids = send_past(segmented, 8 * SIZE)
    settle(segmented, "jobs", ids)
    maintain(segmented)
    assert len(tables(segmented)) >= 8
    got = segmented.main.rows("select msg_id, (message->>'i')::int from pgmq.read('lake', 30, 10000)")
    assert got == list(zip(ids, range(1, 8 * SIZE + 1), strict=True))
    settle(segmented, "lake", ids)
    maintain(segmented)
    assert len(tables(segmented)) <= 5


def test_batch_of_a_stream_keeps_the_segments(segmented: Race) -> None:
    segmented.main.rows(CREATE)
    ids = send_past(segmented, 4 * SIZE)
    settle(segmented, "jobs", ids)
    reader = segmented.main.rows("select receiver_id, incarnation from spanmq.receiver_open('lake')")[0]
    claim = "select batch, token from spanmq.receiver_claim('lake', %s, %s, %s, 10000, settled_token => %s)"
    [(batch, token)] = segmented.main.rows(claim, *reader, 0, None)
    # Settled, and kept for a replay.
    assert segmented.main.rows(claim, *reader, batch, token) == [(1, token)]
    maintain(segmented)
    log = segmented.main.value("select log_table from spanmq.receiver_log('lake')")
    assert segmented.main.column(f"select msg_id from {log} where msg_id >= {FIRST_ID} order by 1") == ids


def sparse(race: Race) -> list[int]:
    """Send into a segment of 2048 ids and past it; return the ids in it."""
    race.main.rows("update spanmq_core.queue set segment_size = 2048")
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', 65535)")
    ids = send_past(race, 2048)
    send_past(race, 2048)
    return ids


def test_sparse_segment_is_rewritten_with_what_anyone_needs(segmented: Race) -> None:
    segmented.main.rows(CREATE)
    ids = sparse(segmented)
    settle(segmented, "jobs", [i for i in ids if i % 100])
    settle(segmented, "lake", [i for i in ids if i % 150])
    assert did(maintain(segmented), "rewrote segment") >= 1
    for queue, step in (("jobs", 100), ("lake", 150)):
        mine = [i for i in ids if i % step == 0]
        assert segmented.main.column("select msg_id from pgmq.read(%s, 30, %s)", queue, len(mine)) == mine


def test_segment_is_not_rewritten_while_a_new_subscription_takes_it_over(segmented: Race) -> None:
    ids = sparse(segmented)
    maintain(segmented)  # notes that the ids have passed it
    creator = segmented.begun()
    creator.rows("select spanmq.create_subscription('lake', 'jobs', true)")
    settle(segmented, "jobs", [i for i in ids if i % 100])
    for _ in range(10):
        assert not did(
            segmented.main.rows("select action, detail from spanmq.maintain(100)"), "copied segment"
        )
    creator.commit()
    maintain(segmented)
    assert segmented.main.column("select msg_id from pgmq.read('lake', 30, %s)", len(ids)) == ids


def test_what_a_new_subscription_takes_over_is_not_truncated(segmented: Race) -> None:
    ids = send_past(segmented, 2 * SIZE)
    send_past(segmented, 2 * SIZE)
    creator = segmented.begun()
    creator.rows("select spanmq.create_subscription('lake', 'jobs', true)")
    settle(segmented, "jobs", ids)
    for _ in range(5):
        segmented.main.rows("select * from spanmq.maintain(100)")
    creator.commit()
    maintain(segmented)
    assert segmented.main.column("select msg_id from pgmq.read('lake', 30, %s)", len(ids)) == ids


def test_redrive_into_a_subscription_that_goes_leaves_nothing(race: Race) -> None:
    race.main.rows(CREATE)
    race.main.rows("select pgmq.send('jobs', '1')")
    race.main.rows("select spanmq.reject('lake', r.lease_id, array[r.msg_id]) from spanmq.receive('lake') r")
    redriver, dropper = race.begun(), race.open()
    redriver.rows("select * from spanmq.redrive('lake', delay => 0)")
    assert dropper.rows(DROP) == [(True,)]
    redriver.commit()
    maintain(race)
    assert queues_with_messages(race) == 1


def test_message_sent_again_by_two_queues_is_written_once(segmented: Race) -> None:
    segmented.main.rows(CREATE)
    ids = send_past(segmented)
    for queue in ("jobs", "lake"):
        segmented.main.rows(
            f"select spanmq.reject('{queue}', r.lease_id, array[r.msg_id]) from spanmq.receive('{queue}', 256) r"
        )
    send_past(segmented)
    maintain(segmented)
    one, two = segmented.begun(), segmented.open()
    assert len(one.rows("select * from spanmq.redrive('jobs', delay => 0)")) == SIZE
    redriving = two.later("select * from spanmq.redrive('lake', delay => 0)")
    redriving.waits()
    one.commit()
    assert len(redriving.rows()) == SIZE
    for queue in ("jobs", "lake"):
        assert segmented.main.column("select msg_id from pgmq.read(%s, 30, 256)", queue) == ids
