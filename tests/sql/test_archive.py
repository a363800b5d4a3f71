"""Looking at an archive, and at what a queue takes on disk."""

import pytest
from psycopg import sql
from tests.sql.queue import Connection


@pytest.fixture
def archived(connection: Connection) -> Connection:
    """A queue of five messages, of which 2 and 4 are archived."""
    connection.execute("select pgmq.create('Orders')")
    connection.execute("select pgmq.send_batch('orders', array['1', '2', '3', '4', '5']::jsonb[])")
    connection.execute("select pgmq.archive('orders', array[2, 4]::bigint[])")
    return connection


def ids(connection: Connection, *arguments: object) -> list[int]:
    call = sql.SQL("select msg_id from spanmq.peek_archive({})").format(
        sql.SQL(", ").join(sql.Literal(each) for each in arguments)
    )
    return [msg_id for (msg_id,) in connection.execute(call)]


def test_archive_is_walked_through_in_order(archived: Connection) -> None:
    assert ids(archived, "orders") == [2, 4]
    assert ids(archived, "ORDERS", 1) == [2]
    assert ids(archived, "orders", 10, 2) == [4]
    assert ids(archived, "orders", 0) == []


def test_archive_is_walked_through_the_newest_first(archived: Connection) -> None:
    assert ids(archived, "orders", 10, 0, None, True) == [4, 2]
    assert ids(archived, "orders", 1, 0, None, True) == [4]
    assert ids(archived, "orders", 10, 4, None, True) == [2]
    row = archived.execute("select * from spanmq.peek_archive('orders', 1)").fetchone()
    columns = "msg_id, read_ct, enqueued_at, last_read_at, archived_at, vt, message, headers"
    of_the_table = archived.execute(f"select {columns} from pgmq.a_orders where msg_id = 2".encode())
    assert row == of_the_table.fetchone()


def test_storage_counts_what_is_there(archived: Connection) -> None:
    def stored(queue: str) -> dict[str, int]:
        cursor = archived.execute("select * from spanmq.storage(%s)", [queue])
        names = [column.name for column in cursor.description or ()]
        return dict(zip(names, cursor.fetchone() or (), strict=True))

    before = stored("orders")
    assert before["segments"] >= 1
    assert before["unsettled"] >= 1
    archived.execute("select pgmq.send_batch('orders', array_fill(to_jsonb(repeat('x', 1000)), array[1000]))")
    archived.execute("select pgmq.archive('orders', array(select generate_series(1, 500)::bigint))")
    after = stored("orders")
    assert after["log_bytes"] > before["log_bytes"]
    assert after["archive_bytes"] > before["archive_bytes"]
    assert after["wal_bytes"] > before["wal_bytes"] + 1_000
    archived.execute("select pgmq.create_unlogged('fast')")
    archived.execute("select pgmq.send('fast', '1'::jsonb)")
    assert stored("fast")["unsettled"] == 1
    assert stored("orders")["unsettled"] == after["unsettled"]


def test_maintenance_of_a_queue_that_keeps_everything_for_longer_than_history_goes_on(
    archived: Connection,
) -> None:
    for setting in ("archive_retention", "dead_letter_retention", "keep"):
        archived.execute(
            "select spanmq.set_policy('orders', jsonb_build_object(%s::text, '10000 years'))", [setting]
        )
    said: list[str | None] = []
    archived.add_notice_handler(lambda diagnostic: said.append(diagnostic.message_primary))
    archived.execute("select spanmq.maintain()")
    assert said == []
    assert ids(archived, "orders") == [2, 4]
