-- scenario: a queue is read by SQL
select * from pgmq.q_orders;
select * from pgmq.send_batch('orders', array['{"a": 1}', '{"a": 2}', '{"a": 3}']::jsonb[], array['{"x": 1}', null, '{}']::jsonb[]);
select * from pgmq.read('orders', 100, 1);
select * from pgmq.q_orders;
select msg_id from pgmq.q_orders where msg_id = 2;
select msg_id from pgmq.q_orders where msg_id in (1, 3, 5);
select msg_id from pgmq.q_orders where vt <= clock_timestamp();
select count(*) from pgmq.q_orders where vt > clock_timestamp();
select count(*) from pgmq.q_orders where message @> '{"a": 3}';
-- in order
select message from pgmq.q_orders order by enqueued_at desc, msg_id desc limit 2;
select max(msg_id), min(msg_id), sum(read_ct) from pgmq.q_orders;

-- scenario: vt is updated by SQL
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select msg_id from pgmq.read('orders', 100, 2);
update pgmq.q_orders set vt = now() + interval '300 seconds' where msg_id = 1;
update pgmq.q_orders set vt = now() where msg_id = 2;
update pgmq.q_orders set vt = now() + interval '400 seconds' where msg_id = 3 returning msg_id, vt;
update pgmq.q_orders set vt = vt where msg_id = 99;
select * from pgmq.q_orders;
select * from pgmq.read('orders', 100, 10);
update pgmq.q_orders set vt = clock_timestamp() - interval '1 second';
select msg_id, read_ct from pgmq.read('orders', 100, 10);

-- scenario: messages are deleted by SQL
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
delete from pgmq.q_orders where msg_id = 2 returning *;
delete from pgmq.q_orders where msg_id = 2 returning *;
select msg_id from pgmq.q_orders;
delete from pgmq.q_orders returning msg_id;
select * from pgmq.read('orders', 100, 10);

-- scenario: an archive is read, changed and pruned by SQL
select * from pgmq.send_batch('orders', array['{"a": 1}', '{"a": 2}', '{"a": 3}']::jsonb[]);
select * from pgmq.archive('orders', array[1, 2, 3]);
select * from pgmq.a_orders;
update pgmq.a_orders set message = message || '{"seen": true}' where msg_id = 1 returning message;
delete from pgmq.a_orders where archived_at <= now() and msg_id < 3 returning msg_id;
truncate pgmq.a_orders;
select * from pgmq.a_orders;
insert into pgmq.a_orders (msg_id, vt, message) values (7, '2100-01-01 00:00:00+00', '7') returning *;
insert into pgmq.a_orders (msg_id, vt, message) values (7, '2100-01-01 00:00:00+00', '7');

-- scenario: the sequence of a queue is read by SQL
select is_called from pgmq.q_orders_msg_id_seq;
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select last_value, is_called from pgmq.q_orders_msg_id_seq;

-- scenario: a queue is joined, and its tables are found in the catalogue
select * from pgmq.send_batch('orders', array['{"a": 1}', '{"a": 2}']::jsonb[]);
select pgmq.archive('orders', 1);
select q.msg_id, m.queue_name from pgmq.q_orders q, pgmq.meta m;
select msg_id, 'queue' as place from pgmq.q_orders union all select msg_id, 'archive' from pgmq.a_orders;
select table_name from information_schema.tables where table_schema = 'pgmq' and table_name in ('q_orders', 'a_orders', 'meta', 'topic_bindings', 'notify_insert_throttle');
select column_name, ordinal_position, data_type from information_schema.columns where table_schema = 'pgmq' and table_name = 'q_orders';
select column_name, ordinal_position, data_type, is_nullable from information_schema.columns where table_schema = 'pgmq' and table_name = 'a_orders';

-- scenario: what a view can't do
select * from pgmq.send('orders', '1');
update pgmq.q_orders set message = '2' where msg_id = 1;
insert into pgmq.q_orders (vt, message) values (now(), '3');
select msg_id, message from pgmq.read('orders', 0, 5) where msg_id > 1;
-- differs: a view has no column that is always generated
-- upstream: error 428C9: cannot insert a non-DEFAULT value into column "msg_id"
-- here: nothing
insert into pgmq.q_orders (msg_id, vt, message) values (7, now(), '3');
-- differs: purge_queue does it
-- upstream: nothing
-- here: error 42809: "q_orders" is not a table
truncate pgmq.q_orders;

-- scenario: the tables of queues and throttles are views, which only the functions change
select pgmq.enable_notify_insert('orders', 100);
-- differs: the row is the queue itself
-- upstream: nothing
-- here: error MQ004: INSERT of meta is not possible: it shows what the functions do
insert into pgmq.meta (queue_name, is_partitioned, is_unlogged) values ('others', false, false);
-- differs: the row is the queue itself
-- upstream: nothing
-- here: error MQ004: UPDATE of notify_insert_throttle is not possible: it shows what the functions do
update pgmq.notify_insert_throttle set throttle_interval_ms = 5;
-- differs: the row is the queue itself
-- upstream: nothing
-- here: error MQ004: DELETE of notify_insert_throttle is not possible: it shows what the functions do
delete from pgmq.notify_insert_throttle;
-- differs: the row is the queue itself
-- upstream: nothing
-- here: error MQ004: UPDATE of meta is not possible: it shows what the functions do
update pgmq.meta set is_unlogged = true where queue_name = 'orders';
-- differs: the row is the queue itself
-- upstream: nothing
-- here: error MQ004: DELETE of meta is not possible: it shows what the functions do
delete from pgmq.meta where queue_name = 'orders';
select pgmq.send('orders', '1');
