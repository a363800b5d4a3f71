"""A claim that leases in place, and ends after its queue has become an ordered one."""

import pytest
from tests.sql.race.sessions import Race

ACK = "select outcome from spanmq.ack('jobs', %s, array[%s]::bigint[])"


@pytest.mark.parametrize("header", ['{"x-pgmq-group": "blue"}', None])
@pytest.mark.parametrize("settlement", ["nack(%s, 'x', null, 3600)", "reject(%s, 'x')", "release(%s)"])
def test_what_goes_back_takes_along_what_was_leased_behind_it(
    race: Race, settlement: str, header: str | None
) -> None:
    ids = race.main.column(
        "select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[6]), array_fill(%s::jsonb, array[6]))",
        header,
    )
    claim = race.begun()
    lease = claim.value("select max(lease_id) from spanmq.receive('jobs', 5, 60)")
    race.main.rows("""select spanmq.set_policy('jobs', '{"ordered": true}')""")
    claim.commit()
    assert race.main.rows("select msg_id from spanmq.receive('jobs', 9)") == [], "the group is in work"
    call = settlement % f"'jobs', {lease}, '{{{ids[1]}}}'"
    race.main.rows(f"select * from spanmq.{call}")
    assert [race.main.value(ACK, lease, id_) for id_ in ids[2:5]] == ["stale"] * 3
    assert race.main.value(ACK, lease, ids[0]) == "acked", "what stands before it stays leased"
