"""Unlogged queues: their messages are in unlogged tables, their state is that of all queues."""

import pytest
from tests.sql.race.sessions import Race
from tests.sql.test_redrive import maintain

# More than the first segment holds.
SENT = 20_000


def persistence(race: Race) -> list[str]:
    """Return the kinds of the tables of the queue's log, its parent's too."""
    return race.main.column(
        "select distinct relpersistence::text from pg_class where relkind = 'r' and relname ~ %s",
        f"^log_{race.queue_id}(_|$)",
    )


@pytest.mark.parametrize(("kind", "expected"), [("create", "p"), ("create_unlogged", "u")])
def test_every_table_of_a_log_is_as_its_queue(database: str, kind: str, expected: str) -> None:
    with Race(database, kind=kind) as race:
        race.send(SENT)
        assert race.main.column("select action from spanmq.maintain()")[:2] == ["made segment"] * 2
        assert persistence(race) == [expected]


def test_copy_of_a_sparse_segment_is_unlogged(database: str) -> None:
    with Race(database, kind="create_unlogged") as race:
        ids = race.send(SENT)
        race.main.rows("select pgmq.delete('jobs', %s::bigint[])", ids[20:])
        maintain(race, "rewrote segment")
        assert persistence(race) == ["u"]
        assert race.main.column("select msg_id from pgmq.read('jobs', 30, 100)") == ids[:20]
