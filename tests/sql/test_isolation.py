"""Callers with an old snapshot get a clean serialization failure at worst: nothing twice, nothing lost."""

import psycopg
import pytest
from psycopg.errors import SerializationFailure
from tests.sql.model.invariants import broken_invariants

OLD = ["repeatable read", "serializable"]


@pytest.fixture
def sessions(database: str):  # type: ignore[no-untyped-def]
    with psycopg.connect(database, autocommit=True) as one, psycopg.connect(database, autocommit=True) as two:
        one.execute("select pgmq.create('jobs')")
        one.execute("select pgmq.send_batch('jobs', array_fill('{}'::jsonb, array[10]))")
        yield one, two
        assert broken_invariants(one) == []


def begin(session: psycopg.Connection, isolation: str) -> None:
    session.execute(f"begin isolation level {isolation}")
    session.execute("select count(*) from pgmq.q_jobs")


def ids(session: psycopg.Connection, call: str) -> list[int]:
    return [message_id for (message_id,) in session.execute(f"select msg_id from {call}")]


@pytest.mark.parametrize("isolation", OLD)
def test_claim_of_what_another_took_since_fails_cleanly(sessions, isolation: str) -> None:  # type: ignore[no-untyped-def]
    now, old = sessions
    begin(old, isolation)
    assert ids(now, "pgmq.read('jobs', 30, 5)") == [1, 2, 3, 4, 5]
    with pytest.raises(SerializationFailure):
        old.execute("select * from pgmq.read('jobs', 30, 5)")
    old.rollback()
    assert ids(old, "pgmq.read('jobs', 30, 10)") == [6, 7, 8, 9, 10]


@pytest.mark.parametrize("isolation", OLD)
def test_delete_of_what_left_its_lease_since_fails_cleanly(sessions, isolation: str) -> None:  # type: ignore[no-untyped-def]
    now, old = sessions
    assert len(ids(now, "pgmq.read('jobs', 30, 10)")) == 10
    begin(old, isolation)
    assert now.execute("select pgmq.delete('jobs', 4)").fetchone() == (True,)
    with pytest.raises(SerializationFailure):
        old.execute("select * from pgmq.delete('jobs', array(select generate_series(1, 10)))")
    old.rollback()
    assert now.execute("select count(*) from pgmq.q_jobs").fetchone() == (9,)


@pytest.mark.parametrize("isolation", OLD)
def test_claim_of_an_expired_lease_that_a_message_left_since_fails_cleanly(sessions, isolation: str) -> None:  # type: ignore[no-untyped-def]
    now, old = sessions
    assert len(ids(now, "pgmq.read('jobs', 0, 10)")) == 10
    begin(old, isolation)
    assert now.execute("select pgmq.delete('jobs', 4)").fetchone() == (True,)
    with pytest.raises(SerializationFailure):
        old.execute("select * from pgmq.read('jobs', 30, 10)")
    old.rollback()
    assert ids(now, "pgmq.read('jobs', 30, 10)") == [1, 2, 3, 5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("isolation", OLD)
def test_whole_cycle_works_in_an_old_snapshot(sessions, isolation: str) -> None:  # type: ignore[no-untyped-def]
    _, old = sessions
    begin(old, isolation)
    old.execute("select * from pgmq.send('jobs', '{}')")
    assert len(ids(old, "pgmq.read('jobs', 30, 100)")) == 11
    assert len(old.execute("select * from pgmq.delete('jobs', array[1, 2, 11])").fetchall()) == 3
    old.commit()
    assert old.execute("select count(*) from pgmq.q_jobs").fetchone() == (8,)


@pytest.mark.parametrize("isolation", OLD)
def test_grouped_read_is_refused(sessions, isolation: str) -> None:  # type: ignore[no-untyped-def]
    _, old = sessions
    begin(old, isolation)
    with pytest.raises(psycopg.DatabaseError, match="need READ COMMITTED") as refused:
        old.execute("select * from pgmq.read_grouped('jobs', 30, 1)")
    assert refused.value.sqlstate == "MQ003"
    old.rollback()


@pytest.mark.parametrize("isolation", OLD)
def test_maintain_is_refused(sessions, isolation: str) -> None:  # type: ignore[no-untyped-def]
    _, old = sessions
    begin(old, isolation)
    with pytest.raises(psycopg.DatabaseError, match="needs READ COMMITTED") as refused:
        old.execute("select * from spanmq.maintain()")
    assert refused.value.sqlstate == "MQ003"
    old.rollback()


@pytest.mark.parametrize("isolation", OLD)
def test_limit_of_messages_in_flight_is_not_judged_by_an_old_snapshot(sessions, isolation: str) -> None:  # type: ignore[no-untyped-def]
    now, old = sessions
    now.execute("""select spanmq.set_policy('jobs', '{"max_in_flight": 1}'), pgmq.send('jobs', '[1]')""")
    begin(old, isolation)
    assert ids(now, "pgmq.read('jobs', 30, 10, '[1]')") == [11]
    with pytest.raises(psycopg.DatabaseError, match="needs READ COMMITTED") as refused:
        old.execute("select * from pgmq.read('jobs', 30, 10)")
    assert refused.value.sqlstate == "MQ003"
    old.rollback()


def test_read_uncommitted_is_read_committed(sessions) -> None:  # type: ignore[no-untyped-def]
    now, session = sessions
    session.execute("begin isolation level read uncommitted")
    session.execute("select count(*) from pgmq.q_jobs")
    now.execute("select pgmq.delete('jobs', 1)")
    assert ids(session, "pgmq.read_grouped('jobs', 30, 2)") == [2, 3]
    session.execute("select spanmq.create_subscription('copy', 'jobs')")
    session.execute("select * from spanmq.maintain()")
    session.commit()
