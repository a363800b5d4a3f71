"""peek shows what the view shows, in order."""

import random

from tests.sql.queue import Connection, column, rows


def mix(connection: Connection) -> None:
    """Fill a queue over two segments with messages in every state, some of them settled one by one."""
    chance = random.Random(5)
    connection.execute("select pgmq.create('jobs')")
    connection.execute("select setval('pgmq.q_jobs_msg_id_seq', 15900)")
    for _ in range(40):
        connection.execute(
            "select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[%s]), %s)",
            [chance.randint(1, 60), chance.choice([0, 0, 3600])],
        )
    for _ in range(6):
        connection.execute("select pgmq.read('jobs', 600, %s)", [chance.randint(1, 90)])
        taken = column(connection, "select msg_id from pgmq.q_jobs")
        connection.execute(
            "select pgmq.delete('jobs', %s::bigint[])", [chance.sample(taken, len(taken) // 10)]
        )
        connection.execute("select pgmq.set_vt('jobs', %s::bigint[], 0)", [chance.sample(taken, 5)])


def test_peek_shows_what_the_view_shows(connection: Connection) -> None:
    mix(connection)
    expected = rows(connection, "select * from pgmq.q_jobs order by msg_id")
    ids = [row[0] for row in expected]
    assert len(ids) > 400
    assert ids[0] < 16384 < ids[-1]
    for after in (-1, 0, ids[0] - 1, ids[0], ids[100], ids[200] + 1, ids[-2], ids[-1], 1 << 62):
        for quantity in (0, 1, 7, 300, 100_000):
            shown = rows(connection, "select * from spanmq.peek('jobs', %s, %s)", quantity, after)
            assert shown == [row for row in expected if row[0] > after][:quantity]


def test_newest_come_first_on_request(connection: Connection) -> None:
    mix(connection)
    expected = rows(connection, "select * from pgmq.q_jobs order by msg_id desc")
    newest = "select * from spanmq.peek('jobs', %s, %s, newest_first => true)"
    ids = [row[0] for row in expected]
    for after in (-1, 0, ids[0] + 1, ids[0], ids[100], ids[200] + 1, ids[-2], ids[-1], 1, 1 << 62):
        for quantity in (0, 1, 7, 300, 100_000, 2**31 - 1):
            shown = rows(connection, newest, quantity, after)
            assert shown == [row for row in expected if after < 1 or row[0] < after][:quantity]


def test_newest_come_first_whatever_gaps_are_between_them(connection: Connection) -> None:
    connection.execute("select pgmq.create('jobs')")
    ids: list[int] = []
    for gap in (1, 300, 7, 100_000, 2, 40_000_000):
        connection.execute("select setval('pgmq.q_jobs_msg_id_seq', %s)", [(ids or [0])[-1] + gap])
        ids += column(connection, "select pgmq.send_batch('jobs', '{1,2}')")
    connection.execute("select pgmq.delete('jobs', %s::bigint)", [ids[-1]])
    expected = ids[-2::-1]
    newest = "select msg_id from spanmq.peek('jobs', %s, newest_first => true)"
    for quantity in (1, 2, 5, 100):
        assert column(connection, newest, quantity) == expected[:quantity]
