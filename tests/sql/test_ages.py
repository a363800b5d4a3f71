"""Ages in metrics are of messages that are still there, also where some left their lease one by one."""

from tests.sql.queue import Connection, one, rows

SECONDS = {1: 1000, 2: 2000, 3: 3000, 4: 4000, 299: 5000, 300: 6000}  # the more, the younger


def prepare(connection: Connection) -> None:
    """Send three hundred messages, past a block of 256, of which some have an age of their own."""
    connection.execute("select pgmq.create('orders')")
    connection.execute(
        "select count(*) from pgmq.send_batch("
        "'orders', array(select to_jsonb(i) from generate_series(1, 300) i))"
    )
    log = one(connection, "select 'spanmq_core.log_' || queue_id from spanmq_core.queue")
    older = f"update {log} set enqueued_at = now() - make_interval(secs => %s) where msg_id = %s"
    for message_id, seconds in SECONDS.items():
        rows(connection, older, 10_000 - seconds, message_id)


def ages(connection: Connection) -> tuple[int, int]:
    """Return the age of the oldest and of the newest message, in whole thousands of seconds."""
    thousands = "oldest_msg_age_sec / 1000, newest_msg_age_sec / 1000"
    [(oldest, newest)] = rows(connection, f"select {thousands} from pgmq.metrics('orders')")
    return oldest, newest


def test_ages_are_of_what_has_not_left_its_lease(connection: Connection) -> None:
    prepare(connection)
    connection.execute("select count(*) from pgmq.read('orders', 600, 300)")
    assert ages(connection) == (9, 4)
    connection.execute("select pgmq.delete('orders', 1)")
    connection.execute("select pgmq.delete('orders', 300)")
    assert ages(connection) == (8, 5)
    connection.execute("select pgmq.delete('orders', id) from generate_series(3, 255) id")
    connection.execute("select pgmq.delete('orders', 2)")  # the last of its block
    assert ages(connection) == (0, 5)
    connection.execute("select pgmq.delete('orders', id) from generate_series(256, 298) id")
    assert ages(connection) == (5, 5)


def test_counts_leave_out_what_has_left_its_lease(connection: Connection) -> None:
    counts = "select queue_length, queue_visible_length from pgmq.metrics('orders')"
    prepare(connection)
    connection.execute("select count(*) from pgmq.read('orders', 600, 100)")
    connection.execute("select count(*) from pgmq.read('orders', -1, 100)")  # visible again
    assert rows(connection, counts) == [(300, 200)]
    connection.execute("select pgmq.delete('orders', id) from unnest(array[5, 50, 120, 150, 199]) id")
    assert rows(connection, counts) == [(295, 197)]
    connection.execute("select pgmq.delete('orders', 250)")
    connection.execute("select pgmq.purge_queue('orders')")
    assert rows(connection, counts) == [(0, 0)]
