-- scenario: p25 messages are inserted from a query
insert into pgmq.q_orders (vt, message) select now(), to_jsonb(i) from generate_series(1, 3) i;
select msg_id, message from pgmq.read('orders', 30, 10);

-- scenario: p26 an insert without vt
-- differs: insert without vt
-- upstream: error 23502: null value in column "vt" of relation "q_orders" violates not-null constraint
-- here: nothing
insert into pgmq.q_orders (message) values ('1');

-- scenario: p27 dead letters by SQL
select pgmq.create('orders');
select pgmq.create('orders_dead');
select pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select count(*) from pgmq.read('orders', 0, 3);
with dead as (delete from pgmq.q_orders where msg_id in (1, 3) returning *) insert into pgmq.q_orders_dead overriding system value select * from dead;
select msg_id, read_ct, last_read_at is not null, message from pgmq.q_orders_dead;
select count(*) from pgmq.q_orders;

-- scenario: p28 a backup is restored with its ids
insert into pgmq.q_orders (msg_id, read_ct, enqueued_at, vt, message) overriding system value values (5, 2, '2020-01-01 00:00:00+00', now(), '"a"'), (9, 0, '2020-01-02 00:00:00+00', now() + interval '1000 seconds', '"b"');
select setval('pgmq.q_orders_msg_id_seq', 9);
select pgmq.send('orders', '"c"');
select msg_id, read_ct, enqueued_at, vt, message from pgmq.q_orders;
select msg_id, read_ct, message from pgmq.read('orders', 30, 10);

-- scenario: p29 rows are put into the archive by hand
insert into pgmq.a_orders (msg_id, vt, message) values (1, now(), '1');
select msg_id, message from pgmq.a_orders;

-- scenario: p30 messages are archived by SQL
select pgmq.send_batch('orders', array['1', '2']::jsonb[]);
with gone as (delete from pgmq.q_orders returning msg_id, read_ct, enqueued_at, vt, message) insert into pgmq.a_orders (msg_id, read_ct, enqueued_at, vt, message) select * from gone;
select msg_id, message from pgmq.a_orders;

-- scenario: p31 messages are shown at once by SQL
select pgmq.send_batch('orders', array['1', '2', '3']::jsonb[], 1000);
update pgmq.q_orders set vt = now() where msg_id in (1, 3) returning msg_id, message;
select msg_id from pgmq.read('orders', 30, 10);

-- scenario: p32 vt is updated by the body
select pgmq.send_batch('orders', array['{"id": "a"}', '{"id": "b"}']::jsonb[]);
update pgmq.q_orders set vt = now() + interval '1000 seconds' where message->>'id' = 'a';
select message from pgmq.read('orders', 30, 10);

-- scenario: p33 a test sets the read count
select pgmq.send('orders', '1');
update pgmq.q_orders set read_ct = 7 where msg_id = 1;
select read_ct from pgmq.read('orders', 30, 1);

-- scenario: p34 a claim of one's own with row locks
select pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
-- differs: for update, for share
-- upstream: 1 | 1 | 1
-- upstream: 2 | 1 | 2
-- here: error 0A000: FOR UPDATE cannot be applied to the nullable side of an outer join
with due as (select msg_id from pgmq.q_orders where vt <= clock_timestamp() order by msg_id limit 2 for update skip locked) update pgmq.q_orders q set vt = clock_timestamp() + interval '1000 seconds', read_ct = read_ct + 1 from due where q.msg_id = due.msg_id returning q.msg_id, q.read_ct, q.message;
-- differs: for update, for share
-- upstream: 3
-- here: 1
-- here: 2
-- here: 3
select msg_id from pgmq.read('orders', 30, 10);

-- scenario: p35 delays for a batch of ids
select pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
update pgmq.q_orders q set vt = clock_timestamp() + u.delay * interval '1 second' from unnest(array[1, 3], array[1000, 2000]) u (id, delay) where q.msg_id = u.id returning q.msg_id, q.vt;

-- scenario: p36 a body is changed
select pgmq.send('orders', '{"card": "4111", "n": 1}');
update pgmq.q_orders set message = message - 'card' || '{"attempts": 2}' where msg_id = 1;
select message from pgmq.read('orders', 30, 1);

-- scenario: p37 headers are changed
select pgmq.send('orders', '1');
update pgmq.q_orders set headers = '{"trace": "x"}' where msg_id = 1;
select headers from pgmq.read('orders', 30, 1);

-- scenario: p38 vt becomes null
select pgmq.send('orders', '1');
update pgmq.q_orders set vt = null;

-- scenario: p39 a person's messages are deleted by the body
select pgmq.send_batch('orders', array['{"user": 1}', '{"user": 2}']::jsonb[]);
delete from pgmq.q_orders where message->>'user' = '1';
select message from pgmq.q_orders;

-- scenario: p40 all messages are deleted
select pgmq.send_batch('orders', array['1', '2']::jsonb[]);
delete from pgmq.q_orders;
select count(*) from pgmq.q_orders;

-- scenario: p41 messages that were read often or are old are deleted
select pgmq.send_batch('orders', array['1', '2']::jsonb[]);
select count(*) from pgmq.read('orders', 0, 1);
delete from pgmq.q_orders where read_ct > 0 returning msg_id;
delete from pgmq.q_orders where enqueued_at < now() - interval '1 day' returning msg_id;

-- scenario: p42 messages are deleted beside another table
create table public.cancelled (id int);
insert into public.cancelled values (2);
select pgmq.send_batch('orders', array['{"id": 1}', '{"id": 2}']::jsonb[]);
delete from pgmq.q_orders q using public.cancelled c where (q.message->>'id')::int = c.id returning q.msg_id;

-- scenario: p43 the archive is pruned by ctid and by time
insert into pgmq.a_orders (msg_id, vt, message) values (1, now(), '1'), (2, now(), '2');
delete from pgmq.a_orders where ctid in (select ctid from pgmq.a_orders order by msg_id limit 1) returning msg_id;
delete from pgmq.a_orders where archived_at < now() - interval '1 day' returning msg_id;

-- scenario: p44 a test cleans up in replica mode
select pgmq.send_batch('orders', array['1', '2']::jsonb[]);
set session_replication_role = replica;
-- differs: session_replication_role = replica
-- upstream: nothing
-- here: error MQ004: a queue can't be read or written as a table while session_replication_role is replica
delete from pgmq.q_orders where msg_id = 1;
reset session_replication_role;
-- differs: session_replication_role = replica
-- upstream: 2
-- here: 1
-- here: 2
select msg_id from pgmq.q_orders;

-- scenario: p45 a queue is truncated
select pgmq.send('orders', '1');
-- differs: truncate
-- upstream: nothing
-- here: error 42809: "q_orders" is not a table
truncate pgmq.q_orders;
-- differs: truncate
-- upstream: 0
-- here: 1
select count(*) from pgmq.q_orders;

-- scenario: p46 an archive is truncated
insert into pgmq.a_orders (msg_id, vt, message) values (1, now(), '1');
truncate pgmq.a_orders;
select count(*) from pgmq.a_orders;

-- scenario: p47 queues and tables of one's own are truncated together
create table public.mine (id int);
-- differs: truncate
-- upstream: nothing
-- here: error 42809: "q_orders" is not a table
truncate pgmq.q_orders, public.mine restart identity;
