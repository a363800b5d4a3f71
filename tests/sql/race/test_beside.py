"""Each call, held at each lock on its way, beside each other call: both end, and neither as the victim of a deadlock.

The locks are not listed here: a call runs once, and what it has locked then, tables and rows, is locked before it runs
again. `make test` runs some of the pairs, the same each time, `make test-deep` all of them.
"""

from dataclasses import dataclass

import psycopg
import pytest
from tests.patience import wait_until
from tests.sql.model.invariants import broken_invariants
from tests.sql.race.sessions import Later, Race, Session
from tests.sql.seeds import IS_DEEP

DROP = "select pgmq.drop_queue('jobs')"
# On a queue with messages in two segments: most are leased, and two returned.
CALLS = {
    "send": "select pgmq.send('jobs', '1')",
    "send a batch": "select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[30]))",
    "send delayed": "select pgmq.send('jobs', '1', 5)",
    "read": "select msg_id from pgmq.read('jobs', 30, 100)",
    "receive": "select msg_id from spanmq.receive('jobs', 100, 30, 100)",
    "read grouped": "select msg_id from pgmq.read_grouped('jobs', 30, 100)",
    "pop": "select pgmq.pop('jobs', 100)",
    "delete": "select pgmq.delete('jobs', %(ids)s::bigint[])",
    "archive": "select pgmq.archive('jobs', %(ids)s::bigint[])",
    "ack": "select spanmq.ack('jobs', %(lease)s, %(ids)s::bigint[])",
    "nack": "select spanmq.nack('jobs', %(lease)s, %(ids)s::bigint[], 'x')",
    "reject": "select spanmq.reject('jobs', %(lease)s, %(ids)s::bigint[], 'x')",
    "release": "select spanmq.release('jobs', %(lease)s, %(ids)s::bigint[])",
    "extend": "select spanmq.extend('jobs', %(lease)s, %(ids)s::bigint[], 60)",
    "set_vt": "select msg_id from pgmq.set_vt('jobs', %(ids)s::bigint[], 60)",
    "cancel": "select spanmq.cancel('jobs', %(ids)s::bigint[])",
    "redrive": "select spanmq.redrive('jobs')",
    "purge": "select pgmq.purge_queue('jobs')",
    "metrics": "select pgmq.metrics('jobs')",
    "set_policy": "select spanmq.set_policy('jobs', '{\"max_backlog\": 100000}')",
    "stream": "select spanmq.receiver_claim('jobs', %(receiver)s, %(incarnation)s, 0, 100)",
    "create": "select pgmq.create('jobs')",
    "subscribe": "select spanmq.create_subscription('lake', 'jobs', true)",
    "drop": DROP,
}
# A deadlock; and an internal error, such as one that names a relation by its number.
VICTIM = {"40P01", "XX000"}
# What a session has locked, but for shared tables: of those it is rows that matter.
RELATIONS = """
    select distinct c.relkind::text, c.oid::regclass::text
    from pg_locks l join pg_class c on c.oid = l.relation
    where l.pid = %(pid)s and c.relkind in ('r', 'S') and (c.oid::regclass::text ~ '^pgmq' or c.relname ~ %(log)s)
    order by 1, 2
"""
TABLES = """
    select distinct c.oid::regclass::text from pg_locks l join pg_class c on c.oid = l.relation
    where l.pid = %s and c.relkind = 'r' and c.relnamespace = 'spanmq_core'::regnamespace and c.relname !~ '^log_'
        and l.mode <> 'AccessShareLock'
    order by 1
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """A queue with something for every call."""

    arguments: dict[str, object]

    @classmethod
    def make(cls, race: Race) -> "Scene":
        race.main.rows("select pgmq.drop_queue(name) from spanmq_core.queue order by is_subscription desc")
        race.main.rows("select pgmq.create('jobs')")
        race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', 16384 - 35)")
        ids = race.main.column("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[70]))")
        race.main.rows("select spanmq.reject('jobs', lease_id, array[msg_id]) from spanmq.receive('jobs', 2)")
        lease = race.main.rows("select lease_id, msg_id from spanmq.receive('jobs', 50)")
        receiver, incarnation = race.main.rows(
            "select receiver_id, incarnation from spanmq.receiver_open('jobs')"
        )[0]
        taken = [msg_id for _, msg_id in lease]
        nack = "select spanmq.nack('jobs', %s, %s, retry_in => 0)"
        race.main.rows(nack, lease[0][0], taken[20:22])
        return cls(
            {
                "lease": lease[0][0],
                "ids": [*taken[:3], *taken[-3:], ids[-1]],
                "receiver": receiver,
                "incarnation": incarnation,
            }
        )


def locks_of(race: Race, session: Session, call: str, scene: Scene) -> list[str]:
    """Return statements that lock what a call locks, one each."""
    session.begin()
    session.rows(CALLS[call], scene.arguments)
    queue_id = race.main.value("select queue_id from spanmq_core.queue where name = 'jobs'")
    locks = [
        f"alter sequence {name} no cycle" if kind == "S" else f"lock table {name} in access exclusive mode"
        for kind, name in race.main.rows(RELATIONS, {"pid": session.pid, "log": f"^log_{queue_id}"})
    ]
    for table in race.main.column(TABLES, session.pid):
        race.main.begin()
        free = race.main.column(f"select ctid::text from {table} for update skip locked")
        race.main.rollback()
        taken = race.main.column(
            f"select ctid::text from {table} where ctid <> all (%s::tid[]) order by ctid", free
        )
        ends = [*taken[:1], *taken[1:][-1:]]
        locks += [f"select from {table} where ctid = '{row}' for update" for row in ends]
    session.rollback()
    return locks


def end(session: Session, later: Later, fate: str) -> str | None:
    """End a call, then its transaction; return its error."""
    try:
        later.rows()
    except psycopg.Error as error:
        session.rollback()
        return error.sqlstate
    session.end(fate)
    return None


def meet(
    sessions: tuple[Session, Session, Session], lock: str, calls: tuple[str, str], scene: Scene
) -> list[str]:
    """Hold the first call at a lock, start the second, and let both go on; return their errors."""
    blocker, *others = sessions
    blocker.begin()
    blocker.rows(lock)
    for session in others:
        session.begin()
    started = []
    for session, call in zip(others, calls, strict=True):
        started.append(session.later(CALLS[call], scene.arguments))
        started[-1].waits()
    blocker.rollback()
    # The one that ends first lets the other go on.
    wait_until(lambda: any(each.has_ended() for each in started))
    pairs = sorted(zip(others, started, strict=True), key=lambda pair: not pair[1].has_ended())
    fate = "commit" if "drop" in calls else "rollback"
    return [error for session, later in pairs if (error := end(session, later, fate))]


def is_held(blocker: Session, session: Session, lock: str, call: str, scene: Scene) -> bool:
    """Return whether a call waits for a lock, and undo it."""
    blocker.begin()
    blocker.rows(lock)
    session.begin()
    later = session.later(CALLS[call], scene.arguments)
    waits = later.waits()
    blocker.rollback()
    end(session, later, "rollback")
    return waits


@pytest.mark.deeper
@pytest.mark.parametrize("first", CALLS)
def test_calls_that_meet_do_not_deadlock(database: str, first: str) -> None:
    problems = []
    with Race(database) as race:
        sessions = (race.open(), race.open(), race.open())
        for session in sessions:
            session.rows("set deadlock_timeout = '200ms'")
        scene = Scene.make(race)
        locks = locks_of(race, sessions[1], first, scene)
        places = [
            i for i, lock in enumerate(locks) if not IS_DEEP or is_held(*sessions[:2], lock, first, scene)
        ]
        for j, second in enumerate(CALLS):
            for i, place in enumerate(places):
                if not IS_DEEP and (i + j) % 12:
                    continue
                errors = meet(sessions, locks[place % len(locks)], (first, second), scene)
                if VICTIM & set(errors):
                    problems.append(
                        f"{first}, held by {locks[place % len(locks)]!r}, beside {second}: {errors}"
                    )
                if "drop" in (first, second):
                    scene = Scene.make(race)
                    locks = locks_of(race, sessions[1], first, scene)
        assert broken_invariants(race.main.connection) == []
    assert not problems, "\n".join(problems)
