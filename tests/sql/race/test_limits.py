"""Housekeeping and policies against consumers whose transactions are open."""

import pytest
from tests.sql.race.sessions import Race

SEND = (
    "select spanmq.send_messages('jobs', array(select to_jsonb(i) from generate_series(1, %s) i),"
    " expires_in => 60)"
)


def test_housekeeping_goes_on_beside_a_consumer_that_has_what_expired(race: Race) -> None:
    ids = race.main.column(SEND, 3)
    other = race.main.column(SEND, 1)
    one = race.begun()
    assert one.column("select msg_id from pgmq.pop('jobs', 3)") == ids
    race.main.rows("update spanmq_core.expiry set expires_at = clock_timestamp() - interval '1 s'")
    race.main.rows("select spanmq.maintain()")
    assert race.main.column("select msg_id from spanmq_core.dead_letter") == other
    one.rollback()
    race.main.rows("select spanmq.maintain()")
    assert race.main.column("select msg_id from spanmq_core.dead_letter order by 1") == [*ids, *other]


def test_group_goes_on_if_the_policy_is_taken_back_while_one_of_it_dies(race: Race) -> None:
    race.main.rows(
        """select spanmq.set_policy('jobs', '{"ordered": true, "dead_letter_blocks_group": true}')"""
    )
    ids = race.main.column(
        "select pgmq.send_batch('jobs', array['1', '2']::jsonb[], array_fill(%s::jsonb, array[2]))",
        '{"x-pgmq-group": "blue"}',
    )
    one = race.begun()
    lease = one.value("select lease_id from spanmq.receive('jobs', 1)")
    assert one.rows("select outcome from spanmq.reject('jobs', %s, %s)", lease, ids[:1]) == [("dead",)]
    race.main.rows("""select spanmq.set_policy('jobs', '{"dead_letter_blocks_group": false}')""")
    one.commit()
    assert race.main.column("select msg_id from spanmq.receive('jobs', 9, -1)") == ids[1:]
    race.main.rows("""select spanmq.set_policy('jobs', '{"dead_letter_blocks_group": true}')""")
    assert race.main.column("select msg_id from spanmq.receive('jobs', 9)") == ids[1:], "it died before"


def test_message_that_comes_while_a_purge_ends_still_expires(race: Race) -> None:
    (failed,) = race.main.column(SEND, 1)
    lease = race.lease(1)
    race.main.rows("select spanmq.nack('jobs', %s, %s, 'boom')", lease, [failed])
    sender, holder = race.begun(), race.open()
    (late,) = sender.column(SEND, 1)
    # The purge has found nothing any more, and forgets the stories of what it deleted.
    holder.begin()
    holder.rows("select from spanmq_core.failure for update")
    purge = race.open().waiting("select pgmq.purge_queue('jobs')")
    sender.commit()
    holder.commit()
    assert purge.rows() == [(1,)]
    assert race.left() == [late]
    race.main.rows("update spanmq_core.expiry set expires_at = clock_timestamp() - interval '1 s'")
    assert race.main.column("select msg_id from spanmq.receive('jobs', 9)") == []
    assert race.main.column("select msg_id from spanmq_core.dead_letter") == [late]


def test_purge_leaves_neither_expiries_nor_failures(race: Race) -> None:
    ids = race.main.column(SEND, 600)
    race.main.rows("select spanmq.nack('jobs', %s, %s, 'boom')", race.lease(300), ids[:300])
    assert race.main.value("select pgmq.purge_queue('jobs')") == 600
    assert race.main.rows("select from spanmq_core.failure") == []
    assert race.main.rows("select from spanmq_core.expiry") == []


@pytest.mark.parametrize("policy", ['{"rate_limit_per_group": 100}', '{"group_shares": {"1": 3}}'])
def test_claim_of_one_message_passes_groups_that_an_open_transaction_has_locked(
    race: Race, policy: str
) -> None:
    race.main.rows("select spanmq.set_policy('jobs', %s)", policy)
    send = "select pgmq.send('jobs', '1', jsonb_build_object('x-pgmq-group', %s::text))"
    # The first claim of a queue makes what claims lock.
    race.main.rows(send, "a")
    assert len(race.main.column("select msg_id from pgmq.pop('jobs')")) == 1
    for group in "aabb":
        race.main.rows(send, group)
    holder = race.begun()
    assert len(holder.column("select msg_id from pgmq.pop('jobs', 4)")) == 4
    (free,) = race.main.column(send, "c")
    assert race.main.column("select msg_id from spanmq.receive('jobs')") == [free]
