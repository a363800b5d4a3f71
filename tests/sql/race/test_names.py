"""The lock of a name: transactions that are about one name come one after the other, and leave no row."""

from functools import partial

import pytest
from tests.patience import wait_until
from tests.sql.queue import sqlstate_of
from tests.sql.race.sessions import Race

# The rows of names; `maintain` and `rights` are no names.
NAMES = "select count(*) from spanmq_core.lock where queue_id = 0 and what ~ ' '"
CREATE = "select pgmq.create('named')"
DROP = "select pgmq.drop_queue('named')"
EXISTS = "select count(*) from spanmq_core.queue where name = 'named'"
SCHEDULE = "select spanmq.schedule('daily', 'jobs', '0 0 * * *', '1')"
SHARDS = "select spanmq.set_shards('jobs', %s, 'turn', '{\"jobs\": \"here\"}')"


@pytest.mark.parametrize("ends", ["commit", "rollback"])
@pytest.mark.parametrize("statement", [CREATE, SCHEDULE])
@pytest.mark.parametrize("leaves_row", [False, True])
def test_transactions_about_one_name_wait_for_each_other_one_by_one(
    race: Race, statement: str, ends: str, leaves_row: bool
) -> None:
    if leaves_row:  # as 0.1.0 did
        race.main.rows("insert into spanmq_core.lock values (0, 'queue named'), (0, 'schedule daily')")
    sessions = [race.begun() for _ in range(4)]
    sessions[0].rows(statement)
    later = {session: session.waiting(statement) for session in sessions[1:]}
    sessions[0].end(ends)
    while later:
        wait_until(lambda: any(each.has_ended() for each in later.values()))
        # Only one of them goes on, and the others wait for it.
        [goes_on] = [session for session, each in later.items() if not each.waits()]
        later.pop(goes_on).rows()
        goes_on.end(ends)
    assert race.main.value(EXISTS) == (ends == "commit" and statement == CREATE)
    assert race.main.value(NAMES) == (2 if leaves_row and ends == "rollback" else leaves_row)


def test_name_that_is_created_and_dropped_within_a_transaction_stays_locked_to_its_end(race: Race) -> None:
    one, two = race.begun(), race.open()
    for statement in (CREATE, DROP, CREATE, DROP):
        one.rows(statement)
    later = two.waiting(CREATE)
    assert later.waits()
    one.commit()
    later.rows()
    assert race.main.value(EXISTS) == 1
    race.main.rows(DROP)
    assert race.main.value(NAMES) == 0


def test_map_of_shards_that_is_forgotten_leaves_no_lock_and_lets_no_sender_enter(race: Race) -> None:
    enter = "select spanmq.enter_shards('jobs', 1)"
    race.main.rows(SHARDS, 1)
    one, two, three = race.begun(), race.begun(), race.begun()
    one.rows(enter)
    two.rows(enter)  # which share it
    forgotten = three.waiting("select spanmq.forget_shards('jobs')")
    one.commit()
    assert forgotten.waits()
    two.commit()
    assert forgotten.rows() == [(True,)]
    late = race.open().waiting(enter)
    three.commit()
    assert sqlstate_of(race.main.connection, late.rows) == "MQ030"
    assert race.main.value(NAMES) == 0
    for epoch in ("null", "2"):
        refused = partial(race.main.rows, f"select spanmq.enter_shards('jobs', {epoch})")
        assert sqlstate_of(race.main.connection, refused) == "MQ030"
    assert race.main.value(NAMES) == 0
