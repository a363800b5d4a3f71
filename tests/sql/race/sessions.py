"""Sessions that wait for each other: a statement runs in a thread until it waits for a lock or ends."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self

import psycopg
from tests.patience import WAIT_SECONDS, wait_until

LOCK_SECONDS = 90
# The transactions of sessions that do not say yet what they are; from PostgreSQL 18 on they say that they start.
OPENING = (
    "select l.virtualxid from pg_locks l left join pg_stat_activity a using (pid)"
    " where l.locktype = 'virtualxid' and l.mode = 'ExclusiveLock' and (a.state is null or a.state = 'starting')"
)

Rows = list[tuple[Any, ...]]


class Later:
    """A statement under way in another session."""

    __slots__ = ("_future", "_pid", "_server")

    def __init__(self, future: "Future[Rows]", pid: int, server: psycopg.Connection[Any]) -> None:
        self._future = future
        self._pid = pid
        self._server = server

    def rows(self) -> Rows:
        """Wait for the end and return the rows, or raise what it raised."""
        return self._future.result(WAIT_SECONDS)

    def has_ended(self) -> bool:
        return self._future.done()

    def waits(self) -> bool:
        """Return as soon as it waits for a lock (True) or has ended (False)."""
        asked = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"

        def is_waiting() -> bool:
            return self._server.execute(asked, [self._pid]).fetchone() == (True,)

        wait_until(lambda: self._future.done() or is_waiting())
        return not self._future.done()


class Session:
    """A connection in autocommit mode; transactions begin and end by `begin`, `commit`, `rollback`."""

    __slots__ = ("_connection", "_server", "_thread")

    def __init__(self, dsn: str, server: psycopg.Connection[Any]) -> None:
        # Longer than any wait that a test means: what a failed test left locked must not hang its teardown.
        self._connection = psycopg.connect(dsn, autocommit=True, options=f"-c lock_timeout={LOCK_SECONDS}s")
        self._server = server
        self._thread = ThreadPoolExecutor(1)

    @property
    def pid(self) -> int:
        return self._connection.info.backend_pid

    @property
    def connection(self) -> psycopg.Connection[Any]:
        return self._connection

    def rows(self, query: str, *arguments: Any) -> Rows:
        """Run a statement to its end and return its rows, if any; arguments by place, or one dictionary."""
        given = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], dict) else arguments
        cursor = self._connection.execute(query.encode(), given or None)
        return cursor.fetchall() if cursor.description else []

    def value(self, query: str, *arguments: Any) -> Any:
        """Return the first column of the first row; None if there is none."""
        rows = self.rows(query, *arguments)
        return rows[0][0] if rows else None

    def column(self, query: str, *arguments: Any) -> list[Any]:
        """Return the first column."""
        return [row[0] for row in self.rows(query, *arguments)]

    def later(self, query: str, *arguments: Any) -> Later:
        """Start a statement that may have to wait."""
        return Later(self._thread.submit(self.rows, query, *arguments), self.pid, self._server)

    def waiting(self, query: str, *arguments: Any) -> Later:
        """Start a statement, and return when it waits for a lock."""
        started = self.later(query, *arguments)
        assert started.waits(), "it waits for nobody"
        return started

    def waits_for(self, holder: "Session") -> None:
        """Return when the statement under way here waits for that session."""
        asked = "select %s = any (pg_blocking_pids(%s))"
        wait_until(lambda: self._server.execute(asked, [holder.pid, self.pid]).fetchone() == (True,))

    def begin(self, isolation: str = "read committed") -> None:
        self.rows(f"begin isolation level {isolation}")

    def look(self) -> None:
        """Begin a transaction that sees everything as it is now."""
        self.begin("repeatable read")
        self.rows("select 1")

    def commit(self) -> None:
        self.rows("commit")

    def rollback(self) -> None:
        self.rows("rollback")

    def end(self, fate: str) -> None:
        """Commit or roll back."""
        self.rows({"commit": "commit", "rollback": "rollback"}[fate])

    def drop(self) -> None:
        """Lose the connection without a word, and return when the server has noticed."""
        pid = self.pid
        self._connection.close()
        self._thread.shutdown()
        asked = "select from pg_stat_activity where pid = %s"
        wait_until(lambda: self._server.execute(asked, [pid]).fetchone() is None)

    def close(self) -> None:
        """Close it, whatever it is doing."""
        if not self._connection.closed:
            self._server.execute("select pg_terminate_backend(%s)", [self.pid])
        self._thread.shutdown()
        self._connection.close()


def side_by_side(*works: Callable[[], None], finally_do: Callable[[], None] = lambda: None) -> None:
    """Run all at once in threads, and raise what one raised; `finally_do` is done when one ends badly."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
            finally_do()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


def together(race: "Race", work: Callable[[Session, random.Random], None]) -> None:
    """Run the same work in four sessions at once, each with a seed of its own."""

    def run(number: int) -> None:
        work(race.open(), random.Random(number))

    side_by_side(*(partial(run, number) for number in range(4)))


class Race:
    """A database, a queue in it, and any number of sessions."""

    def __init__(self, dsn: str, queue: str = "jobs", kind: str = "create") -> None:
        self.dsn = dsn
        self._server = psycopg.connect(dsn, autocommit=True)
        self._sessions: list[Session] = []
        self._idle: list[Session] = []
        self.main = self.open()
        self.take(queue, kind)

    def take(self, queue: str, kind: str = "create") -> None:
        """Create another queue, for which `open` returns the sessions of before: a new one compiles all functions."""
        others = [each for each in self._sessions if each is not self.main]
        self._idle = [each for each in others if not each.connection.closed]
        for session in self._idle:
            session.rollback()
        self.queue = queue
        self.main.value(f"select pgmq.{kind}(%s)", queue)
        self.queue_id: int = self.main.value("select queue_id from spanmq_core.queue where name = %s", queue)

    def open(self) -> Session:
        """Open a session; it is closed with the race."""
        if self._idle:
            return self._idle.pop()
        session = Session(self.dsn, self._server)
        self._sessions.append(session)
        return session

    def begun(self) -> Session:
        """Open a session that is in a transaction."""
        session = self.open()
        session.begin()
        return session

    def looking(self) -> Session:
        """Open a session that sees everything as it is now."""
        session = self.open()
        session.look()
        return session

    def reserve(self, n: int, epoch: int = 0, headers: str = "null") -> tuple[int, int, int, int]:
        """Write a block of rows that nobody sees yet; return the write, the block, the first and the last id."""
        write, block, log, first, last, at = self.main.rows(
            "select * from spanmq.bulk_reserve(%s, 'w', %s, %s)", self.queue, epoch, n
        )[0]
        self.main.rows(
            f"insert into spanmq_core.{log} select i, %s, '1', {headers} from generate_series({first}, {last}) i",
            at,
        )
        assert self.main.value("select spanmq.bulk_seal(%s, array[%s::bigint])", self.queue, block) == n
        return write, block, first, last

    def send(self, n: int, *, new_block: bool = True) -> list[int]:
        """Send n messages, numbered by their ids, at the start of a block of 256 ids."""
        if new_block:
            self.main.value(
                "select setval(ids, (coalesce(pg_sequence_last_value(ids), 0) / 256 + 1) * 256 - 1)"
                " from spanmq_core.queue where queue_id = %s",
                self.queue_id,
            )
        return self.main.column(
            "select pgmq.send_batch(%s, array(select to_jsonb(i) from generate_series(1, %s) i))",
            self.queue,
            n,
        )

    def give_back(self, ids: list[int]) -> None:
        """Receive these messages, the first ones, and give them back: so their rows are in `later`."""
        lease = self.lease(len(ids))
        given = self.main.rows("select * from spanmq.release(%s, %s, %s)", self.queue, lease, ids)
        assert given == [(each, "released") for each in ids]

    def lease(self, n: int, seconds: float = 3600, slots: int = 1) -> int:
        """Receive n messages and return the lease_id."""
        leases = self.main.column(
            "select lease_id from spanmq.receive(%s, %s, %s, %s)", self.queue, n, seconds, slots
        )
        assert len(leases) == n
        return int(leases[0])

    def wait_for_other_databases(self) -> None:
        """Return when nobody in another database, such as another test, looks further back than this one.

        maintain() drops and rewrites nothing that any snapshot on the server may still see. What a session of
        ours holds counts as now: of two tests that hold something, the elder does not wait for the younger.
        Of a session that is just being opened nobody can tell which database it is for: it counts as here.
        """
        opening = {each for (each,) in self._server.execute(OPENING).fetchall()}
        wait_until(lambda: opening.isdisjoint(each for (each,) in self._server.execute(OPENING).fetchall()))
        now = self._server.execute("select pg_current_xact_id()::xid").fetchone()
        others = (
            "with held as"
            " (select *, greatest(age(backend_xmin), age(backend_xid)) as age from pg_stat_activity"
            "  where pid <> pg_backend_pid())"
            " select pid, datname, state, query from held where datname <> current_database()"
            " and age > greatest(age(%s::text::xid),"
            "                    (select max(age) from held where datname = current_database()))"
        )
        wait_until(lambda: not self._server.execute(others, now).fetchall())

    def left(self) -> list[int]:
        """Return the ids of all unsettled messages."""
        return self.main.column(f"select msg_id from pgmq.q_{self.queue} order by msg_id")

    def close(self) -> None:
        """Close all sessions."""
        for session in self._sessions:
            session.close()
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
