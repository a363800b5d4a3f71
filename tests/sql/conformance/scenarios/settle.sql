-- scenario: delete one message
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select * from pgmq.read('orders', 100, 1);
select * from pgmq.delete('orders', 1);
select pgmq.delete(queue_name => 'orders', msg_id => 3);
select pgmq.delete('orders', 1);
select pgmq.delete('orders', 99);
select pgmq.delete('orders', 0);
select pgmq.delete('orders', -1);
select pgmq.delete('orders', null::bigint);
select pgmq.delete('orders', 9223372036854775807);
select pgmq.delete('orders', -9223372036854775808);
select pgmq.archive('orders', 9223372036854775807);
select * from pgmq.set_vt('orders', 9223372036854775807, 5);
select msg_id from pgmq.q_orders;

-- scenario: delete many messages
select count(*) from pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(1, 10) n));
select msg_id from pgmq.read('orders', 100, 5);
select * from pgmq.delete('orders', array[1, 2]);
select * from pgmq.delete(queue_name => 'orders', msg_ids => array[2, 4, 8, 99]);
select * from pgmq.delete('orders', array[5, 5, 5]);
select * from pgmq.delete('orders', array[null, 6, null]);
select * from pgmq.delete('orders', '{}'::bigint[]);
select * from pgmq.delete('orders', null::bigint[]);
select * from pgmq.delete('orders', array[10, 9]);
select * from pgmq.delete('orders', array[-5, 0, 1000000000000]);
select * from pgmq.delete('orders', array[9223372036854775806, 9223372036854775807, 7]);
select msg_id from pgmq.q_orders;

-- scenario: archive one message
select * from pgmq.send('orders', '{"a": 1}', '{"x": 1}'::jsonb);
select * from pgmq.send('orders', '{"a": 2}', 200);
select * from pgmq.send('orders', '{"a": 3}');
select * from pgmq.read('orders', 100, 1);
select * from pgmq.archive('orders', 1);
select pgmq.archive(queue_name => 'orders', msg_id => 2);
select pgmq.archive('orders', 3);
select pgmq.archive('orders', 1);
select pgmq.archive('orders', 99);
select pgmq.archive('orders', null::bigint);
select * from pgmq.q_orders;
select * from pgmq.a_orders;

-- scenario: archive many messages
select count(*) from pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(1, 10) n));
select msg_id from pgmq.read('orders', 100, 2);
select msg_id from pgmq.read('orders', 200, 2);
select msg_id from pgmq.set_vt('orders', array[4, 5], 300);
select * from pgmq.archive('orders', array[1, 3, 4, 5, 6]);
select * from pgmq.archive(queue_name => 'orders', msg_ids => array[6, 7, 7, null, 99]);
select * from pgmq.archive('orders', '{}'::bigint[]);
select * from pgmq.archive('orders', null::bigint[]);
select * from pgmq.a_orders;
select msg_id from pgmq.q_orders;

-- scenario: messages that left a lease and came back
select count(*) from pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(1, 12) n));
select msg_id from pgmq.read('orders', 100, 6);
select msg_id from pgmq.set_vt('orders', 2, 200);
select msg_id from pgmq.set_vt('orders', array[4, 7], 200);
select * from pgmq.delete('orders', array[1, 2, 3]);
select * from pgmq.archive('orders', array[3, 4, 5, 6, 7, 9]);
select msg_id, read_ct, vt from pgmq.q_orders;
select msg_id, read_ct, vt from pgmq.a_orders;
select msg_id from pgmq.read('orders', 100, 2);
select msg_id from pgmq.set_vt('orders', 8, 0);
select msg_id, read_ct from pgmq.read('orders', 100, 2);
select * from pgmq.delete('orders', array[8, 10, 11, 12]);
select * from pgmq.q_orders;

-- scenario: every form of set_vt
select * from pgmq.send_batch('orders', array['1', '2', '3', '4']::jsonb[], array['{"x": 1}', null, null, null]::jsonb[]);
select * from pgmq.read('orders', 100, 1);
select * from pgmq.set_vt('orders', 1, 200);
select * from pgmq.set_vt(queue_name => 'orders', msg_id => 2, vt => 300);
select * from pgmq.set_vt('orders', 3, now() + interval '400 seconds');
select * from pgmq.set_vt(queue_name => 'orders', msg_id => 3, vt => '2100-01-01 00:00:00+00'::timestamptz);
select * from pgmq.set_vt('orders', array[1, 2], 500);
select * from pgmq.set_vt(queue_name => 'orders', msg_ids => array[2, 3, 99, 2, null], vt => now() + interval '600 seconds');
select * from pgmq.set_vt('orders', 99, 100);
select * from pgmq.set_vt('orders', array[99], 100);
select * from pgmq.set_vt('orders', '{}'::bigint[], 100);
select * from pgmq.set_vt('orders', null::bigint[], 100);
select * from pgmq.set_vt('orders', null::bigint, 100);
select * from pgmq.q_orders;
select * from pgmq.read('orders', 100, 10);

-- scenario: set_vt of now or before shows a message again
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[], 100);
select * from pgmq.read('orders', 100, 10);
select * from pgmq.set_vt('orders', 1, 0);
select * from pgmq.set_vt('orders', 2, -200);
select * from pgmq.set_vt('orders', 3, '2020-01-01 00:00:00+00'::timestamptz);
select * from pgmq.read('orders', 100, 10);

-- scenario: set_vt of no time
select * from pgmq.send('orders', '1');
-- differs: typed
-- upstream: error 23502: null value in column "vt" of relation "q_orders" violates not-null constraint
-- here: error MQ002: vt cannot be NULL
select pgmq.set_vt('orders', 1, null::int);
-- differs: typed
-- upstream: error 23502: null value in column "vt" of relation "q_orders" violates not-null constraint
-- here: error MQ002: vt cannot be NULL or infinite
select pgmq.set_vt('orders', 1, null::timestamptz);

-- scenario: messages that were archived or deleted are gone for every call
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select * from pgmq.archive('orders', 1);
select * from pgmq.delete('orders', 2);
select * from pgmq.set_vt('orders', array[1, 2, 3], 0);
select * from pgmq.read('orders', 100, 10);
select * from pgmq.archive('orders', array[1, 2, 3]);
select * from pgmq.delete('orders', array[1, 2, 3]);

-- scenario: settling in a transaction that rolls back
select * from pgmq.send_batch('orders', array['1', '2', '3', '4']::jsonb[]);
select msg_id from pgmq.read('orders', 100, 4);
begin;
select pgmq.delete('orders', 1);
select pgmq.archive('orders', 2);
select msg_id from pgmq.set_vt('orders', 3, 0);
select pgmq.purge_queue('orders');
rollback;
select msg_id, read_ct, vt from pgmq.q_orders;
select msg_id from pgmq.a_orders;

-- scenario: batches across the blocks and segments of the log
select count(*) from pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(1, 20000) n));
select count(*), min(msg_id), max(msg_id), sum(message::text::int) from pgmq.read('orders', 100, 300);
select count(*), min(id), max(id) from pgmq.delete('orders', array(select n::bigint from generate_series(200, 600) n)) id;
select count(*), min(id), max(id) from pgmq.archive('orders', array(select n::bigint from generate_series(100, 1000, 3) n)) id;
select count(*), min(msg_id), max(msg_id) from pgmq.set_vt('orders', array(select n::bigint from generate_series(1, 20000, 7) n), 200);
select count(*), sum(id) from pgmq.delete('orders', array(select n::bigint from generate_series(16000, 17000) n)) id;
select count(*), min(msg_id), max(msg_id), sum(msg_id) from pgmq.pop('orders', 5000);
select count(*), sum(msg_id), sum(read_ct) from pgmq.q_orders;
select count(*), sum(msg_id), sum(read_ct), sum(message::text::int) from pgmq.a_orders;
select queue_length, queue_visible_length, total_messages from pgmq.metrics('orders');
select pgmq.purge_queue('orders');

-- scenario: ids as far apart as numbers go
select count(*) from pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(1, 9) n));
select * from pgmq.delete('orders', array[-9223372036854775808, 9223372036854775807]);
select * from pgmq.archive('orders', array[-9223372036854775808, 9223372036854775807]);
select * from pgmq.set_vt('orders', array[-9223372036854775808, 9223372036854775807], 5);
select * from pgmq.delete('orders', array[-1, 0, 1]);
select * from pgmq.delete('orders', array[null, null]::bigint[]);
select * from pgmq.delete('orders', array[null, 2, 3]);
select * from pgmq.delete('orders', array[4, null]);
select * from pgmq.delete('orders', array[-5, 5]);
select msg_id from pgmq.q_orders;

-- scenario: plans are made for parallel workers
select count(*) from pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(1, 9) n));
set debug_parallel_query = on;
select * from pgmq.delete('orders', array[-5, 0, 1000000000000]);
select * from pgmq.delete('orders', array[1, 2, 3]);
select msg_id from pgmq.q_orders;

-- scenario: an archive that was dropped is made again, and goes with its queue or not
select count(*) from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
drop table pgmq.a_orders;
select pgmq.archive('orders', 1);
select msg_id from pgmq.q_orders;
select pgmq.delete('orders', 1);
select pgmq.create('orders');
select pgmq.archive('orders', 2);
select msg_id from pgmq.a_orders;
drop table pgmq.a_orders;
select pgmq.drop_queue('orders');
select * from pgmq.list_queues();

-- scenario: an archive that was renamed is kept, and another of its name goes on
select count(*) from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select pgmq.archive('orders', 1);
alter table pgmq.a_orders rename to a_2026;
create table pgmq.a_orders (like pgmq.a_2026 including all);
select pgmq.archive('orders', 2);
select msg_id from pgmq.a_orders;
select msg_id from pgmq.a_2026;
select pgmq.drop_queue('orders');
select msg_id from pgmq.a_2026;
drop table pgmq.a_2026;

-- scenario: queues whose names differ by _old
select pgmq.create('orders_old');
select pgmq.send('orders_old', '1');
select pgmq.archive('orders_old', 1);
select pgmq.drop_queue('orders');
select msg_id from pgmq.a_orders_old;
