"""What died together is one row for a while; for whoever looks or acts each is like any other dead letter."""

from typing import Any

import psycopg
import pytest
from tests.schemas import qualified
from tests.sql.race.sessions import Race, Session

REJECT = "select * from spanmq.reject('jobs', %s, %s, 'boom', 'BUSINESS', 'Boom', worker => 'w1')"
LETTERS = (
    "select dead_letter_id, msg_id, message, headers, group_key, attempts, enqueued_at, first_failed_at,"
    " last_failed_at, dead_at, category, error, error_class, traceback, worker, history"
    " from spanmq.dead_letters('jobs', qty => 10000)"
)

BETWEEN = (
    "select f.* from spanmq.failure_extent('jobs') e,"
    " spanmq.failures_between('jobs', e.first_id, e.last_id) f order by 1"
)

IN_BULK = (
    "select d.* from spanmq.dead_letter_extent('jobs') e,"
    " spanmq.dead_letters_between('jobs', e.first_id, e.last_id) d order by dead_letter_id"
)


def send(race: Race, n: int) -> list[int]:
    return race.main.column(
        "select * from pgmq.send_batch('jobs', array(select to_jsonb(i) from generate_series(1, %s) i),"
        """ array(select jsonb_build_object('x-pgmq-group', 'g' || i %% 3) from generate_series(1, %s) i))""",
        n,
        n,
    )


def receive(race: Race, qty: int = 10000) -> tuple[int, list[int]]:
    rows = race.main.rows("select lease_id, msg_id from spanmq.receive('jobs', %s)", qty)
    return rows[0][0], [id_ for _, id_ in rows]


def kill(race: Race, n: int = 600) -> list[int]:
    """Let so many die in one call."""
    send(race, n)
    lease, ids = receive(race, n)
    assert set(race.main.column(f"select outcome from ({REJECT}) r", lease, ids)) == {"dead"}
    return ids


def together(race: Race) -> int:
    return int(race.main.value("select coalesce(sum(n), 0) from spanmq_core.dead_run"))


def write_all(race: Race) -> None:
    for _ in range(100):
        if together(race) == 0:
            return
        race.main.rows("select * from spanmq.maintain()")
    raise AssertionError("maintain() leaves some together")


def test_a_thousand_cost_a_row_a_block(race: Race) -> None:
    kill(race, 1000)
    assert race.main.rows("select count(*), sum(n) from spanmq_core.dead_run") == [(4, 1000)]
    assert race.main.value("select count(*) from spanmq_core.dead_letter") == 0
    assert race.main.rows("select category, n from spanmq.count_dead_letters('jobs')") == [("BUSINESS", 1000)]


def test_they_look_the_same_before_and_after_maintain(race: Race) -> None:
    ids = kill(race)
    looked = race.main.rows(LETTERS)
    story = "select f.* from unnest(%s::bigint[]) id, spanmq.failures('jobs', id) f"
    stories = race.main.rows(story, ids[::97])
    dead = race.main.value("select dead_per_minute from spanmq.health()")
    between = race.main.rows(BETWEEN)
    in_bulk = race.main.rows(IN_BULK)
    assert [row[1] for row in looked] == ids
    assert together(race) == 600
    write_all(race)
    assert race.main.rows(LETTERS) == looked
    assert race.main.rows(BETWEEN) == between
    assert [row[0] for row in between] == ids
    assert race.main.rows(IN_BULK) == in_bulk
    assert [row[2] for row in in_bulk] == ids
    assert race.main.rows(story, ids[::97]) == stories
    assert race.main.value("select dead_per_minute from spanmq.health()") == dead == 600
    assert [outcome for _, _, outcome, *_ in stories] == ["dead"] * len(ids[::97])


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


def test_status_is_dead(race: Race) -> None:
    ids = kill(race, 40)
    (other,) = send(race, 1)
    states = race.main.column("select spanmq.state('jobs', id) from unnest(%s::bigint[]) id", ids)
    assert set(states) == {"dead"}
    assert race.main.value("select spanmq.state('jobs', %s)", other) == "pending"


@pytest.mark.parametrize("qty", [1, 7, 256, 599])
def test_pages_have_all_of_them_in_order(race: Race, qty: int) -> None:
    first, alone = kill(race, 300), kill(race, 3)
    last = kill(race, 297)
    seen: list[Any] = []
    after = 0
    while page := race.main.rows(
        "select dead_letter_id, msg_id from spanmq.dead_letters('jobs', after => %s, qty => %s)", after, qty
    ):
        assert len(page) <= qty
        seen += page
        after = page[-1][0]
    assert [id_ for _, id_ in seen] == [*first, *alone, *last]
    assert len({key for key, _ in seen}) == 600


@pytest.mark.parametrize(
    ("filters", "n"),
    [
        ("category => 'BUSINESS'", 600),
        ("category => 'PERMANENT'", 0),
        ("error => '^BO'", 600),
        ("error => 'no'", 0),
        ("error_class => 'Boom'", 600),
        ("error_class => 'boom'", 0),
        ("since => now() - interval '1 hour'", 600),
        ("until => now() - interval '1 hour'", 0),
        ("payload => '17'", 1),
        ("redriven => true", 0),
        ("redriven => null", 600),
    ],
)
def test_filters_find_and_purge_them(race: Race, filters: str, n: int) -> None:
    ids = kill(race)
    found = race.main.column(f"select msg_id from spanmq.dead_letters('jobs', qty => 1000, {filters})")
    assert found == (ids if n == 600 else ids[16:17] if n else [])
    assert race.main.value(f"select spanmq.purge_dead_letters('jobs', dry_run => true, {filters})") == n
    assert race.main.value(f"select spanmq.purge_dead_letters('jobs', {filters})") == n
    left = race.main.column("select msg_id from spanmq.dead_letters('jobs', qty => 1000)")
    assert left == [id_ for id_ in ids if id_ not in found]


def redrive(session: Session, more: str = "delay => 0") -> list[int]:
    return session.column(f"select msg_id from spanmq.redrive('jobs', {more})")


def test_redrive_takes_the_lowest_ids(race: Race) -> None:
    send(race, 600)
    lease, ids = receive(race)
    # Of one block in two rows, the later ids first; and some by themselves.
    for part in (ids[1::2], ids[0:500:2], ids[500::2][:5], ids[500::2][5:]):
        race.main.rows(REJECT, lease, part)
    assert together(race) == 594
    assert redrive(race.main, "dry_run => true, qty => 300") == ids[:300]
    assert redrive(race.main, "qty => 10, delay => 0") == ids[:10]
    assert together(race) > 0
    assert redrive(race.main, "payload => '17', delay => 0") == ids[16:17]
    assert redrive(race.main) == [*ids[10:16], *ids[17:]]
    assert race.main.rows("select attempt, count(*) from spanmq.receive('jobs', 1000) group by 1") == [
        (1, 600)
    ]


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
    assert race.main.value("select spanmq.state('jobs', %s)", ids[12]) == "unknown"


def test_two_at_once_put_each_back_once(race: Race) -> None:
    ids = kill(race, 600)
    first, second = race.begun(), race.open()
    assert redrive(first, "qty => 10") == ids[:10]
    # What the first has in hand, and no more; nobody waits, maintain() neither.
    block = [id_ for id_ in ids if id_ // 256 == ids[0] // 256]
    others = [id_ for id_ in ids if id_ not in block]
    assert redrive(second, "qty => 10") == others[:10]
    second.rows("select * from spanmq.maintain()")
    first.commit()
    assert redrive(second) == block[10:] + others[10:]
    assert race.left() == ids


def be_patient(race: Race, timeout: str) -> None:
    """Let who is at dead letters wait so long for who keeps house, and not three seconds."""
    race.main.rows(f"alter function spanmq_core.await_maintain() set lock_timeout = '{timeout}'")


@pytest.mark.parametrize("call", ["redrive", "purge_dead_letters"])
@pytest.mark.parametrize("more", ["", ", dead_letter_ids => %s", ", match => '$ > 0'"])
def test_what_maintain_writes_meanwhile_is_not_skipped(race: Race, call: str, more: str) -> None:
    ids = kill(race)
    numbers = race.main.column("select dead_letter_id from spanmq.dead_letters('jobs', qty => 1000)")
    be_patient(race, "60s")
    keeper, operator = race.begun(), race.open()
    assert "wrote dead letters" in keeper.column("select action from spanmq.maintain()")
    given = [numbers] if "%s" in more else []
    acting = operator.later(f"select {qualified(call)}('jobs', qty => 1000{more})", *given)
    assert acting.waits()
    keeper.commit()
    acting.rows()
    assert race.main.column("select msg_id from spanmq.dead_letters('jobs', redriven => false)") == []
    assert race.left() == (ids if call == "redrive" else [])


def test_who_keeps_house_without_an_end_holds_nobody_up(race: Race) -> None:
    kill(race)
    be_patient(race, "50ms")
    keeper = race.begun()
    assert "wrote dead letters" in keeper.column("select action from spanmq.maintain()")
    assert redrive(race.main) == []
    keeper.commit()


def test_their_segment_stays_until_they_have_rows_of_their_own(race: Race) -> None:
    ids = kill(race)
    race.main.value("select setval(ids, 40000) from spanmq_core.queue")
    race.main.value("select pgmq.send('jobs', '1')")
    kept = "select spanmq_core.is_needed_by(q.queue_id, 1, 1023) from spanmq_core.queue q"
    assert race.main.value(kept)
    write_all(race)
    assert not race.main.value(kept)
    actions: list[str] = []
    while "dropped segment" not in actions:
        actions = race.main.column("select action from spanmq.maintain()")
    assert [row[1] for row in race.main.rows(LETTERS)] == ids
    assert race.main.value("select count(*) from spanmq_core.log_1 where msg_id = any (%s)", ids) == 0
    assert redrive(race.main) == ids


def test_a_row_of_a_rewritten_segment_is_not_lost(race: Race) -> None:
    """A message that dies together with others while its segment is rewritten: the rewrite is not made."""
    send(race, 2000)
    lease, ids = receive(race)
    race.main.rows("select count(*) from spanmq.ack('jobs', %s, %s)", lease, ids[100:])
    made = (
        "select spanmq_core.copy_segment(q, s) from spanmq_core.queue q join spanmq_core.segment s using (queue_id)"
        " order by s.lo limit 1"
    )
    race.main.begin()
    race.main.rows(REJECT, lease, ids[:100])
    with pytest.raises(psycopg.errors.LockNotAvailable, match="a row is needed"):
        race.main.rows(made)
    race.main.rollback()
    race.main.begin()
    race.main.rows(made)
    race.main.rollback()


def test_shared_failures_are_their_history(race: Race) -> None:
    send(race, 300)
    for _ in range(2):
        lease, ids = receive(race)
        race.main.rows("select * from spanmq.nack('jobs', %s, %s, 'no', 'TRANSIENT', 0)", lease, ids)
    lease, ids = receive(race)
    race.main.rows(REJECT, lease, ids)
    assert together(race) == 300
    histories = race.main.column(
        "select jsonb_path_query_array(history, '$[*].error') from spanmq.dead_letters('jobs', qty => 300)"
    )
    assert histories == [["no", "no"]] * 300
    outcomes = race.main.column("select outcome from spanmq.failures('jobs', %s)", ids[17])
    assert outcomes == ["retrying", "retrying", "dead"]


def test_those_with_a_story_of_their_own_have_rows_of_their_own(race: Race) -> None:
    send(race, 200)
    lease, ids = receive(race)
    race.main.rows("select * from spanmq.nack('jobs', %s, %s, 'no', 'TRANSIENT', 0)", lease, ids[:30])
    race.main.rows("select * from spanmq.nack('jobs', %s, %s, 'never', 'TRANSIENT', 0)", lease, ids[30:60])
    again, some = receive(race)
    assert some == ids[:60]
    race.main.rows(REJECT, again, some)
    assert together(race) == 0
    race.main.rows(REJECT, lease, ids[60:])
    assert together(race) == 140
    found = race.main.rows(
        "select msg_id, jsonb_path_query_array(history, '$[*].error')"
        " from spanmq.dead_letters('jobs', qty => 300) order by 1"
    )
    expected = [["no"]] * 30 + [["never"]] * 30 + [[]] * 140
    assert found == list(zip(ids, expected, strict=True))


def test_they_go_with_their_queue(race: Race) -> None:
    kill(race)
    race.main.value("select pgmq.drop_queue('jobs')")
    assert together(race) == 0


def test_a_purge_of_the_queue_keeps_them(race: Race) -> None:
    ids = kill(race)
    send(race, 5)
    race.main.value("select pgmq.purge_queue('jobs')")
    assert [row[1] for row in race.main.rows(LETTERS)] == ids


def test_their_groups_wait_for_them_where_the_policy_says_so(race: Race) -> None:
    settings = '{"ordered": true, "dead_letter_blocks_group": true}'
    race.main.value("select spanmq.set_policy('jobs', %s)", settings)
    send(race, 300)
    dead: list[int] = []
    while ids := race.main.rows("select lease_id, msg_id from spanmq.receive('jobs', 100)"):
        if len(dead) == 0:
            race.main.rows(REJECT, ids[0][0], [id_ for _, id_ in ids])
            dead = [id_ for _, id_ in ids]
    assert together(race) == len(dead) == 100
    assert redrive(race.main) == sorted(dead)
    assert min(dead) in receive(race, 100)[1]
