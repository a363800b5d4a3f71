"""Sessions whose statements run in an order that a test chooses.

Of all sessions one runs at a time, from a step to the next one (stepped.py), to the end of its statement, or until it
waits for a lock that another one holds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn
from tests.patience import wait_until

# What each session waits for: a step of its own, or a lock.
WAITS = (
    "select pid, coalesce(locktype = 'advisory' and objsubid = 2 and objid::int < 2, false), objid::int"
    " from pg_locks where not granted and pid = any(%s)"
)
SETTINGS = "-c deadlock_timeout=20ms -c lock_timeout=60s -c jit=off -c synchronous_commit=off"


@dataclass(slots=True)
class Call:
    """A statement of a session: when it began and ended, in turns of the machine, and what it returned."""

    session: int
    text: str
    began: int
    ended: int = -1
    rows: list[tuple[str | None, ...]] = field(default_factory=list)
    sqlstate: str | None = None


# Returns the next statement of a session; it sees the calls that have ended. None: there is none.
Program = Sequence[Callable[[list[Call]], str]]


class Actor:
    """One session and its program."""

    def __init__(self, dsn: str, number: int) -> None:
        self.number = number
        self.key = 7_000_000 + number
        self._connection = psycopg.connect(dsn, autocommit=True, options=SETTINGS)
        self._connection.execute(f"set spanmq_step.session = {self.key}".encode())
        self.pid = self._connection.info.backend_pid
        self._pgconn: PGconn = self._connection.pgconn
        self.program: Program = ()
        self.calls: list[Call] = []
        self.place = 0
        self.is_running = False
        self.is_blocked = False
        # The lock of the next step, 0 or 1.
        self.step_lock = 0

    @property
    def has_more(self) -> bool:
        """Return whether it is between statements and has another one."""
        return not self.is_running and self.place < len(self.program)

    def begin(self, turn: int) -> None:
        """Send the next statement."""
        text = self.program[self.place](self.calls)
        self.place += 1
        self.calls.append(Call(self.number, text, turn))
        self._pgconn.send_query(text.encode())
        self.is_running = True

    def look(self, turn: int) -> None:
        """Notice the end of the statement."""
        self._pgconn.consume_input()
        if self._pgconn.is_busy():
            return
        call = self.calls[-1]
        while result := self._pgconn.get_result():
            if result.status == ExecStatus.TUPLES_OK:
                call.rows = [
                    tuple(
                        None if (value := result.get_value(row, column)) is None else value.decode()
                        for column in range(result.nfields)
                    )
                    for row in range(result.ntuples)
                ]
            elif result.status == ExecStatus.FATAL_ERROR:
                state = result.error_field(psycopg.pq.DiagnosticField.SQLSTATE)
                call.sqlstate = state.decode() if state else "?????"
                call.rows = [(result.error_message.decode(),)]
            result.clear()
        call.ended = turn
        self.is_running = self.is_blocked = False

    def reset(self, program: Program) -> None:
        """Have another program, from its beginning."""
        self.program, self.calls, self.place = program, [], 0

    def close(self) -> None:
        """End the session."""
        self._connection.close()


class Machine:
    """Some sessions on one database, and the locks of their steps."""

    def __init__(self, dsn: str, sessions: int) -> None:
        self._control = psycopg.connect(dsn, autocommit=True)
        self._control.prepare_threshold = 0
        self.actors = [Actor(dsn, number) for number in range(sessions)]
        self.turn = 0
        for actor in self.actors:
            for lock in (0, 1):
                self._control.execute("select pg_advisory_lock(%s, %s)", [actor.key, lock])

    def run(
        self, programs: Sequence[Program], choose: Callable[[list[int], int | None], int]
    ) -> tuple[list[Call], list[tuple[list[int], int]]]:
        """Run programs to their ends. `choose` picks one of the sessions that can go on, given the last one.

        Returns the calls in the order of their beginning, and each choice with what there was to choose from.
        """
        actors = self.actors[: len(programs)]
        for actor, program in zip(actors, programs, strict=True):
            actor.reset(program)
        self.turn = 0
        choices: list[tuple[list[int], int]] = []
        last: int | None = None
        while True:
            able = [
                actor.number
                for actor in actors
                if actor.has_more or (actor.is_running and not actor.is_blocked)
            ]
            if not able:
                if not any(actor.is_running for actor in actors):
                    break
                # All wait for each other: the server ends one.
                self._settle(actors, until_one_moves=True)
                continue
            last = choose(able, last)
            choices.append((able, last))
            self.turn += 1
            actor = actors[last]
            if actor.is_running:
                self._let_go(actor)
            else:
                actor.begin(self.turn)
            self._settle(actors)
        calls = sorted((call for actor in actors for call in actor.calls), key=lambda call: call.began)
        return calls, choices

    def _let_go(self, actor: Actor) -> None:
        """Unlock the step of a session, and lock the one behind it."""
        self._control.execute(
            "select pg_advisory_unlock(%s, %s), pg_advisory_lock(%s, %s)",
            [actor.key, actor.step_lock, actor.key, actor.step_lock],
        )
        actor.step_lock = 1 - actor.step_lock

    def _settle(self, actors: Sequence[Actor], *, until_one_moves: bool = False) -> None:
        """Return when each session has ended its statement, or waits."""

        def is_quiet() -> bool:
            for actor in actors:
                if actor.is_running:
                    actor.look(self.turn)
            running = [actor for actor in actors if actor.is_running]
            if not running:
                return True
            waits = {
                pid: (is_step, lock)
                for pid, is_step, lock in self._control.execute(
                    WAITS, [[actor.pid for actor in running]]
                ).fetchall()
            }
            for actor in running:
                is_step, lock = waits.get(actor.pid, (None, None))
                if is_step is None or (is_step and lock != actor.step_lock):
                    return False
                actor.is_blocked = not is_step
            return not until_one_moves or not all(actor.is_blocked for actor in running)

        # Most steps are over after one look; patience is for those that are not.
        for _ in range(200):
            if is_quiet():
                return
        wait_until(is_quiet)

    def close(self) -> None:
        """End all sessions."""
        for actor in self.actors:
            actor.close()
        self._control.close()
