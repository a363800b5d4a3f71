"""What an open transaction has read of one ordered queue hides no group of another queue."""

import pytest
from tests.sql.queue import send_groups
from tests.sql.race.sessions import Race, Session

ORDERED = """select spanmq.set_policy('%s', '{"ordered": true}')"""
GROUPS_OF_A_CLAIM = 500


def send(race: Race, queue: str, n: int) -> list[int]:
    """Send a message into each of n groups."""
    return send_groups(race.main.connection, queue, n, "i")


def receive_all(session: Session, queue: str) -> list[int]:
    """Receive until nothing comes."""
    ids: list[int] = []
    while came := session.column("select msg_id from spanmq.receive(%s, 1000)", queue):
        ids += came
    return sorted(ids)


@pytest.fixture
def race(race: Race) -> Race:
    """Make a second queue, `others`; both are ordered."""
    race.main.rows("select pgmq.create('others')")
    for queue in ("jobs", "others"):
        race.main.rows(ORDERED % queue)
    return race


def test_open_claims_of_thousands_of_groups_hide_no_group_of_another_queue(race: Race) -> None:
    send(race, "others", 12 * GROUPS_OF_A_CLAIM)
    ids = send(race, "jobs", 60)
    claimer = race.begun()
    for _ in range(6):
        assert claimer.column("select msg_id from spanmq.receive('others', 500)")
    assert receive_all(race.main, "jobs") == ids
    claimer.commit()


def test_first_claim_of_a_queue_hides_no_group_of_another(race: Race) -> None:
    send(race, "others", 2)
    ids = send(race, "jobs", 2)
    claimer = race.begun()
    assert claimer.column("select msg_id from spanmq.receive('others')")
    assert receive_all(race.main, "jobs") == ids
    claimer.commit()


@pytest.mark.parametrize("fate", ["commit", "rollback"])
def test_claim_that_meets_the_first_one_of_its_queue_returns_nothing(race: Race, fate: str) -> None:
    ids = send(race, "jobs", 3)
    first, second = race.begun(), race.open()
    (taken,) = first.column("select msg_id from spanmq.receive('jobs')")
    assert second.column("select msg_id from spanmq.receive('jobs')") == []
    first.end(fate)
    assert receive_all(second, "jobs") == [each for each in ids if fate == "rollback" or each != taken]


def test_open_claim_after_the_first_hides_its_group_only(race: Race) -> None:
    ids = send(race, "jobs", 3)
    first, second = race.open(), race.begun()
    (settled,) = first.column("select msg_id from spanmq.receive('jobs')")
    (taken,) = second.column("select msg_id from spanmq.receive('jobs')")
    assert receive_all(first, "jobs") == [each for each in ids if each not in (settled, taken)]
    second.commit()


def test_rows_that_claims_of_groups_lock_are_made_once(race: Race) -> None:
    send(race, "jobs", 3)
    for session in (race.open(), race.open()):
        session.rows("select pgmq.pop('jobs')")
    assert race.main.value("select count(*) from spanmq_core.group_lock") == 4096
