# Generated from src/spanmq/client/_async/copy.py by tools/generate_sync.py: change that file.

"""Large batches by COPY, directly into the log; the only SQL of the client beside calls of functions.

sql/functions/send/bulk.sql has the server's part and its checks. A role needs the right to write to the log
itself, which usually only the owner of the schema has: other roles send in calls.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

import psycopg
from psycopg import Connection, Cursor, sql
from psycopg.pq import PipelineStatus

from spanmq.client import functions
from spanmq.client._sync.connection import ConnectionLink, Link, PoolLink, execute, fetch
from spanmq.client.argument import Delay
from spanmq.client.call import SqlCall
from spanmq.client.connection import typed
from spanmq.client.copy_format import blocks, is_large
from spanmq.codec.batch import Encoded, chunks
from spanmq.errors import SpanmqError

# So many are drawn, copied and published at once.
MESSAGES_PER_COPY: Final = 10_000

# None of it fails where a schema is older, or is not there: that would abort the caller's transaction.
_PROBE: Final = (
    "select pg_catalog.to_regprocedure('spanmq.copy_begin(text,integer)') is not null and pg_catalog"
    ".to_regprocedure('spanmq.copy_publish(text,bigint[],bigint[],timestamp with time zone)') is not null"
)
_COPY: Final = sql.SQL("copy {} (msg_id, enqueued_at, message, headers) from stdin (format binary)")


def send_batch(link: Link, queue: str, encoded: Iterator[Encoded], delay: Delay | None) -> list[int]:
    """Send a batch, all or none: by COPY if it is large and the connection and the role allow it."""
    large = chunks(encoded, MESSAGES_PER_COPY)
    first = next(large)
    batch = chain([first], large)
    if is_large(first):
        # Invalid arguments are refused before anything is sent.
        functions.send_batch(queue, [], delay)
        if isinstance(link, PoolLink):
            with link.transaction() as inner:
                return _send_chunks(inner, queue, batch, delay)
        if isinstance(link, ConnectionLink):
            # All are encoded before the first is sent, so that a bad one changes nothing.
            whole = list(batch)
            if link.connection.autocommit:
                with link.transaction():
                    return _send_chunks(link, queue, whole, delay)
            return _send_chunks(link, queue, whole, delay)
    small = chunks(chain.from_iterable(batch))
    return link.run_all(functions.send_batch(queue, chunk, delay) for chunk in small)


def _send_chunks(
    link: ConnectionLink, queue: str, batch: Iterable[list[Encoded]], delay: Delay | None
) -> list[int]:
    may_copy = can_copy(link.connection)
    message_ids: list[int] = []
    for chunk in batch:
        sent = None
        if may_copy and is_large(chunk):
            sent = copy_batch(link.connection, queue, chunk, delay)
            may_copy = sent is not None
        if sent is None:
            for small in chunks(iter(chunk)):
                more = link.run(functions.send_batch(queue, small, delay))
                message_ids += more
        else:
            message_ids += sent
    return message_ids


def can_copy(connection: Connection[Any]) -> bool:
    """Return whether this connection and this schema support COPY; the role's right is checked later."""
    # In a pipeline there is no COPY, and a binary jsonb comes in the client's encoding.
    if connection.closed or connection.pgconn.pipeline_status != PipelineStatus.OFF:
        return False
    if connection.info.encoding != "utf-8":
        return False
    [row] = fetch(connection, _PROBE)
    return bool(row[0])


def copy_batch(
    connection: Connection[Any], queue: str, batch: list[Encoded], delay: Delay | None
) -> list[int] | None:
    """Send one chunk in the transaction that is open; None, and nothing is sent, if the role may not copy."""
    begin = functions.copy_begin(queue, len(batch))
    try:
        runs = execute(connection, begin)
        if not runs:
            return None
        _copy(connection, runs, batch, begin)
        execute(connection, functions.copy_publish(queue, runs, delay))
    except SpanmqError as error:
        error.function = "send_batch"  # what the user called
        raise
    return [message_id for _, first, last, _ in runs for message_id in range(first, last + 1)]


def _copy(
    connection: Connection[Any], runs: list[functions.Run], batch: list[Encoded], call: SqlCall[Any]
) -> None:
    """Copy a chunk: one COPY for each segment, which may hold several runs of ids."""
    messages = iter(batch)
    try:
        for log_table in dict.fromkeys(run[0] for run in runs):
            statement = _COPY.format(sql.Identifier("spanmq_core", log_table))
            of_segment = [run for run in runs if run[0] == log_table]
            with Cursor(connection).copy(statement) as copy:
                for block in blocks(of_segment, messages):
                    copy.write(block)
    except psycopg.Error as error:
        raise typed(error, connection, call) from error
