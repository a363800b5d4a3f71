"""Segments grow where they fill within a minute, so that a fast queue is not always between two of them."""

import pytest
from tests.sql.race.sessions import Race

FIRST_SIZE = 16384
LAST_SIZE = 1048576


@pytest.fixture
def race(race: Race) -> Race:
    race.main.rows("select pgmq.send('jobs', '1')")
    return race


def size_of_last(race: Race) -> int:
    race.main.rows("select * from spanmq.maintain()")
    return int(race.main.value("select hi + 1 - lo from spanmq_core.segment order by lo desc limit 1"))


def enter_next(race: Race) -> None:
    """Send into the segment behind that of the newest message; maintain() is never late."""
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', log_hi + 1) from spanmq_core.queue")
    race.main.rows("select pgmq.send('jobs', '1')")


def test_queue_has_as_many_segments_as_it_is_about_to_need(race: Race) -> None:
    race.main.rows("select pgmq.create('idle')")
    race.main.rows("select * from spanmq.maintain()")
    count = "select count(*)::int from spanmq_core.segment group by queue_id order by queue_id"
    assert race.main.column(count) == [2, 1]
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', %s)", FIRST_SIZE // 2)
    race.main.rows("select * from spanmq.maintain()")
    assert race.main.column(count) == [3, 1]


def test_segments_grow_where_they_fill_within_a_minute(race: Race) -> None:
    assert size_of_last(race) == FIRST_SIZE
    for grown in (2, 4, 8, 16, 32, 64, 64):
        # A slow machine takes no longer.
        race.main.rows("update spanmq_core.segment set created_at = clock_timestamp() + interval '1 h'")
        enter_next(race)
        assert size_of_last(race) == size_of_last(race) == grown * FIRST_SIZE
    assert size_of_last(race) == LAST_SIZE


@pytest.mark.parametrize(
    ("create", "blocks"),
    [("pgmq.create('bulk')", [2, 1, 1, 1]), ("pgmq.create_partitioned('bulk', '10240')", [5, 6, 6, 5])],
)
def test_bulk_write_has_segments_as_large_as_its_blocks_or_as_its_queue_says(
    race: Race, create: str, blocks: list[int]
) -> None:
    race.main.rows(f"select {create}")
    reserve = "select count(*)::int from spanmq.bulk_reserve('bulk', 'w', 0, 50000)"
    assert [race.main.value(reserve) for _ in blocks] == blocks


def test_segments_stay_as_they_are_where_they_take_longer(race: Race) -> None:
    assert size_of_last(race) == FIRST_SIZE
    for _ in range(3):
        race.main.rows("update spanmq_core.segment set created_at = created_at - interval '61 s'")
        enter_next(race)
        assert size_of_last(race) == FIRST_SIZE


def test_segments_are_made_ahead_while_somebody_is_at_the_row_of_the_queue(race: Race) -> None:
    size_of_last(race)
    holder = race.begun()
    holder.rows("select from spanmq_core.queue for no key update")
    enter_next(race)
    last = race.main.value("select max(lo) from spanmq_core.segment")
    size_of_last(race)
    assert race.main.value("select max(lo) from spanmq_core.segment") > last
    holder.rollback()
