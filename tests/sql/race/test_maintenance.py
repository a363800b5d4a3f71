"""Several who call maintain() at once: one is elected, for as long as its transaction lasts."""

from tests.sql.race.sessions import Race

# One queue a call: there is always something left to do for another.
MAINTAIN = "select action, queue from spanmq.maintain(1)"


def make_work(race: Race) -> None:
    """Make queues that want segments: each is something to do, which no lock of another one hides."""
    for number in range(12):
        race.main.rows("select pgmq.create(%(name)s), pgmq.send(%(name)s, '1')", {"name": f"more_{number}"})


def test_one_of_ten_who_maintain_at_once_does_and_the_others_do_nothing(race: Race) -> None:
    make_work(race)
    sessions = [race.open() for _ in range(10)]
    done = []
    for session in sessions:
        session.begin()
        # Nobody waits: what it returns it returns at once, whoever else is in the middle of it.
        done.append(session.rows(MAINTAIN))
    assert [bool(rows) for rows in done] == [True] + [False] * 9
    assert race.main.rows(MAINTAIN) == []
    sessions[0].commit()
    [first, *_] = done
    after = [session.rows(MAINTAIN) for session in sessions[1:]]
    assert [bool(rows) for rows in after] == [True] + [False] * 8
    assert {queue for _, queue in after[0]}.isdisjoint({queue for _, queue in first})
    for session in sessions[1:]:
        session.commit()


def test_call_looks_into_a_hundred_queues_for_each_step(race: Race) -> None:
    for number in range(100):
        race.main.rows("select pgmq.create(%s)", f"more_{number}")
    race.main.rows("select pgmq.send('more_99', '1')")
    assert race.main.rows(MAINTAIN) == []
    assert race.main.rows(MAINTAIN) == [("made segment", "more_99")]


def test_another_is_elected_when_the_one_that_was_dies_in_the_middle(race: Race) -> None:
    make_work(race)
    one, two = race.begun(), race.open()
    assert one.rows(MAINTAIN)
    assert two.rows(MAINTAIN) == []
    one.drop()
    # It goes on with another queue.
    assert two.rows(MAINTAIN)


def test_queue_is_dropped_with_the_segments_that_are_made_meanwhile(race: Race) -> None:
    race.main.rows("select pgmq.send('jobs', '1')")
    keeper, dropper = race.begun(), race.open()
    assert keeper.column("select action from spanmq.maintain()") == ["made segment"]
    dropping = dropper.waiting("select pgmq.drop_queue('jobs')")
    keeper.commit()
    assert dropping.rows() == [(True,)]
    assert race.main.value("select to_regclass(%s)", f"spanmq_core.log_{race.queue_id}") is None


def test_what_has_attempts_left_is_received_while_another_maintains(race: Race) -> None:
    ids = [
        row[0]
        for row in race.main.rows(
            "select * from spanmq.send_messages('jobs', array['1', '2']::jsonb[], max_attempts => 5)"
        )
    ]
    lease = race.main.value("select max(lease_id) from spanmq.receive('jobs', 10)")
    race.main.rows("select * from spanmq.nack('jobs', %s, %s, retry_in => 0)", lease, ids)
    one = race.begun()
    one.rows("select action, queue from spanmq.maintain()")
    assert [row[0] for row in race.main.rows("select msg_id from spanmq.receive('jobs', 10)")] == ids
    one.commit()


def test_run_that_another_session_holds_is_not_counted_as_cut(race: Race) -> None:
    race.send(200)
    race.lease(200, -1)
    reader = race.begun()
    assert len(reader.rows("select msg_id from pgmq.read('jobs', 30, 1)")) == 1
    assert any(race.main.rows("select * from spanmq.maintain()") == [] for _ in range(20))
