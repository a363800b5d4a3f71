"""An end to waits for a server that acknowledges what it gets, and never answers: behind a proxy, it may be gone.

The time limits for statements are the server's, and TCP sees a living peer. A statement may also take long. So a client
whose answer is late asks, over a new connection to the same address, whether the server still works on the statement.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final, LiteralString, NoReturn, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.waiting import Ready

from spanmq.errors import SpanmqError

# For a cancelled statement: to pass the request on, and then to end it. Else the connection is closed.
CANCEL_SECONDS: Final = 1.0
# How long an answer may be late before the server is asked. The pause doubles while the statement is worked on.
ASK_SECONDS: Final = 2.0
PAUSE_SECONDS_MAX: Final = 30.0
# How long a new connection, and then its query, may take.
ANSWER_SECONDS: Final = 3
# The pause after which a server is asked again that does not work on the statement: its answer may be on its way.
SURE_SECONDS: Final = 1.0
# The server's own name for the session that asks, and the sessions that are working. One that reads from or writes to
# its client waits for that; of one whose state is hidden nothing is known.
WORKING: Final[LiteralString] = (
    "select pg_catalog.pg_backend_pid(), array(select a.pid from pg_catalog.pg_stat_get_activity(null) a"
    " where coalesce(a.state, '') not like 'idle%'"
    " and coalesce(a.wait_event, '') not in ('ClientRead', 'ClientWrite'))"
)

Result = TypeVar("Result")


def asked_at(dsn: str, **address: Any) -> str:
    """Return the DSN of a question to the server at one address, which has the names of libpq."""
    return make_conninfo(
        dsn,
        **address,
        connect_timeout=ANSWER_SECONDS,
        target_session_attrs="any",
        application_name="spanmq asking",
    )


class Question:
    """A question to the server at one address: whether it answers, and which sessions it works for."""

    def __init__(self, dsn: str) -> None:
        self.began_at = monotonic()
        self.is_over = False
        # Whether nothing answered a new connection.
        self.is_silent = False
        # None: unknown, as behind a pooler, or after an error.
        self._working: frozenset[int] | None = None
        self._dsn = dsn

    def ask(self, password: Callable[[str], str]) -> None:
        """Ask, and wait for the answer; `password` adds the one for a new connection to a DSN."""
        try:
            with _Asking.connect(password(self._dsn), autocommit=True, prepare_threshold=None) as connection:
                own, working = connection.execute(WORKING).fetchone() or (0, [])
                # A pooler gives its sessions names of its own.
                if own == connection.info.backend_pid:
                    self._working = frozenset(working)
        except psycopg.errors.ConnectionTimeout:
            self.is_silent = True
        except (psycopg.Error, SpanmqError):
            pass  # any answer is one: it may have no connection left
        finally:
            self.is_over = True

    def is_idle(self, pid: int) -> bool:
        """Return whether the server surely does not work for a session."""
        return self._working is not None and pid not in self._working


class Liveness:
    """The questions of all connections of a client: one at a time for each address.

    `password` returns a DSN with the password for a new connection; it may block.
    """

    def __init__(self, dsn: str, password: Callable[[str], str]) -> None:
        self._dsn = dsn
        self._password = password
        self._lock = Lock()
        self._questions: dict[tuple[bytes, bytes, bytes], Question] = {}

    def ask(self, pgconn: PGconn) -> Question:
        """Return the question to the server of this connection that is under way, or begin one, in a thread."""
        address = (pgconn.host, pgconn.hostaddr, pgconn.port)
        with self._lock:
            question = self._questions.get(address)
            if question is None or question.is_over:
                host, hostaddr, port = (part.decode() for part in address)
                dsn = asked_at(self._dsn, host=host, hostaddr=hostaddr, port=port)
                question = self._questions[address] = Question(dsn)
                asking = Thread(
                    target=question.ask, args=(self._password,), name="spanmq asking", daemon=True
                )
                try:
                    asking.start()
                except RuntimeError:  # the process has no thread left, or ends
                    question.is_over = True
            return question


@dataclass(slots=True)
class Doubt:
    """One late answer, and what the server says of it."""

    liveness: Liveness
    pgconn: PGconn
    heard_at: float
    pause: float = ASK_SECONDS
    is_suspected: bool = False
    question: Question | None = None
    ask_at: float = field(init=False)

    def __post_init__(self) -> None:
        """Ask when the answer is late."""
        self.ask_at = self.heard_at + ASK_SECONDS

    def reason(self) -> str | None:
        """Return why no answer will come, None while one may."""
        now = monotonic()
        if self.question is None:
            if now >= self.ask_at:
                self.question = self.liveness.ask(self.pgconn)
            return None
        if not self.question.is_over:
            return None
        question, self.question = self.question, None
        if question.is_silent and question.began_at >= self.heard_at:
            return (
                f"the server did not answer for {now - self.heard_at:.0f} s, nor did it take a new connection"
            )
        if question.began_at < self.ask_at:
            return None  # another connection had asked, too early for this one
        if not question.is_idle(self.pgconn.backend_pid):
            self.is_suspected = False
            self.pause = min(self.pause * 2, PAUSE_SECONDS_MAX)
            self.ask_at = now + self.pause
        elif self.is_suspected:
            return f"the server did not answer for {now - self.heard_at:.0f} s, and does not work on the statement"
        else:
            self.is_suspected = True
            self.ask_at = now + SURE_SECONDS
        return None


@dataclass(slots=True, eq=False)
class Patience:
    """The time for which a connection waits for its server: `seconds` (0: without limit) while a statement runs.

    Before that `liveness`, if there is one, asks whether an answer can still come. `on_silent` is called when none can,
    or when that was too long. A connection that is `is_outdated` waits for nothing but the end of a statement, one that
    is `is_abandoned` not even for that; `is_hurried` is set while a statement is being cancelled.
    """

    seconds: float = 0.0
    on_silent: Callable[[], None] = lambda: None
    liveness: Liveness | None = None
    is_outdated: bool = False
    is_abandoned: bool = False
    is_hurried: bool = False
    # The SQLSTATE and the message with which the server ended the session between two statements.
    end: tuple[str, str] | None = None

    def note_end(self, notice: psycopg.errors.Diagnostic) -> None:
        """Note why the server ends the session: libpq passes on what comes between two statements as a notice."""
        if notice.severity_nonlocalized == "FATAL":
            self.end = (notice.sqlstate or "", notice.message_primary or "")

    def watched(self, waits: PQGen[Result], pgconn: PGconn) -> PQGen[Result]:
        """Return what waits for a server as psycopg's generators do, with an end.

        Psycopg resumes it about ten times a second while nothing arrives. Raises OperationalError, and has closed the
        connection.
        """
        # None at the beginning, and when a cancellation resumes it.
        ready: Ready | int | None = None
        heard_at = monotonic()
        was_late = False
        doubt: Doubt | None = None
        while True:
            try:
                state = next(waits) if ready is None else waits.send(ready)
            except StopIteration as end:
                result: Result = end.value
                return result
            ready = yield state
            if ready != Ready.NONE:
                heard_at, was_late, doubt = monotonic(), False, None
                continue
            is_active = pgconn.transaction_status == TransactionStatus.ACTIVE
            if self.is_abandoned or (self.is_outdated and not is_active):
                self._close(pgconn, "the client closed the connection")
            seconds = CANCEL_SECONDS if self.is_hurried else self.seconds
            is_late = is_active and 0 < seconds <= monotonic() - heard_at
            # The first time it may be this process that stood still, with an answer at its door.
            if is_late and was_late:
                self._leave(pgconn, f"the server did not answer for {seconds:g} s")
            was_late = is_late
            if self.liveness is not None and is_active and not self.is_hurried:
                doubt = doubt or Doubt(self.liveness, pgconn, heard_at)
                if reason := doubt.reason():
                    self._leave(pgconn, reason)

    def _leave(self, pgconn: PGconn, reason: str) -> NoReturn:
        self.on_silent()
        self._close(pgconn, reason)

    def _close(self, pgconn: PGconn, reason: str) -> NoReturn:
        pgconn.finish()
        raise psycopg.OperationalError(reason)


class _Asking(psycopg.Connection[Any]):
    """A connection whose server has to answer soon."""

    def wait(self, gen: PQGen[Result], *arguments: Any, **options: Any) -> Result:
        """Wait for the server, for a while; raises OperationalError."""
        return super().wait(Patience(seconds=ANSWER_SECONDS).watched(gen, self.pgconn), *arguments, **options)
