"""Reading ranges of ids as Arrow batches, through ADBC: out of archives, queues and the log."""

import contextlib
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

import pyarrow
from psycopg.sql import Identifier
from pyspark.sql.types import LongType

from spanmq import errors
from spanmq.client import Client
from spanmq.client.calls import argument, connect, queue_call, string, typed_errors
from spanmq_spark.calls import archive_position, multirange
from spanmq_spark.column import Column
from spanmq_spark.options import Options
from spanmq_spark.sealed import opened

# Rows that a partition should have. They stream, so memory does not matter; a task costs a tenth of a second.
ROWS_PER_PARTITION: Final = 250_000
# The number of a queue's segments that are searched to name those of an error.
SEGMENTS_MAX: Final = 1_000
# The name of its sessions in the server.
NAME: Final = "spanmq spark"


class Piece(NamedTuple):
    """A piece of a batch, as `spanmq.receiver_ranges` returns it: ids first to last, received for the attempt-th time.

    With a bitmap, a text of 0 and 1 for a block of 1,024 ids, only those of them that have a 1.
    """

    first: int
    last: int
    attempt: int
    bitmap: str | None = None

    def size(self) -> int:
        """Return how many ids it has."""
        return self.last - self.first + 1 if self.bitmap is None else self.bitmap.count("1")


@dataclass(frozen=True, slots=True)
class Range:
    """Ids first to last of one queue, in `table` (quoted). `expected` rows, where that is known.

    With `pieces` only these ids. If `is_call`, the table is a function of the queue and both ids.
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
    pieces: tuple[Piece, ...] = ()
    # Whether the columns use `t.body_text`, the body as text: the server makes it once for all of them.
    has_text: bool = False

    def source(self, first: int, last: int) -> str:
        """Return the relation from which to select these ids."""
        return f"{self.table}({quoted(self.queue)}, {first}, {last})" if self.is_call else self.table


@contextlib.contextmanager
def connected(dsn: str) -> Iterator[Client]:
    """Yield a client over one connection for a block; errors of other statements than calls are spanmq's, too."""
    with (
        connect(dsn, application_name=NAME) as connection,
        typed_errors(Client(connection=connection)) as server,
    ):
        yield server


def has_queue(server: Client, queue: str) -> bool:
    """Return whether the database has a queue, also one on which the role has no right."""
    query = "select pg_catalog.to_regclass(%s) is not null"
    [exists] = server.connection.execute(query, [view(server, queue)]).fetchone()
    return bool(exists)


def view(server: Client, queue: str, prefix: str = "q") -> str:
    """Return the view of a queue, or (prefix a) its archive, as SQL."""
    prefixed = argument.text("prefix", prefix)
    name = server.admin.run(queue_call(queue, "format_table_name", string, prefixed, native=False))
    return Identifier("pgmq", name).as_string(server.connection)


def first_archived(server: Client, queue: str, since: datetime) -> int | None:
    """Return the lowest id of the messages that were archived at this time or later, None without any."""
    archive = view(server, queue, "a").replace("%", "%%")
    [lowest] = server.connection.execute(
        f"select min(t.msg_id) from {archive} t where t.archived_at >= %s", [since]
    ).fetchone()
    return None if lowest is None else int(lowest)


def identity(server: Client, queue: str) -> str:
    """Return an id that distinguishes this queue from those of other databases, and from a later one of its name."""
    _, _, archive = server.admin.run(archive_position(queue))
    [database] = server.connection.execute("select pg_catalog.current_database()").fetchone()
    return f"{archive}/{database}"


def open_since(server: Client, queue: str) -> str:
    """Return a time, as text: transactions that are not seen now began after it. Empty if that is not known."""
    here, _, _ = server.admin.run(archive_position(queue))
    return "" if "infinity" in here["since"] else str(here["since"])


def recent(since: str) -> str:
    """Write the condition that a row `t` of an archive may be newer: five minutes are for a clock that is set back."""
    return f"t.archived_at >= {since!r}::timestamptz - interval '5 minutes'"


def recent_blocks(
    server: Client,
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
    blocks: list[tuple[int, int, int, int]] = server.connection.execute(statement).fetchall()
    return blocks


def in_ranges(ids: Sequence[tuple[int, int]], key: str = "t.msg_id") -> str:
    """Write the condition that an id is in one of these ranges."""
    return f"'{multirange(ids)}'::int8multirange @> {key}"


# The column that has the server's checksum of a body.
CHECK: Final = "check"
CRC_SINCE: Final = 180000


def checked(columns: Sequence[Column], *, has_crc: bool) -> tuple[Column, ...]:
    """Return columns of a table with one more, the server's checksum of the body.

    With the function crc32 of PostgreSQL 18 that is crc_of(), else md5_of().
    """
    body = replace(next(column for column in columns if column.name == "body"), expression="t.body_text")
    check = (
        "crc32(convert_to(t.body_text, 'UTF8')) + (octet_length(t.body_text)::bigint << 32)"
        if has_crc
        else "('x' || substr(md5(t.body_text), 1, 15))::bit(60)::bigint"
    )
    others = [body if column.name == "body" else column for column in columns]
    return (*others, Column(CHECK, LongType(), check))


def has_crc(server: Client) -> bool:
    """Return whether the server has the function crc32."""
    return int(server.connection.info.server_version) >= CRC_SINCE


def crc_of(body: bytes) -> int:
    """Return the CRC-32 of a body, with its length above it."""
    return zlib.crc32(body) + (len(body) << 32)


def md5_of(body: bytes) -> int:
    """Return 60 bits of the MD5 sum of a body."""
    return int.from_bytes(hashlib.md5(body).digest()[:8]) >> 4


def sums(server: Client, extent: Range, at: str, ids: Sequence[int]) -> dict[int, tuple[datetime, str]]:
    """Return the time `at`, a column's expression, and the MD5 sum of the body of each of these ids that exists."""
    source = extent.source(min(ids), max(ids))
    time = at.format(queue="null", attempt="null")
    statement = (
        f"select {extent.key}, {time}, md5(t.message::text) from {source} t where {extent.key} = any ("
    )
    result = server.connection.execute(statement.replace("%", "%%") + "%s)", [list(ids)])
    return {id_: (time, text) for id_, time, text in result}


def has_any(server: Client, ids: Range) -> bool:
    """Return whether the table has a row in this range."""
    [exists] = server.connection.execute(f"select exists (select {_rows_of(ids)})").fetchone()
    return bool(exists)


def count(server: Client, ids: Range) -> int:
    """Count the rows of the table in this range."""
    [n] = server.connection.execute(f"select count(*) {_rows_of(ids)}").fetchone()
    return int(n)


def _rows_of(ids: Range) -> str:
    where = f" and {ids.where}" if ids.where else ""
    return (
        f"from {ids.source(ids.first, ids.last)} t where {ids.key} between {ids.first} and {ids.last}{where}"
    )


def present(server: Client, extent: Range, ids: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return which ids of these ranges a table has."""
    if not ids:
        return []
    source = extent.source(ids[0][0], ids[-1][1])
    key = extent.key
    [spans] = server.connection.execute(
        f"select coalesce(range_agg(int8range({key}, {key}, '[]')), '{{}}') from {source} t"
        f" where {key} between {ids[0][0]} and {ids[-1][1]} and {in_ranges(ids, key)}"
    ).fetchone()
    return [(span.lower, span.upper - 1) for span in spans]


def count_others(server: Client, extent: Range, ids: Sequence[tuple[int, int]]) -> int:
    """Count the rows of a table whose ids are in none of these ranges."""
    source = extent.source(1, (1 << 63) - 1)
    statement = f"select count(*) from {source} t where not {in_ranges(ids, extent.key)}"
    [n] = server.connection.execute(statement).fetchone()
    return int(n)


def exported_ids(
    server: Client, queue: str, lake: str, table: str, blocks: Sequence[int] | None
) -> list[tuple[int, int]]:
    """Return the ids that a lake had by its last note, of these blocks of 32,768 ids or (None) of all, sorted."""
    ranges = server.connection.execute(
        "select lower(r), upper(r) - 1 from spanmq.exported_ids(%s, %s, %s, %s::bigint[]) e, unnest(e.ids) r"
        " order by 1",
        [queue, lake, table, None if blocks is None else list(blocks)],
    )
    return list(ranges.fetchall())


def count_exported(server: Client, queue: str, lake: str, table: str) -> int:
    """Count the ids that a lake had by its last note."""
    query = (
        "select coalesce(sum(upper(r) - lower(r)), 0) from spanmq.exported_ids(%s, %s, %s) e, unnest(e.ids) r"
    )
    [n] = server.connection.execute(query, [queue, lake, table]).fetchone()
    return int(n)


def read(
    options: Options,
    columns: Sequence[Column],
    ranges: Sequence[Range],
    schema: pyarrow.Schema,
    tokens: list[str] | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of these ranges as batches of exactly this schema.

    After the rows of a range the same session notes a position, and adds its token to `tokens`: a database that knows
    it has these rows. Raises MessagesLostError if rows that must exist are missing.
    """
    from spanmq_spark import adbc

    with adbc.connected(options.dsn) as connection:
        for ids in ranges:
            count = 0
            try:
                for batch in connection.query(_query(columns, ids)):
                    count += batch.num_rows
                    if batch.num_rows:
                        yield from shaped(batch, schema, options, ids.queue)
                if tokens is not None:
                    [noted] = connection.query(
                        f"select spanmq.note_position({quoted(ids.queue)})::text as token"
                    )
                    tokens += noted.column(0).to_pylist()
            except adbc.StatementError as error:
                raise errors.ServerError(
                    f"reading queue {ids.queue}, {place_of(options, ids)}: {error}", queue=ids.queue
                ) from error
            if ids.expected is not None and count < ids.expected and options.fail_on_data_loss:
                raise errors.MessagesLostError(
                    f"queue {ids.queue}: of {ids.expected} messages only {count} are left, "
                    f"{place_of(options, ids)}",
                    hint="With failOnDataLoss=false the stream continues without them.",
                    queue=ids.queue,
                )


def place_of(options: Options, ids: Range) -> str:
    """Return the location of rows for an error: ids, and for a queue's log the segments, if available."""
    place = f"ids {ids.first} to {ids.last}"
    if options.table != "queue":
        return f"{options.table.replace('_', ' ')}, {place}"
    try:
        with connected(options.dsn) as server:
            segments = server.inspect.segments(ids.queue, SEGMENTS_MAX)
    except errors.SpanmqError:
        return place
    # The newest is the first.
    names = [
        segment.segment
        for segment in reversed(segments)
        if segment.first_id <= ids.last and segment.last_id >= ids.first
    ]
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
    queue = quoted(ids.queue)
    attempt = "t.read_ct" if ids.attempt is None else f"{ids.attempt}::int"
    source = f"{ids.source(ids.first, ids.last)} t"
    between = f"{ids.key} between {ids.first} and {ids.last}" + (f" and {ids.where}" if ids.where else "")
    if ids.has_text:
        # `offset 0` keeps the planner from putting the expression into each place that uses it.
        source = f"(select t.*, t.message::text as body_text from {source} where {between} offset 0) t"
    if ids.pieces:
        attempt = "u.attempt"
        # With `offset 0` each piece is looked up in the index: a log has no statistics, and without it the planner
        # may compare each row with each piece.
        source = (
            f"{_table(ids.pieces)} cross join lateral (select * from {source} where t.msg_id between u.lo and u.hi"
            " and (u.bitmap is null or get_bit(u.bitmap, (t.msg_id & 1023)::int) = 1) offset 0) t"
        )
    selected = ", ".join(
        f'{column.expression.format(queue=queue, attempt=attempt)} as "{column.name}"' for column in columns
    )
    return f"select {selected} from {source} where {between}"


def quoted(text: str) -> str:
    """Write a text as SQL: standard_conforming_strings is on since 9.1, so it needs no E''."""
    return "'" + text.replace("'", "''") + "'"


def _table(pieces: Sequence[Piece]) -> str:
    """Write pieces as a table in SQL."""
    columns = zip(("bigint", "bigint", "int", "bit(1024)"), zip(*pieces, strict=True), strict=True)
    arrays = ", ".join(
        f"'{{{','.join('null' if value is None else str(value) for value in values)}}}'::{kind}[]"
        for kind, values in columns
    )
    return f"unnest({arrays}) u (lo, hi, attempt, bitmap)"
