"""The classic queue: a table, a statement that claims one row, and a transaction that stays open meanwhile."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import Connection, RawCursor, sql

from spanmq.errors import InvalidArgumentError
from spanmq_lab.simulate.load import Item, Taken
from spanmq_lab.simulate.options import Options, Site, type_name
from spanmq_lab.simulate.server import connect, read

COLUMNS: Final = {"msg_id", "queue_type", "status", "order_id", "time_added", "time_processed"}
SCHEMA_FILE: Final = Path("schema.sql")
NEXT_MSG_FILE: Final = Path("next_msg.sql")


class PollingStage:
    """The table, in a schema of its own, so that an existing `msg_queue` is not touched."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._connection = connected(site)
        self._connection.autocommit = True
        self.tables = (f"{site.name}.",)
        self.places = (f"{site.name}.msg_queue",)

    def prepare(self) -> None:
        """Create the table from the schema file; raises InvalidArgumentError if the file does not create it."""
        path = self._site.options.schema_file
        source = path or "the built-in schema.sql"
        self._connection.execute(composed("create_schema", schema=self._site.name))
        try:
            self._connection.execute(schema_text(self._site.options))
        except psycopg.Error as error:
            raise InvalidArgumentError(f"the schema in {source} failed: {error}") from error
        rows = self._connection.execute(read("columns")).fetchall()
        if missing := COLUMNS - {name for (name,) in rows}:
            raise InvalidArgumentError(
                f"the schema in {source} does not create a table msg_queue with {', '.join(sorted(missing))}"
            )

    def begin(self) -> None:
        """Update the planner's statistics."""
        self._connection.execute(read("planner"))

    def left(self) -> int:
        """Count the new ones."""
        row = self._connection.execute(read("count_msg")).fetchone()
        return int(row[0]) if row else 0

    def new_dead(self) -> list[int]:
        """Return []: this queue has no dead messages."""
        return []

    def drop(self) -> None:
        """Drop the schema."""
        self._connection.execute(composed("drop_schema", schema=self._site.name))

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class PollingSender:
    """Inserts rows."""

    def __init__(self, site: Site) -> None:
        self._connection = connected(site)
        self._connection.autocommit = True
        self._insert = read("insert_msg_same_time" if site.options.same_time else "insert_msg")

    @contextmanager
    def transaction(self) -> Iterator[object]:
        """Open one transaction for all that is sent in the block."""
        with self._connection.transaction():
            yield None

    def send(self, items: Sequence[Item]) -> None:
        """Insert messages, all or none."""
        rows = [(item.id, type_name(item.type), item.key_number) for item in items]
        with self._connection.transaction(), RawCursor(self._connection) as cursor:
            cursor.executemany(self._insert, rows)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class PollingReceiver:
    """Claims one row, and holds it in the transaction until it is handled."""

    def __init__(self, site: Site, types: Sequence[int]) -> None:
        self.polls = 0
        self.idle_polls = 0
        self._connection = connected(site)
        self._types = [type_name(number) for number in types]
        self._idle_sleep = site.options.idle_sleep
        self._claim = next_msg_text(site.options)
        self._settle = read("delete_msg" if site.options.delmsg else "mark_msg")
        self._attempts: dict[int, int] = {}

    def take(self) -> Sequence[Taken]:
        """Claim a row of one of the types, which take turns to be first."""
        self._types.append(self._types.pop(0))
        for kind in self._types:
            self.polls += 1
            message = self._next(kind)
            if message is not None:
                attempt = self._attempts.get(message, 0) + 1
                return [Taken(message, attempt)]
            self._connection.rollback()
        self.idle_polls += len(self._types)
        return []

    def holds(self, taken: Taken) -> bool:  # noqa: ARG002
        """Return True: the transaction is the lease."""
        return True

    def done(self, taken: Taken) -> None:
        """Mark or delete the row, and commit."""
        self._attempts.pop(taken.id, None)
        self._execute(self._settle, (taken.id,))
        self._connection.commit()

    def fail(self, taken: Taken, *, category: str) -> str:  # noqa: ARG002
        """Roll back: the message is new again, at once and for any number of attempts."""
        self._attempts[taken.id] = taken.attempt
        self._connection.rollback()
        return "retrying"

    def give_back(self, rest: Sequence[Taken]) -> None:  # noqa: ARG002
        """Release the row."""
        self._connection.rollback()

    def wait(self) -> None:
        """Sleep, as the classic queue does."""
        time.sleep(self._idle_sleep)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _next(self, kind: str) -> int | None:
        try:
            cursor = self._execute(self._claim, (kind,))
        except (psycopg.ProgrammingError, psycopg.DataError) as error:
            raise InvalidArgumentError(f"the statement in next_msg.sql failed: {error}") from error
        if cursor.description is None or cursor.description[0].name != "msg_id":
            raise InvalidArgumentError("the statement in next_msg.sql returns no msg_id in its first column")
        row = cursor.fetchone()
        return None if row is None else int(row[0])

    def _execute(self, text: bytes, parameters: tuple[object, ...]) -> RawCursor[Any]:
        cursor = RawCursor(self._connection)
        cursor.execute(text, parameters, prepare=True)
        return cursor


def connected(site: Site) -> Connection[Any]:
    """Connect, with a search path that starts with the run's schema."""
    return connect(site.dsn, options=f"-c search_path={site.name},public", application_name=site.name)


def schema_text(options: Options) -> bytes:
    """Return the statements that create the table: the user's, or the built-in ones."""
    if options.schema_file is not None:
        return read_file(options.schema_file)
    return (
        read("schema") if options.engine == "polling" else b"\n".join(map(read, ("schema", "schema_indexed")))
    )


def next_msg_text(options: Options) -> bytes:
    """Return the statement that claims a row."""
    if options.next_msg_file is not None:
        return read_file(options.next_msg_file)
    return read("next_msg" if options.engine == "polling" else "next_msg_indexed")


def with_files_found(options: Options) -> Options:
    """Return the options, with files of the working directory for those that are not named."""
    if not options.is_polling:
        return options
    return replace(
        options,
        schema_file=options.schema_file or (SCHEMA_FILE if SCHEMA_FILE.is_file() else None),
        next_msg_file=options.next_msg_file or (NEXT_MSG_FILE if NEXT_MSG_FILE.is_file() else None),
    )


def composed(name: str, **names: str) -> sql.Composed:
    """Read one of our own with {places} for names."""
    text = read(name).decode()
    return sql.SQL(text).format(**{place: sql.Identifier(identifier) for place, identifier in names.items()})


def read_file(path: Path) -> bytes:
    """Read a user's."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"{path} can't be read: {error.strerror}") from error
    if not text.strip():
        raise InvalidArgumentError(f"{path} is empty")
    return text
