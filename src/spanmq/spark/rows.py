"""Reading ranges of ids as Arrow batches, through ADBC: out of archives, queues and the log."""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, LiteralString

import psycopg
import pyarrow

from spanmq import errors
from spanmq.client.direct import connect, typed_errors
from spanmq.spark.column import Column
from spanmq.spark.options import Options
from spanmq.spark.sealed import opened

# Rows that a partition should have. They stream, so memory does not matter; a task costs a tenth of a second.
ROWS_PER_PARTITION: Final = 250_000
# Runs no further apart are one search in the index, which costs as much as to read past what is between.
GAP: Final = 256
# The number of a queue's segments that are searched to name those of an error.
SEGMENTS_MAX: Final = 1_000
# The name of its sessions in the server.
NAME: Final = "spanmq spark"


# First id, last id, attempt.
Run = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Range:
    """Ids first to last of one queue, in `table` (quoted). `expected` rows, where that is known.

    With `runs` only these ids, each run with its attempt. If `is_call`, the table is a function of the queue
    and both ids.
    """

    queue: str
    table: str
    first: int
    last: int
    where: str = ""
    key: str = "t.msg_id"
    attempt: int | None = None
    expected: int | None = None
    is_call: bool = False
    runs: tuple[Run, ...] = ()

    def source(self, first: int, last: int) -> str:
        """Return the relation from which to select these ids."""
        queue = "'" + self.queue.replace("'", "''") + "'"
        return f"{self.table}({queue}, {first}, {last})" if self.is_call else self.table


@contextlib.contextmanager
def connected(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection for a block; errors of the server are raised as spanmq's."""
    with connect(dsn, application_name=NAME) as connection, typed_errors(connection):
        yield connection


@contextlib.contextmanager
def alone(dsn: str, name: str, seconds: float) -> Iterator[bool]:
    """Hold the advisory lock of a name for a block; yield False if another session keeps it too long."""
    with connected(dsn) as connection:
        connection.execute(f"set lock_timeout = {1000 * seconds:.0f}".encode())
        try:
            connection.execute(
                "select pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended(%s, 0))", [name]
            )
        except psycopg.errors.LockNotAvailable:
            is_alone = False
        else:
            is_alone = True
        yield is_alone


def one(
    connection: psycopg.Connection[Any], query: LiteralString | bytes, values: Sequence[object] = ()
) -> tuple[Any, ...]:
    """Return the row of a query that has exactly one."""
    row: tuple[Any, ...] | None = connection.execute(query, values).fetchone()
    assert row is not None
    return row


def call(
    connection: psycopg.Connection[Any], function: str, columns: str = "result", **arguments: object
) -> psycopg.Cursor[Any]:
    """Call a function of spanmq, and return these columns; `result` is what a function returns that has none."""
    names = ", ".join(f"{name} => %s" for name in arguments)
    statement = f"select {columns} from spanmq.{function}({names}) as result"
    return connection.execute(statement.encode(), list(arguments.values()))


def call_one(
    connection: psycopg.Connection[Any], function: str, columns: str = "result", **arguments: object
) -> tuple[Any, ...]:
    """Return the only row of a call."""
    row: tuple[Any, ...] | None = call(connection, function, columns, **arguments).fetchone()
    assert row is not None
    return row


def queues(connection: psycopg.Connection[Any]) -> list[str]:
    """Return the names of all queues."""
    return [row[0] for row in connection.execute("select queue_name from pgmq.list_queues()")]


def has_queue(connection: psycopg.Connection[Any], queue: str) -> bool:
    """Return whether the database has a queue, also one on which the role has no right."""
    [found] = one(
        connection,
        "select exists (select from pg_catalog.pg_class c"
        " join pg_catalog.pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = 'pgmq' and c.relname = pgmq.format_table_name(%s, 'q'))",
        [queue],
    )
    return bool(found)


def view(connection: psycopg.Connection[Any], queue: str, prefix: str = "q") -> str:
    """Return the view of a queue, or (prefix a) its archive, as SQL."""
    row = one(
        connection,
        "select pg_catalog.quote_ident(name) from pgmq.format_table_name(%s, %s) as name",
        [queue, prefix],
    )
    return f"pgmq.{row[0]}"


def cut(
    connection: psycopg.Connection[Any], queue: str, table: str, *, at_least: int = 1
) -> list[tuple[int, int]]:
    """Cut the ids of a table into ranges for partitions, of about as many rows each."""
    arguments = {"queue": queue, "of_table": table, "size": ROWS_PER_PARTITION, "at_least": at_least}
    return call(connection, "read_ranges", "first_id, last_id", **arguments).fetchall()


def waiting(connection: psycopg.Connection[Any], queue: str) -> tuple[int, int, int]:
    """Return how many messages a queue has, how many are visible, and the age of the oldest in seconds."""
    row = one(
        connection,
        "select queue_length, queue_visible_length, coalesce(oldest_msg_age_sec, 0)"
        " from pgmq.metrics(queue_name => %s)",
        [queue],
    )
    return row[0], row[1], row[2]


def first_archived(connection: psycopg.Connection[Any], queue: str, since: datetime) -> int | None:
    """Return the lowest id of the messages that were archived at this time or later, None without any."""
    archive = view(connection, queue, "a").replace("%", "%%")
    [found] = one(
        connection, f"select min(t.msg_id) from {archive} t where t.archived_at >= %s".encode(), [since]
    )
    return None if found is None else int(found)


def redrive(
    connection: psycopg.Connection[Any],
    queue: str,
    letters: Sequence[tuple[int, str | None]],
    rate: float | None,
    delay: float,
) -> int:
    """Redrive dead letters by their ids, each with its new body (None: as it was); return how many."""
    bodies = [body for _, body in letters]
    [n] = one(
        connection,
        "select count(*) from spanmq.redrive(queue => %s, dead_letter_ids => %s,"
        " new_messages => %s::jsonb[], qty => %s, rate => %s, delay => %s)",
        [queue, [id_ for id_, _ in letters], bodies if any(bodies) else None, len(letters), rate, delay],
    )
    return int(n)


def identity(connection: psycopg.Connection[Any], queue: str) -> str:
    """Return an id that distinguishes this queue from those of other databases, and from a later one of its name."""
    [found] = call_one(
        connection, "archive_position", "identity || '/' || pg_catalog.current_database()", queue=queue
    )
    return str(found)


def open_since(connection: psycopg.Connection[Any], queue: str) -> str:
    """Return a time, as text: transactions that are not seen now began after it. Empty if that is not known."""
    [since] = call_one(connection, "archive_position", "here->>'since'", queue=queue)
    return "" if "infinity" in since else str(since)


def recent(since: str) -> str:
    """Write the condition that a row `t` of an archive may be newer: five minutes are for a clock that is set back."""
    return f"t.archived_at >= {since!r}::timestamptz - interval '5 minutes'"


def recent_blocks(
    connection: psycopg.Connection[Any],
    archive: str,
    since: str,
    bits: int,
    ids: Sequence[tuple[int, int]] = (),
) -> list[tuple[int, int, int, int]]:
    """Return where an archive has rows that may be newer, and are none of these ids.

    Each is a block, the ids without their last `bits`, with its lowest id, its highest id and the number of rows.
    """
    statement = (
        f"select t.msg_id >> {bits}, min(t.msg_id), max(t.msg_id), count(*) from {archive} t"
        f" where {recent(since)} and not {in_ranges(ids)} group by 1 order by 1"
    )
    return connection.execute(statement.encode()).fetchall()


def in_ranges(ids: Sequence[tuple[int, int]], key: str = "t.msg_id") -> str:
    """Write the condition that an id is in one of these ranges."""
    pieces = ",".join(f"[{first},{last}]" for first, last in ids)
    return f"'{{{pieces}}}'::int8multirange @> {key}"


def known_positions(connection: psycopg.Connection[Any], queue: str, tokens: Sequence[str]) -> set[str]:
    """Return those of the tokens that the database knows for a queue."""
    given = [uuid.UUID(each) for each in tokens if each]
    [known] = call_one(connection, "known_positions", "result::text[]", queue=queue, tokens=given)
    return set(known)


def note_position(
    connection: psycopg.Connection[Any],
    queue: str,
    follows: str | None = None,
    witnesses: Sequence[str] = (),
) -> str:
    """Note a position; return its token. Raises PositionUnknownError if the database lacks one of those given."""
    tokens = [uuid.UUID(each) for each in witnesses]
    given = {"queue": queue, "follows": follows or None, "witnesses": tokens}
    [token] = call_one(connection, "note_position", "result::text", **given)
    return str(token)


def tally(dsn: str, extent: Range, ids: Sequence[tuple[int, int]]) -> tuple[int, int, str]:
    """Count rows of a table by their ids, and add up the MD5 sums of their bodies, 60 bits of each.

    The third is the token of a position that the same session noted afterwards: a database that knows it has
    these rows.
    """
    pieces = "{" + ",".join(f"[{first},{last}]" for first, last in ids) + "}"
    source = extent.source(ids[0][0], ids[-1][1]).replace("%", "%%")
    with connected(dsn) as connection:
        n, checksum = one(
            connection,
            "select count(*), coalesce(sum(('x' || substr(md5(t.message::text), 1, 15))::bit(60)::bigint), 0)"
            f" from {source} t where {extent.key} between %s and %s"
            f" and %s::int8multirange @> {extent.key}".encode(),
            [ids[0][0], ids[-1][1], pieces],
        )
        return int(n), int(checksum), note_position(connection, extent.queue)


def sums(
    connection: psycopg.Connection[Any], extent: Range, at: str, ids: Sequence[int]
) -> dict[int, tuple[datetime, str]]:
    """Return the time `at`, a column's expression, and the MD5 sum of the body of each of these ids that exists."""
    source = extent.source(min(ids), max(ids))
    time = at.format(queue="null", attempt="null")
    statement = (
        f"select {extent.key}, {time}, md5(t.message::text) from {source} t where {extent.key} = any ("
    )
    found = connection.execute(statement.replace("%", "%%").encode() + b"%s)", [list(ids)])
    return {id_: (time, text) for id_, time, text in found}


def count_others(connection: psycopg.Connection[Any], extent: Range, ids: Sequence[tuple[int, int]]) -> int:
    """Count the rows of a table whose ids are in none of these ranges."""
    pieces = "{" + ",".join(f"[{first},{last}]" for first, last in ids) + "}"
    source = extent.source(1, (1 << 63) - 1)
    statement = f"select count(*) from {source} t where not {extent.key} <@ "
    [n] = one(connection, statement.replace("%", "%%").encode() + b"%s::int8multirange", [pieces])
    return int(n)


def published(connection: psycopg.Connection[Any], queue: str, writer: str) -> int | None:
    """Return the number of messages that a writer has published as its only epoch; None if it has not."""
    [n] = call_one(connection, "bulk_published", queue=queue, writer=writer, epoch=0)
    return None if n is None else int(n)


def note_export(
    dsn: str, queue: str, lake: str, ids: Sequence[tuple[int, int]], table: str, blocks: list[int] | None
) -> None:
    """Record which messages of an archive, or which dead letters, a lake has; perhaps in some blocks of ids only."""
    pieces = "{" + ",".join(f"[{first},{last}]" for first, last in ids) + "}"
    with connected(dsn) as connection:
        connection.execute(
            "select from spanmq.note_export("
            "queue => %s, lake => %s, ids => %s::int8multirange, of_table => %s, blocks => %s)",
            [queue, lake, pieces, table, blocks],
        )


def read(
    options: Options, columns: Sequence[Column], ranges: Sequence[Range], schema: pyarrow.Schema
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of these ranges as batches of exactly this schema.

    Raises MessagesLostError if rows that must exist are missing.
    """
    from spanmq.spark import adbc

    with adbc.connected(options.dsn) as connection:
        for each in ranges:
            count = 0
            try:
                for batch in connection.query(_query(columns, each)):
                    count += batch.num_rows
                    if batch.num_rows:
                        yield from shaped(batch, schema, options, each.queue)
            except adbc.StatementError as error:
                raise errors.ServerError(
                    f"reading queue {each.queue}, {place_of(options, each)}: {error}", queue=each.queue
                ) from error
            if each.expected is not None and count < each.expected and options.fail_on_data_loss:
                raise errors.MessagesLostError(
                    f"queue {each.queue}: of {each.expected} messages only {count} are left, "
                    f"{place_of(options, each)}",
                    hint="With failOnDataLoss=false the stream goes on without them.",
                    queue=each.queue,
                )


def place_of(options: Options, ids: Range) -> str:
    """Return the location of rows for an error: ids, and for a queue's log the segments, if available."""
    place = f"ids {ids.first} to {ids.last}"
    if options.table != "queue":
        return f"{options.table.replace('_', ' ')}, {place}"
    try:
        with connected(options.dsn) as connection:
            found = connection.execute(
                "select segment from spanmq.list_segments(queue => %s, qty => %s) "
                "where first_id <= %s and last_id >= %s order by first_id",
                [ids.queue, SEGMENTS_MAX, ids.last, ids.first],
            ).fetchall()
    except (errors.SpanmqError, psycopg.Error):
        return place
    names = [row[0] for row in found]
    if not names:
        return f"{place}, whose segment is gone"
    return f"{place}, segment {names[0]}" + (f" to {names[-1]}" if len(names) > 1 else "")


def shaped(
    batch: pyarrow.RecordBatch, schema: pyarrow.Schema, options: Options, queue: str
) -> Iterator[pyarrow.RecordBatch]:
    """Make a batch equal to the schema: Spark checks the first one only, and then reads what isn't there."""
    if "body" in schema.names and options.encryption_key_file:
        texts = opened(batch.column("body"), options, queue)
        batch = batch.set_column(batch.schema.get_field_index("body"), "body", texts)
    arrays = []
    for field in schema:
        array = batch.column(field.name)
        arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
    result = pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
    if result.num_rows:
        yield result


def _query(columns: Sequence[Column], ids: Range) -> str:
    queue = "'" + ids.queue.replace("'", "''") + "'"
    attempt = "t.read_ct" if ids.attempt is None else f"{ids.attempt}::int"
    source = f"{ids.source(ids.first, ids.last)} t"
    if ids.runs:
        attempt = "u.attempt"
        # With `offset 0` each stretch is looked up in the index: a log has no statistics, and without it the planner
        # may compare each row with each stretch.
        source = (
            f"{_stretches(ids.runs)} cross join lateral (select * from {source} where t.msg_id between u.lo and u.hi"
            " and (u.bits is null or get_bit(u.bits, t.msg_id - u.lo) = 1) offset 0) t"
        )
    wanted = ", ".join(
        f'{each.expression.format(queue=queue, attempt=attempt)} as "{each.name}"' for each in columns
    )
    where = f" and {ids.where}" if ids.where else ""
    return f"select {wanted} from {source} where {ids.key} between {ids.first} and {ids.last}{where}"


def _stretches(runs: Sequence[Run]) -> str:
    """Write runs as a table in SQL: near ones of one attempt are a row, a single range of the index."""
    stretches: list[list[Run]] = []
    newest: dict[int, list[Run]] = {}
    for run in sorted(runs):
        stretch = newest.get(run[2])
        if stretch is not None and run[0] - stretch[-1][1] <= GAP:
            stretch.append(run)
        else:
            newest[run[2]] = [run]
            stretches.append(newest[run[2]])
    columns = (
        ("bigint", [str(each[0][0]) for each in stretches]),
        ("bigint", [str(each[-1][1]) for each in stretches]),
        ("int", [str(each[0][2]) for each in stretches]),
        ("bytea", [_bits(each) for each in stretches]),
    )
    arrays = ", ".join(f"'{{{','.join(values)}}}'::{kind}[]" for kind, values in columns)
    return f"unnest({arrays}) u (lo, hi, attempt, bits)"


def _bits(runs: Sequence[Run]) -> str:
    """Write which ids of a stretch are meant, as PostgreSQL counts bits; null for all of them."""
    if len(runs) == 1:
        return "null"
    first = runs[0][0]
    bits = bytearray((runs[-1][1] - first) // 8 + 1)
    for lo, hi, _ in runs:
        for place in range(lo - first, hi - first + 1):
            bits[place >> 3] |= 1 << (place & 7)
    return f'"\\\\x{bits.hex()}"'
