"""What two positions of an archive tell apart: who commits late belongs to the later one."""

import json
from typing import Any

import psycopg
import pytest
from tests.patience import wait_until
from tests.sql.race.sessions import Race

LATER = "select from pgmq.a_jobs where archived_at >= %s"
PIECE = "select n, last_id from spanmq.archive_piece('jobs', %s::jsonb, %s::jsonb, 0, 10)"


def position(race: Race) -> str:
    """Return the position as of now, behind all that is archived here.

    Messages that were archived later than now, since the clock has been set back, belong to the next position.
    """
    here: dict[str, Any] = {}

    def is_behind() -> bool:
        here.update(race.main.value("select here from spanmq.archive_position('jobs')"))
        return not race.main.rows(LATER, here["at"])

    wait_until(is_behind)
    return json.dumps(here)


def between(race: Race, base: str | None, here: str) -> list[Any]:
    """Return the ids between two positions, by pieces of one and by the condition of their ranges."""
    row = race.main.rows(PIECE, base, here)[0]
    condition = "select condition from spanmq.archive_ranges('jobs', %s::jsonb, %s::jsonb, 0, 100000, 10)"
    found = race.main.value(condition, base, here)
    ids = race.main.column(f"select msg_id from pgmq.a_jobs t where {found} order by 1") if found else []
    assert row == (len(ids), ids[-1] if ids else None)
    return ids


@pytest.mark.parametrize("in_savepoint", [False, True])
def test_message_of_an_open_transaction_comes_from_the_position_after_its_end(
    race: Race, in_savepoint: bool
) -> None:
    # A run each, or one would wait for the other.
    ids = [race.send(1)[0] for _ in range(4)]
    race.main.rows("select pgmq.archive('jobs', %s::bigint)", ids[0])
    late = race.begun()
    if in_savepoint:
        late.rows("savepoint before")
    late.rows("select pgmq.archive('jobs', %s::bigint)", ids[1])
    race.main.rows("select pgmq.archive('jobs', %s::bigint)", ids[2])
    first = position(race)
    assert between(race, None, first) == [ids[0], ids[2]]
    late.commit()
    assert between(race, None, first) == [ids[0], ids[2]], "whenever it is asked"
    race.main.rows("select pgmq.archive('jobs', %s::bigint)", ids[3])
    second = position(race)
    assert between(race, first, second) == [ids[1], ids[3]]
    assert between(race, None, second) == ids
    assert between(race, second, second) == []


def test_transactions_of_other_databases_hold_no_position_back(race: Race, spanmq_server: str) -> None:
    with psycopg.connect(spanmq_server) as elsewhere:
        elsewhere.execute("select pg_current_xact_id()")
        here = json.loads(position(race))
        # It is open, and can write nothing here.
        assert (here["starts"], here["since"]) == ([], here["at"])
