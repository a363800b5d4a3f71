"""What goes back of an ordered group takes along all that is leased behind it."""

from collections.abc import Iterator

import pytest
from tests.sql.model.invariants import broken_invariants
from tests.sql.races.sessions import Race, Session

NACK = "select outcome from pgmq.nack('jobs', %s, array[%s], 'x', null, 3600)"
ACK = "select outcome from pgmq.ack('jobs', %s, array[%s])"


@pytest.fixture
def race(database: str) -> Iterator[Race]:
    with Race(database) as made:
        made.main.rows("""select pgmq.set_policy('jobs', '{"ordered": true}')""")
        yield made
        assert broken_invariants(made.main.connection) == []


def leased(race: Race) -> tuple[Session, Session, int, list[int]]:
    """Lease four messages of one group, each settled by itself."""
    header = '{"x-pgmq-group": "blue"}'
    ids = race.main.column(
        "select pgmq.send_batch('jobs', array['1', '2', '3', '4']::jsonb[], array_fill(%s::jsonb, array[4]))",
        header,
    )
    lease = race.main.value("select max(lease_id) from pgmq.receive('jobs', 4, 60, 4)")
    return race.open(), race.open(), lease, ids


@pytest.mark.parametrize(("fate", "outcome"), [("commit", "stale"), ("rollback", "acked")])
def test_ack_of_a_follower_meets_an_open_nack(race: Race, fate: str, outcome: str) -> None:
    one, two, lease, ids = leased(race)
    one.begin()
    assert one.rows(NACK, lease, ids[1]) == [("retrying",)]
    later = two.later(ACK, lease, ids[2])
    assert later.waits()
    assert race.main.rows("select msg_id from pgmq.receive('jobs', 9)") == [], "the group is still in work"
    one.end(fate)
    assert later.rows() == [(outcome,)]
    assert two.rows(ACK, lease, ids[0]) == [("acked",)], "what stands before it stays leased"


def test_nack_meets_an_open_ack_of_a_follower(race: Race) -> None:
    one, two, lease, ids = leased(race)
    one.begin()
    assert one.rows(ACK, lease, ids[2]) == [("acked",)]
    later = two.later(NACK, lease, ids[0])
    assert later.waits()
    one.commit()
    assert later.rows() == [("retrying",)]
    left = race.main.rows("select msg_id, read_ct, vt <= clock_timestamp() from pgmq.q_jobs order by 1")
    assert left == [(ids[0], 1, False), (ids[1], 0, True), (ids[3], 0, True)]
    assert race.main.rows("select msg_id from pgmq.receive('jobs', 9)") == [], "it waits for the first"
    race.main.rows("select pgmq.set_vt('jobs', %s::bigint, 0)", ids[0])
    assert race.main.column("select msg_id from pgmq.receive('jobs', 9)") == [ids[0], ids[1], ids[3]]
