"""maintain() moves no bound over what is there, or what an open transaction may still bring."""

from collections.abc import Iterator

import pytest
from tests.sql.race.sessions import Race

# What opens the transaction of a sender, and what is in the queue when it has committed.
SENDS = {
    "one": "pgmq.send('jobs', '1')",
    "in a group": "pgmq.send('jobs', '1', '{\"x-pgmq-group\": \"a\"}'::jsonb)",
    "a batch": "pgmq.send_batch('jobs', array_fill('1'::jsonb, array[2]))",
    "a large batch": "pgmq.send_batch('jobs', array_fill('1'::jsonb, array[30]))",
    "with a dedup_id": "spanmq.send_messages('jobs', array['1'::jsonb],"
    " dedup_ids => array[gen_random_uuid()::text])",
    "later": "pgmq.send('jobs', '1', clock_timestamp())",
}
# Each brings rows of held that are visible at once, or have been so for long.
RETURNS = {
    "read one": "select pgmq.read('jobs', -100, 1)",
    "read": "select pgmq.read('jobs', -100, 3)",
    "read a part": "select pgmq.read('jobs', -100, 2)",
    "receive": "select spanmq.receive('jobs', 3, -100)",
    "receive in slots": "select spanmq.receive('jobs', 3, -100, 3)",
    "read in groups": "select pgmq.read_grouped('jobs', -100, 3)",
    "set_vt": "select pgmq.set_vt('jobs', array[{ids}], clock_timestamp() - interval '1 hour')",
    "nack": "select spanmq.nack('jobs', lease_id, array[msg_id], retry_in => 0) from spanmq.receive('jobs', 3)",
    "release": "select spanmq.release('jobs', lease_id, array[msg_id]) from spanmq.receive('jobs', 3)",
    "send": "select pgmq.send_batch('jobs', array['1'::jsonb], clock_timestamp() - interval '1 hour')",
}


def maintain(race: Race) -> None:
    """Note a mark, and move the bounds up to it."""
    for _ in range(3):
        race.main.rows("select * from spanmq.maintain()")


def fresh_from(race: Race) -> int:
    return int(race.main.value("select fresh_from from spanmq_core.bound_of(%s)", race.queue_id))


@pytest.fixture
def race(race: Race) -> Iterator[Race]:
    race.send(3)
    race.main.rows("select pgmq.purge_queue('jobs')")
    maintain(race)
    yield race
    # No bound is stuck: all transactions have ended.
    race.main.rows("select pgmq.purge_queue('jobs')")
    maintain(race)
    assert fresh_from(race) == race.main.value(
        "select pg_sequence_last_value(ids) + 1 from spanmq_core.queue"
    )


@pytest.mark.parametrize("send", SENDS)
def test_bound_stays_before_what_is_being_sent(race: Race, send: str) -> None:
    sender = race.open()
    # Its plans are kept by now: what a kept plan locks tells that it is a sender, too.
    for _ in range(8):
        sender.rows(f"select {SENDS[send]}")
    race.main.rows("select pgmq.purge_queue('jobs')")
    maintain(race)
    sender.begin()
    sent = sender.column(f"select {SENDS[send]}")
    maintain(race)
    # Ids that are drawn later are settled before it commits.
    race.send(3)
    race.main.rows("select pgmq.purge_queue('jobs')")
    maintain(race)
    sender.commit()
    assert race.main.column("select msg_id from pgmq.read('jobs', 30, 100)") == sent


@pytest.mark.parametrize("fate", ["commit", "rollback"])
def test_bound_stays_before_what_an_open_claim_has_or_puts_back(race: Race, fate: str) -> None:
    ids = race.send(8)
    claim = race.open()
    claim.begin()
    taken = claim.column("select msg_id from pgmq.pop('jobs', 3)")
    maintain(race)
    claim.end(fate)
    maintain(race)
    left = ids[3:] if fate == "commit" else ids
    assert (taken, race.main.column("select msg_id from pgmq.read('jobs', 30, 100)")) == (ids[:3], left)


def test_bound_of_what_is_due_waits_for_an_open_claim(race: Race) -> None:
    ids = race.send(2)
    race.main.rows("update spanmq_core.bound set due_from = '-infinity', mark_at = null, holders = null")
    claim = race.open()
    claim.begin()
    claim.rows("select pgmq.read('jobs', 0, 2)")
    # As if it had been open for an hour.
    claim.rows("update spanmq_core.held set vt = vt - interval '1 hour'")
    maintain(race)
    claim.commit()
    assert race.main.column("select msg_id from pgmq.read('jobs', 30, 2)") == ids


@pytest.mark.parametrize("way", RETURNS)
def test_what_is_due_at_once_is_not_before_the_bound(race: Race, way: str) -> None:
    ids = race.send(3)
    maintain(race)
    race.main.rows(RETURNS[way].format(ids=", ".join(map(str, ids))))
    maintain(race)
    left = race.left()
    assert race.main.column("select msg_id from pgmq.read('jobs', 30, 100)") == left
    assert left[:3] == ids


def test_bound_stays_before_ids_that_are_reserved(race: Race) -> None:
    ((write, block, log, first, last),) = race.main.rows(
        "select write_id, block_id, log_table, first_id, last_id from spanmq.bulk_reserve('jobs', 'w', 0, 2)"
    )
    race.main.rows(
        f"insert into spanmq_core.{log} (msg_id, enqueued_at, message)"
        " select id, now(), '1' from generate_series(%s::bigint, %s) id",
        first,
        last,
    )
    race.main.rows("select spanmq.bulk_seal('jobs', array[%s::bigint])", block)
    maintain(race)
    race.main.rows("select spanmq.bulk_publish('jobs', 'w', 0, %s, array[%s::bigint])", write, block)
    assert race.main.column("select msg_id from pgmq.read('jobs', 30, 2)") == [first, last]


def test_ids_that_come_again_are_not_before_the_bound(race: Race) -> None:
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', 100000)")
    maintain(race)
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', 50000)")
    race.main.rows("select * from spanmq.maintain()")
    assert race.main.value("select pgmq.send('jobs', '1')") == 50001
    assert race.main.column("select msg_id from pgmq.read('jobs', 30, 2)") == [50001]
