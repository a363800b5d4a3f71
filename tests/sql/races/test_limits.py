"""Housekeeping and policies against consumers whose transactions are open."""

from tests.sql.races.sessions import Race

SEND = (
    "select pgmq.send_messages('jobs', array(select to_jsonb(i) from generate_series(1, %s) i),"
    " expires_in => 60)"
)


def test_housekeeping_goes_on_beside_a_consumer_that_has_what_expired(race: Race) -> None:
    ids = race.main.column(SEND, 3)
    other = race.main.column(SEND, 1)
    one = race.open()
    one.begin()
    assert one.column("select msg_id from pgmq.pop('jobs', 3)") == ids
    race.main.rows("update spanmq.expiry set expires_at = clock_timestamp() - interval '1 s'")
    race.main.rows("select pgmq.maintain()")
    assert race.main.column("select msg_id from spanmq.dead_letter") == other
    one.rollback()
    race.main.rows("select pgmq.maintain()")
    assert race.main.column("select msg_id from spanmq.dead_letter order by 1") == [*ids, *other]


def test_group_goes_on_if_the_policy_is_taken_back_while_one_of_it_dies(race: Race) -> None:
    race.main.rows(
        """select pgmq.set_policy('jobs', '{"ordered": true, "dead_letter_blocks_group": true}')"""
    )
    ids = race.main.column(
        "select pgmq.send_batch('jobs', array['1', '2']::jsonb[], array_fill(%s::jsonb, array[2]))",
        '{"x-pgmq-group": "blue"}',
    )
    one = race.open()
    one.begin()
    lease = one.value("select lease_id from pgmq.receive('jobs', 1)")
    assert one.rows("select outcome from pgmq.reject('jobs', %s, %s)", lease, ids[:1]) == [("dead",)]
    race.main.rows("""select pgmq.set_policy('jobs', '{"dead_letter_blocks_group": false}')""")
    one.commit()
    assert race.main.column("select msg_id from pgmq.receive('jobs', 9, -1)") == ids[1:]
    race.main.rows("""select pgmq.set_policy('jobs', '{"dead_letter_blocks_group": true}')""")
    assert race.main.column("select msg_id from pgmq.receive('jobs', 9)") == ids[1:], "it died before"
