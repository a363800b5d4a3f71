"""Ranges of ids as Arrow, read as a task does, without Spark: what errors name, and what is not imported."""

import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import psycopg
import pyarrow
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.cli.program import do
from tests.process.worker.proxy import proxying

from spanmq.client import Client
from spanmq.errors import ConnectionFailedError, InvalidBodyError, MessagesLostError, ServerError
from spanmq_spark import rows
from spanmq_spark.column import chosen
from spanmq_spark.options import Options, read_options
from spanmq_spark.writer import write_rows

SCHEMA = pyarrow.schema([("message_id", pyarrow.int64()), ("body", pyarrow.string())])


@pytest.fixture
def options(client: Client, database: str) -> Options:
    client.send_batch("orders", range(10))
    return read_options({"dsn": database, "queue": "orders", "columns": "message_id, body"})


def read(options: Options, ids: rows.Range, schema: pyarrow.Schema = SCHEMA) -> list[int]:
    batches = rows.read(options, chosen(options), [ids], schema)
    return [id_ for batch in batches for id_ in batch.column("message_id").to_pylist()]


def segment(client: Client) -> str:
    # A newer one is made ahead of its ids.
    return min(client.inspect.segments("orders"), key=lambda each: each.first_id).segment


def test_rows_that_are_gone_are_named_with_their_segment(client: Client, options: Options) -> None:
    ids = rows.Range("orders", "spanmq_core.log_1", 1, 12, attempt=1, expected=12)
    told = f"of 12 messages only 10 are left, ids 1 to 12, segment {segment(client)}"
    with pytest.raises(MessagesLostError, match=told):
        read(options, ids)


def test_segment_that_is_gone_is_said_to_be(client: Client, options: Options) -> None:
    ids = rows.Range("orders", "spanmq_core.log_1", 10**12, 10**12, attempt=1, expected=1)
    with pytest.raises(MessagesLostError, match="whose segment is gone"):
        read(options, ids)


def test_what_the_server_says_comes_with_queue_ids_and_segment(client: Client, options: Options) -> None:
    ids = rows.Range("orders", "spanmq_core.log_1", 3, 7, where="1 / (t.msg_id - 5) = 0")
    told = f"reading queue orders, ids 3 to 7, segment {segment(client)}: .*(division by zero|read_ct)"
    with pytest.raises(ServerError, match=told):
        read(options, ids)
    archive = Options(dsn=options.dsn, queue="orders", table="archive", columns=options.columns)
    with pytest.raises(ServerError, match=r"reading queue orders, archive, ids 3 to 7: .*nothing"):
        read(archive, rows.Range("orders", "pgmq.nothing", 3, 7))


def test_rows_that_can_not_be_written_are_told_with_their_segment(client: Client, options: Options) -> None:
    broken = iter([pyarrow.RecordBatch.from_pydict({"body": ["1", "{broken"]})])
    with pytest.raises(InvalidBodyError, match=f"2 messages into queue orders, segment {segment(client)}"):
        write_rows(options, "write:1", 0, broken)


def test_failed_row_ends_the_statement_and_not_the_session(options: Options, database: str) -> None:
    from spanmq_spark.adbc import Connection, StatementError

    with closing(Connection(database)) as connection:
        # The rows before it have come: what fails then passes through Arrow.
        failing = connection.query("select 100000 / (50000 - id) as n from generate_series(1, 60000) id")
        with pytest.raises(StatementError, match="division by zero"):
            list(failing)
        unfinished = connection.query("select id from generate_series(1, 1000000) id")
        next(unfinished)
        unfinished.close()
        [batch] = connection.query("select 7::bigint as n")
    assert batch.column("n").to_pylist() == [7]
    with pytest.raises(ConnectionFailedError):
        Connection("host=127.0.0.1 port=1 dbname=none connect_timeout=2")


def test_statement_ends_when_its_server_is_silent(options: Options, database: str) -> None:
    from spanmq_spark.adbc import Connection, StatementError

    parts = conninfo_to_dict(database)
    with proxying(f"{parts['host']}/.s.PGSQL.{parts['port']}") as proxy:
        dsn = make_conninfo(
            user=parts["user"], dbname=parts["dbname"], host="127.0.0.1", port=proxy.port, sslmode="disable"
        )
        with closing(Connection(dsn)) as reading, closing(Connection(dsn)) as writing:
            assert reading.is_alive()
            proxy.set("stall")
            with pytest.raises(StatementError, match="did not answer"):
                list(reading.query("select 1"))
            with pytest.raises(StatementError, match="did not answer"):
                writing.append("pgmq", "nothing", pyarrow.table({"n": [1]}))


def test_tasks_of_a_worker_share_a_connection_until_it_breaks(options: Options, database: str) -> None:
    def session() -> int:
        # Of the session that reads.
        ids = rows.Range(
            "orders", "(select pg_backend_pid()::bigint as msg_id, null as headers, 1 as read_ct)", 1, 10**9
        )
        [session] = read(replace(options, columns=("message_id",)), ids, SCHEMA.remove(1))
        return session

    first = session()
    assert session() == first
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s, 10000)", [first])
    second = session()
    assert session() == second != first
    with pytest.raises(ServerError):
        read(options, rows.Range("orders", "spanmq.nothing", 1, 10, attempt=1))
    # One in which a statement failed is not used again.
    assert session() != second


def test_worker_that_reads_imports_no_pandas(options: Options, database: str) -> None:
    program = f"""
import sys
import pyarrow
from spanmq_spark import rows
from spanmq_spark.column import chosen
from spanmq_spark.options import read_options
options = read_options({{"dsn": {database!r}, "queue": "orders", "columns": "message_id, body"}})
schema = pyarrow.schema([("message_id", pyarrow.int64()), ("body", pyarrow.string())])
ids = rows.Range("orders", "spanmq_core.log_1", 1, 10, attempt=1, expected=10)
print(sum(batch.num_rows for batch in rows.read(options, chosen(options), [ids], schema)))
print([name for name in ("pandas", "pyarrow.dataset") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "10\n[]\n"


def test_place_is_ids_alone_where_the_server_does_not_answer(options: Options, database: str) -> None:
    do(database, "select pgmq.drop_queue('orders')")
    assert rows.place_of(options, rows.Range("orders", "spanmq_core.log_1", 1, 2)) == "ids 1 to 2"
