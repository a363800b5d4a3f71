-- scenario: W9, no message overtakes one of its group that is in work
select pgmq.send_batch('orders', array['1', '2', '3']::jsonb[], array_fill('{"x-pgmq-group": "a"}'::jsonb, array[3]));
select msg_id from pgmq.read_grouped('orders', 100, 2);
select msg_id from pgmq.set_vt('orders', 1, 0);
-- differs: W9
-- upstream: 1
-- upstream: 3
-- here: nothing
select msg_id from pgmq.read_grouped('orders', 100, 10);
select pgmq.delete('orders', 2);
-- differs: W9
-- upstream: nothing
-- here: 1
-- here: 3
select msg_id from pgmq.read_grouped('orders', 100, 10);

-- scenario: W12, PGMQ's calls let a late consumer delete what another holds
-- Documented: they carry no token.
select pgmq.send('orders', '1');
select msg_id from pgmq.read('orders', 0, 1);
select msg_id from pgmq.read('orders', 100, 1);
select pgmq.delete('orders', 1);

-- scenario: W14, names that differ in case are one queue
select pgmq.create('MyOrders');
select pgmq.create('myorders');
-- differs: W14
-- upstream: MyOrders
-- upstream: myorders
-- here: MyOrders
select queue_name from pgmq.list_queues();
select pgmq.drop_queue('myorders');
-- differs: W14
-- upstream: error 42P01: relation "pgmq.q_myorders" does not exist
-- here: nothing
select queue_name from pgmq.metrics_all();

-- scenario: W14, settings of a queue are found by any case
select pgmq.create('MyOrders');
-- differs: W14
-- upstream: error P0001: Queue "myorders" does not exist. Create the queue first using pgmq.create()
-- here: ''
select pgmq.bind_topic('a', 'myorders');
-- differs: W14
-- upstream: error 23503: insert or update on table "notify_insert_throttle" violates foreign key constraint "notify_insert_throttle_meta_queue_name_fk"
-- here: ''
select pgmq.enable_notify_insert('MYORDERS', 0);
-- differs: W14
-- upstream: nothing
-- here: MyOrders
select queue_name from pgmq.list_topic_bindings('myORDERS');
-- differs: W14
-- upstream: nothing
-- here: MyOrders
select queue_name from pgmq.list_notify_insert_throttles();
-- differs: W14
-- upstream: false
-- here: true
select pgmq.unbind_topic('a', 'MYORDERS');

-- scenario: W15, a name is measured in bytes
-- Two queues of PGMQ's with one table, whose second index was skipped: it would have had the table's name.
-- differs: W15
-- upstream: ''
-- here: error P0001: queue name is too long, maximum length is 47 bytes
select pgmq.create(repeat('é', 44) || 'a');
-- differs: W15
-- upstream: ''
-- here: error P0001: queue name is too long, maximum length is 47 bytes
select pgmq.create(repeat('é', 44) || 'b');
-- differs: W15
-- upstream: 1
-- here: error 42P01: relation "pgmq.q_ééééééééééééééééééééééééééééééééééééééééééééa" does not exist
select pgmq.send(repeat('é', 44) || 'a', '1');
-- differs: W15
-- upstream: 1
-- here: error 42P01: relation "pgmq.q_ééééééééééééééééééééééééééééééééééééééééééééb" does not exist
select message from pgmq.read(repeat('é', 44) || 'b', 100, 1);
-- differs: W15
-- upstream: 1
-- here: 0
select count(*) from pg_indexes where schemaname = 'pgmq' and tablename ~ '^q_';
select pgmq.create(repeat('é', 23));

-- scenario: W15, an archive is converted whatever its queue is called
select pgmq.create('my-orders');
-- differs: W15
-- upstream: error 42601: syntax error at or near "-"
-- here: ''
select pgmq.convert_archive_partitioned('my-orders');

-- scenario: dropping a queue leaves tables that its creation did not make
-- PGMQ's conversion of an archive leaves such a table.
create table pgmq.a_orders_old (like pgmq.a_orders);
select pgmq.drop_queue('orders');
select to_regclass('pgmq.a_orders_old') is not null;
drop table pgmq.a_orders_old;

-- scenario: W20, an archive has no second index to write at each ack
-- A BRIN index is some pages for the whole archive, and is not written for each row.
-- differs: W20
-- upstream: btree
-- here: brin
select a.amname from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am a on a.oid = c.relam
where i.indrelid = 'pgmq.a_orders'::regclass and not i.indisprimary;

-- scenario: W21, a search path does not lead functions astray
select pgmq.create('orders'), pgmq.create('other');
create schema astray;
create function astray.lower(text) returns text language sql as 'select ''q_other''';
set search_path = astray, pg_catalog;
select pgmq.send('orders', '1');
reset search_path;
drop schema astray cascade;
-- differs: W21
-- upstream: 0 | 1
-- here: 1 | 0
select (select count(*) from pgmq.q_orders), (select count(*) from pgmq.q_other);

-- scenario: W22, an untyped third argument is ambiguous
-- Documented: the overloads are PGMQ's interface. Named or typed arguments are never ambiguous.
select pgmq.send('orders', '{}', '{"a": 1}');
select pgmq.send('orders', '{}', headers => '{"a": 1}');

-- scenario: W22, enqueued_at is when it was sent
begin;
select pgmq.send('orders', '1');
-- differs: W22
-- upstream: false
-- here: true
select enqueued_at > now() from pgmq.q_orders;
commit;

-- scenario: W22, messages come in order whatever the plan
-- What was touched last lies last; the planner may choose to fetch in this order.
select count(*) from pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(1, 10) n));
select count(*) from pgmq.set_vt('orders', array[1, 2, 5], 0);
set enable_nestloop = off;
set enable_mergejoin = off;
begin;
-- differs: W22
-- upstream: false
-- here: true
select bool_and(msg_id = place) from pgmq.pop('orders', 10) with ordinality as p (msg_id, a, b, c, d, e, f, place);
rollback;
-- differs: W22
-- upstream: false
-- here: true
select bool_and(msg_id = place) from pgmq.read('orders', 100, 10) with ordinality as p (msg_id, a, b, c, d, e, f, place);
