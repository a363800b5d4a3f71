"""Many callers at once, as a busy queue has them: none is the victim of a deadlock."""

import threading
from functools import partial

import psycopg
import pytest
from tests.sql.race.sessions import Race, Session, side_by_side
from tests.sql.seeds import IS_DEEP

CALLERS = 8
ROUNDS = 80 if IS_DEEP else 3
CYCLES = 500 if IS_DEEP else 15
# Each settles one message of a batch of a hundred; in a transaction of its own, unless it is among the last two.
VERBS = {
    "set_vt": "select pgmq.set_vt('jobs', %(id)s::bigint, 60)",
    "nack": "select spanmq.nack('jobs', %(lease)s, array[%(id)s::bigint])",
    "ack": "select spanmq.ack('jobs', %(lease)s, array[%(id)s::bigint])",
    "delete": "select pgmq.delete('jobs', %(id)s::bigint)",
    "archive": "select pgmq.archive('jobs', %(id)s::bigint)",
}


def settle(session: Session, verb: str, lease: int, ids: list[int], calls: int) -> None:
    for first in range(0, len(ids), calls):
        session.begin()
        for each in ids[first : first + calls]:
            session.rows(VERBS[verb], {"id": each, "lease": lease})
        session.commit()


@pytest.mark.deeper
@pytest.mark.parametrize(("verb", "calls"), [*((verb, 1) for verb in VERBS), ("delete", 4), ("archive", 4)])
def test_callers_of_one_verb_on_one_batch(race: Race, verb: str, calls: int) -> None:
    sessions = [race.open() for _ in range(CALLERS)]
    for each in sessions:
        each.rows("set deadlock_timeout = '20ms'")
    for _ in range(ROUNDS):
        ids = race.send(100)
        lease = race.lease(100)
        side_by_side(
            *(
                partial(settle, each, verb, lease, ids[number::CALLERS], calls)
                for number, each in enumerate(sessions)
            )
        )
    if verb not in ("set_vt", "nack"):
        assert race.left() == []


@pytest.mark.deeper
def test_drops_under_traffic(race: Race) -> None:
    """The queue is dropped and created again while others send, read, hide, refuse and settle.

    A transaction that received before a drop settles the same ids of the new queue after it, which others hold: those
    callers may meet each other, as any that settle several messages in one transaction. None meets the drop.
    """
    over = threading.Event()
    errors = set()
    dropping = f"Process {race.main.pid} "

    def use(session: Session) -> None:
        while not over.is_set():
            try:
                session.rows("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[20]))")
                session.begin()
                got = session.rows("select lease_id, msg_id from spanmq.receive('jobs', 15)")
                for verb, (lease, each) in zip(("ack", "delete", "archive") * 3, got[:9], strict=False):
                    session.rows(VERBS[verb], {"id": each, "lease": lease})
                session.commit()
                # Alone: with others in one transaction, these meet each other often.
                for verb, (lease, each) in zip(("set_vt", "nack") * 3, got[9:], strict=False):
                    session.rows(VERBS[verb], {"id": each, "lease": lease})
            except psycopg.Error as error:
                if error.sqlstate == "42P01" or (error.sqlstate == "40P01" and dropping not in str(error)):
                    errors.add(error.sqlstate)
                else:
                    errors.add(str(error))
                session.rollback()

    def drop() -> None:
        try:
            for _ in range(CYCLES):
                race.main.rows("select pgmq.drop_queue('jobs')")
                race.main.rows("select pgmq.create('jobs')")
        finally:
            over.set()

    side_by_side(drop, *(partial(use, race.open()) for _ in range(4)), finally_do=over.set)
    assert errors <= {"42P01", "40P01"}
