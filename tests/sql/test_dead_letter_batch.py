"""Many messages that die in one call are dead letters like any other."""

import pytest
from tests.sql.queue import send_groups
from tests.sql.race.sessions import Race, Session

REJECT = "select * from spanmq.reject('jobs', %s, %s, 'boom', 'BUSINESS', 'Boom', worker => 'w1')"
IN_BULK = (
    "select d.* from spanmq.dead_letter_extent('jobs') e,"
    " spanmq.dead_letters_between('jobs', e.first_id, e.last_id) d order by dead_letter_id"
)


def send(race: Race, n: int) -> list[int]:
    return send_groups(race.main.connection, "jobs", n, "'g' || i %% 3")


def receive(race: Race, qty: int = 10000) -> tuple[int, list[int]]:
    rows = race.main.rows("select lease_id, msg_id from spanmq.receive('jobs', %s)", qty)
    return rows[0][0], [id_ for _, id_ in rows]


def kill(race: Race, n: int = 600) -> list[int]:
    """Reject so many messages in one call."""
    send(race, n)
    lease, ids = receive(race, n)
    assert set(race.main.column(f"select outcome from ({REJECT}) r", lease, ids)) == {"dead"}
    return ids


@pytest.mark.parametrize("width", [100, 256, 1000])
def test_pieces_of_the_bulk_read_have_each_once(race: Race, width: int) -> None:
    ids = [*kill(race, 300), *kill(race, 3), *kill(race, 40)]
    redrive(race.main, "qty => 1, delay => 0")
    ((first, last),) = race.main.rows("select * from spanmq.dead_letter_extent('jobs')")
    found = [
        id_
        for low in range(first, last + 1, width)
        for id_ in race.main.column(
            "select msg_id from spanmq.dead_letters_between('jobs', %s, %s) order by dead_letter_id",
            low,
            min(low + width - 1, last),
        )
    ]
    assert found == ids


def test_bulk_read_of_nothing(race: Race) -> None:
    assert race.main.rows("select * from spanmq.dead_letter_extent('jobs')") == [(None, None)]
    assert race.main.rows(IN_BULK) == []


def redrive(session: Session, more: str = "delay => 0") -> list[int]:
    return session.column(f"select msg_id from spanmq.redrive('jobs', {more})")


def test_one_of_them_is_redriven_alone(race: Race) -> None:
    ids = kill(race, 300)
    assert race.main.value("select spanmq.redrive_message('jobs', %s, delay => 0)", ids[100]) == ids[100]
    assert receive(race)[1] == [ids[100]]
    left = race.main.column("select msg_id from spanmq.dead_letters('jobs', qty => 1000)")
    assert left == ids[:100] + ids[101:]


def test_chosen_ones_of_a_queue_are_put_back_or_discarded_once(race: Race) -> None:
    numbers_of = "select dead_letter_id from spanmq.dead_letters(%s, qty => 1000)"
    race.main.rows("select pgmq.create('others'), pgmq.send('others', '1')")
    race.main.rows("select spanmq.reject('others', lease_id, array[msg_id]) from spanmq.receive('others')")
    others = race.main.column(numbers_of, "others")
    ids = kill(race, 300)
    numbers = race.main.column(numbers_of, "jobs")
    redrive_chosen = "select count(*) from spanmq.redrive('jobs', dead_letter_ids => %s, delay => 0)"
    assert race.main.value(redrive_chosen, [*numbers[10:290:70], *others, 10**9]) == 4
    assert race.main.value(redrive_chosen, numbers[10:12]) == 1
    assert receive(race)[1] == [ids[10], ids[11], *ids[80:290:70]]
    discard_chosen = "select spanmq.purge_dead_letters('jobs', dead_letter_ids => %s)"
    assert (race.main.value(discard_chosen, numbers[11:14]), race.main.value(discard_chosen, [])) == (2, 0)
    left = race.main.column("select msg_id from spanmq.dead_letters('jobs', qty => 1000)")
    assert left == [id_ for id_ in ids if id_ not in {*ids[10:290:70], *ids[11:14]}]
    assert race.main.column(numbers_of, "others") == others
    # What was put back is told of, and what was discarded is not.
    assert race.main.value("select count(*) from spanmq.dead_letters('jobs', redriven => true)") == 5
    assert race.main.value("select n from spanmq.count_dead_letters('jobs')") == 300 - 7
    assert race.main.value("select spanmq.state('jobs', %s)", ids[12]) == "discarded"


def test_shared_failures_are_their_history(race: Race) -> None:
    send(race, 300)
    for _ in range(2):
        lease, ids = receive(race)
        race.main.rows("select * from spanmq.nack('jobs', %s, %s, 'no', 'TRANSIENT', 0)", lease, ids)
    lease, ids = receive(race)
    race.main.rows(REJECT, lease, ids)
    histories = race.main.column(
        "select jsonb_path_query_array(history, '$[*].error') from spanmq.dead_letters('jobs', qty => 300)"
    )
    assert histories == [["no", "no"]] * 300
    outcomes = race.main.column("select outcome from spanmq.failures('jobs', %s)", ids[17])
    assert outcomes == ["retrying", "retrying", "dead"]


def test_each_has_its_own_history(race: Race) -> None:
    send(race, 200)
    lease, ids = receive(race)
    race.main.rows("select * from spanmq.nack('jobs', %s, %s, 'no', 'TRANSIENT', 0)", lease, ids[:30])
    race.main.rows("select * from spanmq.nack('jobs', %s, %s, 'never', 'TRANSIENT', 0)", lease, ids[30:60])
    again, some = receive(race)
    assert some == ids[:60]
    race.main.rows(REJECT, again, some)
    race.main.rows(REJECT, lease, ids[60:])
    found = race.main.rows(
        "select msg_id, jsonb_path_query_array(history, '$[*].error')"
        " from spanmq.dead_letters('jobs', qty => 300) order by 1"
    )
    expected = [["no"]] * 30 + [["never"]] * 30 + [[]] * 140
    assert found == list(zip(ids, expected, strict=True))
