"""Taking over upstream PGMQ, as its SQL-only installation: messages, archives, queues."""

import pytest
from tests.patience import WAIT_SECONDS
from tests.sql.queue import Connection, change_state, one, rows
from tests.sql.schema.upstream import fill, make_partitioned, messages

from spanmq import schema
from spanmq.schema.adopt import AdoptedQueue, AdoptReport, adopt

ODD_NAMES = ["MyQ", "two words", 'quo"ted', "a.b-c", "größe", "q_x", "日本語", "x" * 47, "select"]

# Messages.


def test_every_message_is_as_it_was(filled: Connection) -> None:
    before = messages(filled, "orders")
    assert len(before) == 44
    report = adopt(filled)
    assert messages(filled, "orders") == before
    assert report == AdoptReport(
        holding=schema.Holding.UPSTREAM_SQL_ONLY,
        version=None,
        is_dry_run=False,
        queues=(
            AdoptedQueue(
                queue="orders",
                messages=44,
                hidden=9,
                archived=3,
                last_id=60,
                is_partitioned=False,
                is_unlogged=False,
                topics=(),
                notify_ms=None,
                grantees=("pg_monitor",),
                notes=(),
            ),
        ),
        kept=(),
        obstacles=(),
    )
    assert schema.verify(filled) == []
    assert schema.install(filled).functions_applied is False


def test_ids_go_on(filled: Connection) -> None:
    filled.execute("select pgmq.create('emptied'); select pgmq.create('fresh')")
    filled.execute("select pgmq.send_batch('emptied', array_fill('{}'::jsonb, array[300]))")
    filled.execute("select pgmq.purge_queue('emptied')")
    totals = "select queue_name, total_messages, queue_length from pgmq.metrics_all() order by 1"
    before = rows(filled, totals)
    adopt(filled)
    assert rows(filled, totals) == before == [("emptied", 300, 0), ("fresh", 0, 0), ("orders", 60, 44)]
    sent = [one(filled, f"select pgmq.send('{queue}', '{{}}')") for queue in ("emptied", "fresh", "orders")]
    assert sent == [301, 1, 61]


def test_messages_are_delivered_as_before(filled: Connection) -> None:
    visible = rows(
        filled, "select msg_id, read_ct from pgmq.q_orders where vt <= clock_timestamp() order by 1"
    )
    adopt(filled)
    received = rows(filled, "select msg_id, read_ct from pgmq.read('orders', 600, 1000)")
    assert received == [(msg_id, read_ct + 1) for msg_id, read_ct in visible]
    assert rows(filled, "select * from pgmq.read('orders', 600, 1000)") == []
    # A consumer that read before the take-over settles after it.
    assert one(filled, "select pgmq.delete('orders', 1)") is True
    filled.execute("select pgmq.set_vt('orders', 5, 0)")
    assert rows(filled, "select msg_id, read_ct from pgmq.read('orders', 600, 10)") == [(5, 2)]
    assert one(filled, "select count(*) from pgmq.q_orders") == 43


def test_hidden_messages_come_back(filled: Connection) -> None:
    filled.execute("update pgmq.q_orders set vt = '2100-01-01' where msg_id in (1, 41)")
    filled.execute("select pgmq.read('orders', 600, 100)")
    adopt(filled)
    read = "select msg_id, read_ct from pgmq.read('orders', 600, 100)"
    assert rows(filled, read) == []
    # The time comes when the test says so, not while the take-over goes on.
    change_state(filled, "vt = clock_timestamp()", "vt = '2100-01-01'")
    assert rows(filled, read) == [(1, 2), (41, 1)]


def test_grouped_reads_see_the_groups(upstream: Connection) -> None:
    upstream.execute("select pgmq.create('orders')")
    upstream.execute(
        "select pgmq.send_batch('orders', array_fill('{}'::jsonb, array[9]),"
        " array(select jsonb_build_object('x-pgmq-group', (n % 3)::text) from generate_series(1, 9) n))"
    )
    upstream.execute("select pgmq.read('orders', 600, 1)")
    adopt(upstream)
    heads = rows(
        upstream, "select msg_id, headers->>'x-pgmq-group' from pgmq.read_grouped_head('orders', 60, 10)"
    )
    assert heads == [(2, "2"), (3, "0")]


def test_hundred_thousand_messages_go_over(upstream: Connection) -> None:
    upstream.execute("select pgmq.create('orders')")
    upstream.execute(
        "insert into pgmq.q_orders (vt, message) select clock_timestamp() - interval '1 s' * (n % 7),"
        " jsonb_build_object('n', n, 'text', repeat('x', 200)) from generate_series(1, 100000) n"
    )
    upstream.execute("select count(*) from pgmq.read('orders', 600, 20000)")
    checksum = (
        "select md5(string_agg(msg_id || message::text || read_ct, ',' order by msg_id)) from pgmq.q_orders"
    )
    before = one(upstream, checksum)
    assert adopt(upstream).messages == 100000
    assert one(upstream, checksum) == before
    assert one(upstream, "select queue_visible_length from pgmq.metrics('orders')") == 80000


def test_ids_far_apart_need_no_log_between(upstream: Connection) -> None:
    upstream.execute("select pgmq.create('orders')")
    upstream.execute(
        "insert into pgmq.q_orders (msg_id, vt, message) overriding system value"
        " select n, now(), '{}' from unnest(array[0, 1, 255, 256, 70000, 5000000000]) n"
    )
    before = messages(upstream, "orders")
    adopt(upstream)
    assert messages(upstream, "orders") == before
    assert one(upstream, "select count(*) from spanmq_core.segment") <= 6
    # The sequence had not seen these ids: it would have drawn them again.
    assert one(upstream, "select pgmq.send('orders', '{}')") == 5000000001


def test_upkeep_goes_on_and_loses_nothing(filled: Connection) -> None:
    before = messages(filled, "orders")
    adopt(filled)
    while rows(filled, "select * from spanmq.maintain()"):
        pass
    assert messages(filled, "orders") == before
    assert one(filled, "select pgmq.drop_queue('orders')") is True
    assert schema.verify(filled) == []


# Archives.


def test_archive_stays_the_table_that_it_is(filled: Connection) -> None:
    filled.execute("create index mine on pgmq.a_orders (read_ct)")
    filled.execute("create view public.archived as select * from pgmq.a_orders")
    look = "select tableoid, a.*::text from pgmq.a_orders a order by msg_id"
    before = rows(filled, look)
    adopt(filled)
    assert rows(filled, look) == before
    assert one(filled, "select 'pgmq.mine'::regclass::text") == "pgmq.mine"
    assert one(filled, "select pgmq.archive('orders', 8)") is True
    archived = rows(filled, "select msg_id, read_ct from public.archived order by 1")
    assert archived == [(2, 1), (3, 1), (8, 2), (30, 0)]


def test_retention_of_a_partitioned_archive_takes_no_other_rows(upstream: Connection) -> None:
    make_partitioned(upstream)
    # Rows of different partitions have the same places in their files.
    upstream.execute("create table pgmq.a_parts_p1 partition of pgmq.a_parts for values from (100) to (200)")
    upstream.execute("insert into pgmq.a_parts (msg_id, vt) values (100, now()), (101, now())")
    upstream.execute("update pgmq.a_parts set archived_at = now() - interval '9 days' where msg_id = 3")
    adopt(upstream)
    upstream.execute("select pgmq.convert_archive_partitioned('parts', '10000', '7 days')")
    while rows(upstream, "select * from spanmq.maintain()"):
        pass
    assert rows(upstream, "select msg_id from pgmq.a_parts order by 1") == [(100,), (101,)]


def test_missing_archive_is_made(filled: Connection) -> None:
    filled.execute("drop table pgmq.a_orders")
    assert adopt(filled).queues[0].notes == ("had no archive table: gets an empty one",)
    assert one(filled, "select pgmq.archive('orders', 8)") is True
    assert rows(filled, "select msg_id from pgmq.a_orders") == [(8,)]


# Queues.


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_go_over(upstream: Connection, name: str) -> None:
    fill(upstream, name)
    before = messages(upstream, name)
    assert [queue.queue for queue in adopt(upstream).queues] == [name]
    assert messages(upstream, name) == before
    assert rows(upstream, "select queue_name from pgmq.list_queues()") == [(name,)]
    assert one(upstream, "select pgmq.send(%s, '{}')", name) == 61
    assert one(upstream, "select pgmq.archive(%s, 61)", name) is True
    assert one(upstream, "select pgmq.drop_queue(%s)", name) is True


def test_names_that_differ_in_case_become_one_queue(upstream: Connection) -> None:
    fill(upstream, "MyQ")
    upstream.execute(
        "select pgmq.create('myq'); select pgmq.bind_topic('a', 'myq'); select pgmq.bind_topic('a', 'MyQ')"
    )
    (queue,) = adopt(upstream).queues
    assert (queue.queue, queue.messages, queue.topics) == ("MyQ", 44, ("a",))
    assert queue.notes == ("one queue with myq, which shares its table",)
    assert one(upstream, "select pgmq.send('myq', '{}')") == 61
    assert rows(upstream, "select pattern, queue_name from pgmq.list_topic_bindings()") == [("a", "MyQ")]


def test_queue_without_a_table_is_left_out(filled: Connection) -> None:
    filled.execute("select pgmq.create('gone'); select pgmq.bind_topic('a', 'gone'); drop table pgmq.q_gone")
    report = adopt(filled)
    assert {queue.queue: queue.notes for queue in report.queues} == {
        "gone": ("left out: its table is missing",),
        "orders": (),
    }
    assert rows(filled, "select queue_name from pgmq.list_queues()") == [("orders",)]
    assert one(filled, "select count(*) from pgmq.a_gone") == 0


def test_flags_and_dates_go_over(upstream: Connection) -> None:
    upstream.execute("select pgmq.create('plain')")
    upstream.execute("select pgmq.create_unlogged('quick')")
    upstream.execute("select pgmq.send('quick', '{}')")
    listed = rows(upstream, "select * from pgmq.list_queues() order by created_at")
    assert adopt(upstream).queues[1].is_unlogged
    assert rows(upstream, "select * from pgmq.list_queues()") == listed
    assert rows(upstream, "select count(*) from spanmq_core.state") == [(1,)]


def test_partitioned_queue_goes_over(upstream: Connection) -> None:
    make_partitioned(upstream)
    before = messages(upstream, "parts")
    (queue,) = adopt(upstream).queues
    assert (queue.messages, queue.archived, queue.is_partitioned) == (7, 1, True)
    assert queue.notes == ("its archive stays as it is partitioned",)
    assert messages(upstream, "parts") == before
    assert one(upstream, "select pgmq.send('parts', '{}')") == 9
    assert one(upstream, "select pgmq.archive('parts', 8)") is True
    assert one(upstream, "select count(*) from pgmq.a_parts") == 2
    left = "select count(*) from pg_class where relname like 'q\\_parts%' and relkind in ('r', 'p')"
    assert one(upstream, left) == 0


def test_topics_go_over(upstream: Connection) -> None:
    upstream.execute("select pgmq.create('one'); select pgmq.create('two')")
    upstream.execute("select pgmq.bind_topic('logs.*', 'one'); select pgmq.bind_topic('logs.#', 'two')")
    upstream.execute("select pgmq.bind_topic('other', 'two')")
    listed = rows(upstream, "select * from pgmq.list_topic_bindings() order by 1, 2")
    assert {queue.queue: queue.topics for queue in adopt(upstream).queues} == {
        "one": ("logs.*",),
        "two": ("logs.#", "other"),
    }
    assert rows(upstream, "select * from pgmq.list_topic_bindings() order by 1, 2") == listed
    assert one(upstream, "select pgmq.send_topic('logs.error', '{}')") == 2


def test_notifications_go_over(upstream: Connection) -> None:
    upstream.execute(
        "select pgmq.create('loud'); select pgmq.create('crashed'); select pgmq.create('silent')"
    )
    upstream.execute(
        "select pgmq.enable_notify_insert('loud', 0); select pgmq.enable_notify_insert('crashed', 7)"
    )
    # What a crash of the server does to this unlogged table; the trigger stays.
    upstream.execute("delete from pgmq.notify_insert_throttle where queue_name = 'crashed'")
    throttles = {queue.queue: queue.notify_ms for queue in adopt(upstream).queues}
    assert throttles == {"loud": 0, "crashed": 250, "silent": None}
    upstream.execute('listen "pgmq.q_loud.INSERT"')
    upstream.execute("select pgmq.send('loud', '{}')")
    assert [notice.channel for notice in upstream.notifies(timeout=WAIT_SECONDS, stop_after=1)] == [
        "pgmq.q_loud.INSERT"
    ]


def test_shape_of_older_versions_goes_over(filled: Connection) -> None:
    for table in ("q_orders", "a_orders"):
        # 1.4 had no headers, 1.9 no last_read_at.
        filled.execute(f"alter table pgmq.{table} drop headers, drop last_read_at".encode())
    filled.execute("drop table pgmq.topic_bindings, pgmq.notify_insert_throttle")
    filled.execute("drop function pgmq.drop_queue(text)")
    look = "select msg_id, read_ct, enqueued_at, message from pgmq.q_orders order by 1"
    before = rows(filled, look)
    assert adopt(filled).queues[0].messages == 44
    assert rows(filled, look) == before
    assert rows(filled, "select distinct last_read_at, headers from pgmq.q_orders") == [(None, None)]
    filled.execute("select pgmq.send('orders', '{}', '{\"h\": 1}'::jsonb)")
    filled.execute("select pgmq.read('orders', 0, 1)")
    assert one(filled, "select pgmq.archive('orders', 61)") is True
    assert one(filled, "select headers->>'h' from pgmq.a_orders where msg_id = 61") == "1"


def test_message_that_waits_for_ever_goes_over(upstream: Connection) -> None:
    upstream.execute("select pgmq.create('orders')")
    for vt in ("infinity", "-infinity"):
        upstream.execute("select pgmq.send('orders', '1', %s::timestamptz)", [vt])
    adopt(upstream)
    hidden = "select msg_id, vt from pgmq.q_orders where vt > clock_timestamp()"
    assert [(row[0], row[1].year) for row in rows(upstream, hidden)] == [(1, 9999)]
    assert rows(upstream, "select msg_id from pgmq.read('orders', 0, 9)") == [(2,)]
    # What looks at times takes their differences, too.
    upstream.execute("select spanmq.health(), spanmq.look_ahead('orders'), pgmq.metrics('orders')")
