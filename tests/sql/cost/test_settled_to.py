"""Claims begin behind the segments that are settled: they pass nothing that is left of those."""

import pytest
from psycopg.types.json import Jsonb
from tests.sql.cost.counts import entries_passed
from tests.sql.race.sessions import Race
from tests.sql.segment import CLAIMS, SEND_GROUP, SET_HINT, SIZE, make_queue, send_and_settle, settled_to


@pytest.fixture
def race(race: Race) -> Race:
    make_queue(race)
    return race


def passed(race: Race, claim: str, index: str) -> int:
    return entries_passed(race.main.connection, f"select * from pgmq.{claim}", index)


@pytest.mark.parametrize("claim", CLAIMS)
def test_claims_pass_nothing_of_settled_segments(race: Race, claim: str) -> None:
    holder = race.open()
    holder.begin("repeatable read")
    holder.rows("select 1")
    last = send_and_settle(race, 4 * SIZE)[-1]
    assert settled_to(race) > last - SIZE
    race.main.rows(SEND_GROUP, 1)
    race.main.rows(SET_HINT)
    looks = 4 if "group" in claim else 1
    for index in ("span_ready", "span_group"):
        assert passed(race, claim, index) <= looks * (SIZE + 10)
    holder.commit()


@pytest.mark.parametrize("policy", [{"ordered": True}, {"max_in_flight_per_group": 10}])
@pytest.mark.parametrize("n", [1, 8])
def test_claims_under_a_policy_pass_nothing_of_settled_segments(
    race: Race, policy: dict[str, object], n: int
) -> None:
    race.main.rows("select pgmq.set_policy('jobs', %s)", Jsonb(policy))
    holder = race.open()
    holder.begin("repeatable read")
    holder.rows("select 1")
    send_and_settle(race, 4 * SIZE)
    race.main.rows(SEND_GROUP, 1)
    race.main.rows(SET_HINT)
    for index in ("span_ready", "span_group"):
        assert passed(race, f"receive('jobs', {n})", index) <= 4 * (SIZE + 10)
    holder.commit()
