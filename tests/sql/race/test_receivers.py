"""Streams against each other and against a purge."""

import psycopg
import pytest
from tests.sql.race.sessions import Race, Session

OPEN = "select receiver_id, incarnation from spanmq.receiver_open('jobs', label => 'lake')"


def claimed(race: Race, reader: Session) -> tuple[str, int]:
    """Let a stream claim what waits, as its batch 1."""
    ((receiver, incarnation),) = reader.rows(OPEN)
    assert reader.value(CLAIM, receiver, incarnation, 0) == 1
    return receiver, incarnation


def claiming(reader: Session) -> tuple[str, int]:
    """Open a stream, and let it claim what waits in a transaction that stays open."""
    ((receiver, incarnation),) = reader.rows(OPEN)
    reader.begin()
    assert reader.value(CLAIM, receiver, incarnation, 0) == 1
    return receiver, incarnation


CLAIM = (
    "with given (receiver, incarnation, settled) as (values (%s::uuid, %s::bigint, %s::bigint)) select batch"
    " from given, spanmq.receiver_claim('jobs', receiver, incarnation, settled, 1000,"
    " settled_token => spanmq_core.token_of_batch(receiver, settled))"
)
RANGES = (
    "with given (receiver, incarnation) as (values (%s::uuid, %s::bigint)) select id"
    " from given, spanmq.receiver_ranges('jobs', receiver, incarnation, 0, 1,"
    " batch_token => spanmq_core.token_of_batch(receiver, 1)), generate_series(first_id, last_id) id"
    " where bitmap is null or substr(bitmap, (id & 1023)::int + 1, 1) = '1'"
)


@pytest.mark.parametrize("first", ["purge", "settle"])
@pytest.mark.parametrize("archives", [True, False])
def test_purge_and_settling_of_a_stream_do_not_deadlock(race: Race, first: str, archives: bool) -> None:
    race.send(600)
    race.main.rows("select spanmq.set_policy('jobs', jsonb_build_object('archive_on_ack', %s))", archives)
    reader, purger, holder = race.open(), race.open(), race.open()
    receiver, incarnation = claimed(race, reader)
    # Whoever comes first waits for a message of the batch.
    holder.begin()
    holder.rows("select from spanmq_core.state order by msg_id limit 1 for update")
    settle = (CLAIM, receiver, incarnation, 1)
    purge = ("select pgmq.purge_queue('jobs')",)
    one = (purger if first == "purge" else reader).later(*(purge if first == "purge" else settle))
    assert one.waits()
    two = (reader if first == "purge" else purger).later(*(settle if first == "purge" else purge))
    assert two.waits()
    holder.commit()
    results = {first: one.rows(), "purge" if first == "settle" else "settle": two.rows()}
    assert results == {"settle": [(1,)], "purge": [(600 if first == "purge" else 0,)]}
    assert race.left() == []
    archived = race.main.value("select count(*) from pgmq.a_jobs")
    assert archived == (600 if archives and first == "settle" else 0)


def test_two_new_checkpoints_of_one_label(race: Race) -> None:
    one, two, three = race.begun(), race.open(), race.open()
    one.rows(OPEN)
    later = two.waiting(OPEN)
    one.commit()
    with pytest.raises(psycopg.Error, match="belongs to another checkpoint") as caught:
        later.rows()
    assert caught.value.sqlstate == "MQ052"
    # Of two that replace one which has never called, too, one has the label.
    two.begin()
    [(receiver, incarnation)] = two.rows(OPEN)
    later = three.waiting(OPEN)
    two.commit()
    with pytest.raises(psycopg.Error, match="belongs to another checkpoint"):
        later.rows()
    assert two.value(CLAIM, receiver, incarnation, 0) == 0


def test_first_call_of_a_stream_and_a_new_checkpoint_of_its_label(race: Race) -> None:
    reader, other = race.open(), race.open()
    ((receiver, incarnation),) = reader.rows(OPEN)
    reader.begin()
    assert reader.value(CLAIM, receiver, incarnation, 0) == 0
    later = other.waiting(OPEN)
    reader.commit()
    with pytest.raises(psycopg.Error, match="belongs to another checkpoint") as caught:
        later.rows()
    assert caught.value.sqlstate == "MQ052"


def test_stream_that_claims_what_a_waiting_call_is_about(race: Race) -> None:
    ids = race.send(20)
    race.give_back(ids)
    holder, hider, reader = race.begun(), race.open(), race.open()
    holder.rows("select from spanmq_core.later where msg_id = %s for update", ids[2])
    hiding = hider.waiting("select msg_id from pgmq.set_vt('jobs', %s::bigint[], 0)", ids[2:13])
    receiver, incarnation = claimed(race, reader)
    holder.commit()
    assert [row[0] for row in hiding.rows()] == ids[2:3]
    assert reader.column(RANGES, receiver, incarnation) == ids[:2] + ids[3:]
    assert race.main.column("select msg_id from pgmq.read('jobs', 30, 1000)") == ids[2:3]


def test_purge_waits_for_a_stream_that_claims(race: Race) -> None:
    race.send(20)
    reader, purger = race.open(), race.open()
    receiver, incarnation = claiming(reader)
    purge = purger.waiting("select pgmq.purge_queue('jobs')")
    reader.commit()
    assert purge.rows() == [(20,)]
    with pytest.raises(psycopg.Error) as caught:
        reader.rows(RANGES, receiver, incarnation)
    assert caught.value.sqlstate == "MQ053"


def test_drop_waits_for_a_stream_before_it_holds_the_log(race: Race) -> None:
    race.send(20)
    reader, dropper = race.open(), race.open()
    receiver, incarnation = claiming(reader)
    drop = dropper.waiting("select pgmq.drop_queue('jobs')")
    race.send(1, new_block=False)
    claim = CLAIM.replace("1000", "1000, null, 1")
    assert reader.value(claim, receiver, incarnation, 1) == 2
    reader.commit()
    assert drop.rows() == [(True,)]
