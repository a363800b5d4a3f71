-- Statements that public programs run on PGMQ's tables beside its functions, a scenario for each pattern. A difference is
-- named as in the table of docs/guides/pgmq.md, which says what to do instead.
-- scenario: row-level security and policies
-- differs: row-level security, policies
-- upstream: nothing
-- here: error 42809: ALTER action ENABLE ROW SECURITY cannot be performed on relation "q_orders"
alter table pgmq.q_orders enable row level security;
-- differs: row-level security, policies
-- upstream: nothing
-- here: error 42809: "q_orders" is not a table
create policy mine on pgmq.q_orders using (message->>'tenant' = current_user);
alter table pgmq.a_orders enable row level security;
select pgmq.send('orders', '1');
select pgmq.archive('orders', 1);

-- scenario: a row trigger on a queue
create table public.seen (msg_id bigint);
create function public.note_message() returns trigger language plpgsql as $$ begin insert into public.seen values (new.msg_id); return new; end $$;
-- differs: row triggers
-- upstream: nothing
-- here: error 42809: "q_orders" is a view
create trigger note after insert on pgmq.q_orders for each row execute function public.note_message();
select pgmq.send('orders', '1');
-- differs: row triggers
-- upstream: 1
-- here: nothing
select * from public.seen;
set client_min_messages = error;
drop function public.note_message cascade;
reset client_min_messages;
drop table public.seen;

-- scenario: a statement trigger on a queue
create table public.seen (what text);
create function public.note_statement() returns trigger language plpgsql as $$ begin insert into public.seen values (tg_op); return null; end $$;
create trigger note after insert or delete on pgmq.q_orders for each statement execute function public.note_statement();
insert into pgmq.q_orders (vt, message) values (now(), '1');
delete from pgmq.q_orders where msg_id = 1;
select * from public.seen;
select pgmq.send('orders', '2');
select pgmq.delete('orders', 2);
-- differs: statement triggers
-- upstream: DELETE
-- upstream: DELETE
-- upstream: INSERT
-- upstream: INSERT
-- here: DELETE
-- here: INSERT
select * from public.seen;
set client_min_messages = error;
drop function public.note_statement cascade;
reset client_min_messages;
drop table public.seen;

-- scenario: a row trigger on an archive
create table public.seen (msg_id bigint);
create function public.note_message() returns trigger language plpgsql as $$ begin insert into public.seen values (new.msg_id); return new; end $$;
create trigger note after insert on pgmq.a_orders for each row execute function public.note_message();
select pgmq.send_batch('orders', array['1', '2']::jsonb[]);
select pgmq.archive('orders', array[1, 2]);
select * from public.seen;
set client_min_messages = error;
drop function public.note_message cascade;
reset client_min_messages;
drop table public.seen;

-- scenario: indexes on a queue and on an archive
-- differs: indexes, constraints
-- upstream: nothing
-- here: error 42809: cannot create index on relation "q_orders"
create index on pgmq.q_orders ((message->>'customer'));
-- differs: indexes, constraints
-- upstream: nothing
-- here: error 42809: cannot create index on relation "q_orders"
create unique index on pgmq.q_orders ((message->>'key'));
-- differs: indexes, constraints
-- upstream: nothing
-- here: error 42809: ALTER action ADD CONSTRAINT cannot be performed on relation "q_orders"
alter table pgmq.q_orders add check (message is not null);
create index on pgmq.a_orders ((message->>'customer'));
-- differs: indexes, constraints
-- upstream: nothing
-- here: error 42809: "q_orders" is not a table or materialized view
reindex table pgmq.q_orders;

-- scenario: a unique index for deduplication
-- differs: indexes, constraints
-- upstream: nothing
-- here: error 42809: cannot create index on relation "q_orders"
create unique index one_key on pgmq.q_orders ((message->>'key'));
select pgmq.send('orders', '{"key": 1}');
-- differs: indexes, constraints
-- upstream: error 23505: duplicate key value violates unique constraint "one_key"
-- here: 2
select pgmq.send('orders', '{"key": 1}');

-- scenario: a foreign key to a queue
-- differs: foreign keys
-- upstream: nothing
-- here: error 42809: referenced relation "q_orders" is not a table
create table public.follow_up (msg_id bigint references pgmq.q_orders (msg_id));
drop table if exists public.follow_up;
create table public.late_follow_up (msg_id bigint references pgmq.a_orders (msg_id));
drop table public.late_follow_up;

-- scenario: a publication of a queue
set client_min_messages = error;
-- differs: publications, replica identity
-- upstream: nothing
-- here: error 22023: cannot add relation "q_orders" to publication
create publication of_orders for table pgmq.q_orders;
drop publication if exists of_orders;
create publication of_archive for table pgmq.a_orders;
drop publication of_archive;
-- differs: publications, replica identity
-- upstream: nothing
-- here: error 42809: ALTER action REPLICA IDENTITY cannot be performed on relation "q_orders"
alter table pgmq.q_orders replica identity full;
reset client_min_messages;

-- scenario: copy
select pgmq.send_batch('orders', array['1', '2']::jsonb[]);
-- differs: copy to
-- upstream: nothing
-- here: error 42809: cannot copy from view "q_orders"
copy pgmq.q_orders to '/dev/null';
copy (select * from pgmq.q_orders) to '/dev/null';
copy pgmq.q_orders (vt, message) from program 'echo "2020-01-01 00:00:00+00,3"' (format csv);
select msg_id, message from pgmq.read('orders', 100, 10);
copy pgmq.a_orders to '/dev/null';

-- scenario: truncate
select pgmq.send('orders', '1');
-- differs: truncate
-- upstream: nothing
-- here: error 42809: "q_orders" is not a table
truncate pgmq.q_orders;
-- differs: truncate
-- upstream: 0
-- here: 1
select count(*) from pgmq.q_orders;

-- scenario: storage parameters, vacuum, sizes
-- differs: storage parameters, columns, table options
-- upstream: nothing
-- here: error 22023: unrecognized parameter "autovacuum_vacuum_scale_factor"
alter table pgmq.q_orders set (autovacuum_vacuum_scale_factor = 0.01);
-- differs: storage parameters, columns, table options
-- upstream: nothing
-- here: error 22023: unrecognized parameter "fillfactor"
alter table pgmq.q_orders set (fillfactor = 70);
alter table pgmq.a_orders set (autovacuum_vacuum_scale_factor = 0.01, fillfactor = 70);
-- differs: storage parameters, columns, table options
-- upstream: nothing
-- here: error 42809: ALTER action SET UNLOGGED cannot be performed on relation "q_orders"
alter table pgmq.q_orders set unlogged;
-- differs: storage parameters, columns, table options
-- upstream: nothing
-- here: error 42809: ALTER action ADD COLUMN cannot be performed on relation "q_orders"
alter table pgmq.q_orders add column tenant text;
-- differs: vacuum, analyze, sizes
-- upstream: nothing
-- here: warning: skipping "q_orders" --- cannot vacuum non-tables or special system tables
vacuum pgmq.q_orders;
-- differs: vacuum, analyze, sizes
-- upstream: nothing
-- here: warning: skipping "q_orders" --- cannot analyze non-tables or special system tables
analyze pgmq.q_orders;
vacuum analyze pgmq.a_orders;
select pgmq.send('orders', '1');
-- differs: vacuum, analyze, sizes
-- upstream: true
-- here: false
select pg_total_relation_size('pgmq.q_orders') > 0;
select pg_total_relation_size('pgmq.a_orders') > 0;

-- scenario: comments
-- differs: comments
-- upstream: nothing
-- here: error 42809: "q_orders" is not a table
comment on table pgmq.q_orders is 'orders to pack';
comment on column pgmq.q_orders.message is 'an order';
comment on table pgmq.a_orders is 'orders packed';

-- scenario: columns of the system
select pgmq.send('orders', '1');
-- differs: ctid, xmin, xmax, tableoid
-- upstream: (0,1)
-- here: error 42703: column "ctid" does not exist
select ctid from pgmq.q_orders;
-- differs: ctid, xmin, xmax, tableoid
-- upstream: 0
-- here: error 42703: column "xmax" does not exist
select xmax from pgmq.q_orders;
-- differs: ctid, xmin, xmax, tableoid
-- upstream: nothing
-- here: error 42703: column "ctid" does not exist
delete from pgmq.q_orders where ctid in (select ctid from pgmq.q_orders limit 1);
-- differs: ctid, xmin, xmax, tableoid
-- upstream: nothing
-- here: error 42703: column "tableoid" does not exist
select tableoid::regclass from pgmq.q_orders;

-- scenario: locks on rows and tables
select pgmq.send_batch('orders', array['1', '2']::jsonb[]);
begin;
-- differs: for update, for share
-- upstream: 1
-- here: error 0A000: FOR UPDATE cannot be applied to the nullable side of an outer join
select msg_id from pgmq.q_orders where vt <= clock_timestamp() order by msg_id limit 1 for update skip locked;
rollback;
begin;
-- differs: for update, for share
-- upstream: 2
-- here: error 0A000: FOR SHARE cannot be applied to the nullable side of an outer join
select msg_id from pgmq.q_orders where msg_id = 2 for share;
rollback;
begin;
lock table pgmq.q_orders in access share mode;
rollback;

-- scenario: insert with a conflict clause
insert into pgmq.q_orders (vt, message) values (now(), '1') on conflict do nothing;
insert into pgmq.q_orders (vt, message) values (now(), '1'), (now(), '2') returning read_ct, message;

-- scenario: changes of a message
select pgmq.send('orders', '{"a": 1}', '{"h": 1}'::jsonb);
update pgmq.q_orders set message = message || '{"b": 2}' where msg_id = 1 returning message;
update pgmq.q_orders set headers = '{}' where msg_id = 1;
update pgmq.q_orders set read_ct = 5 where msg_id = 1;
update pgmq.q_orders set vt = now() + interval '1000 seconds' where msg_id = 1;

-- scenario: deletes and updates beside other tables
create table public.cancelled (id int);
insert into public.cancelled values (1), (3);
select pgmq.send_batch('orders', array['{"id": 1}', '{"id": 2}', '{"id": 3}', '{"id": 4}']::jsonb[]);
update pgmq.q_orders q set vt = now() + interval '500 seconds' from public.cancelled c where (q.message->>'id')::int = c.id returning q.msg_id;
delete from pgmq.q_orders q using public.cancelled c where (q.message->>'id')::int = c.id returning q.msg_id;
delete from pgmq.q_orders where msg_id in (select msg_id from pgmq.q_orders where message->>'id' = '2') returning msg_id;
with gone as (delete from pgmq.q_orders returning msg_id, message) select * from gone;
drop table public.cancelled;

-- scenario: messages move to another queue by SQL
select pgmq.create('others');
select pgmq.create('orders');
select pgmq.send_batch('orders', array['1', '2']::jsonb[]);
with moved as (delete from pgmq.q_orders returning message) insert into pgmq.q_others (vt, message) select now(), message from moved order by message::text;
select count(*) from pgmq.q_orders;
select message from pgmq.read('others', 100, 10);

-- scenario: objects over a queue
select pgmq.send_batch('orders', array['{"a": 1}', '{"a": 2}']::jsonb[]);
create view public.open_orders as select msg_id, message->>'a' as a from pgmq.q_orders;
select * from public.open_orders;
create function public.first_order() returns pgmq.q_orders language sql as $$ select * from pgmq.q_orders order by msg_id limit 1 $$;
select msg_id, message from public.first_order();
create table public.saved as select * from pgmq.q_orders;
select msg_id, message from public.saved;
create materialized view public.counted as select count(*) from pgmq.q_orders;
select * from public.counted;
drop materialized view public.counted;
drop table public.saved;
drop function public.first_order;
drop view public.open_orders;
-- differs: inheritance, partitions, rules
-- upstream: nothing
-- here: error 42809: inherited relation "q_orders" is not a table or foreign table
create table public.more_orders () inherits (pgmq.q_orders);
drop table if exists public.more_orders;

-- scenario: the sequence of ids
select nextval('pgmq.q_orders_msg_id_seq');
select pgmq.send('orders', '1');
select setval('pgmq.q_orders_msg_id_seq', 50);
select pgmq.send('orders', '2');
-- differs: catalogue
-- upstream: pgmq.q_orders_msg_id_seq
-- here: null
select pg_get_serial_sequence('pgmq.q_orders', 'msg_id');

-- scenario: look-ups in the catalogue
-- differs: catalogue
-- upstream: a_orders
-- upstream: meta
-- upstream: q_orders
-- here: a_orders
select tablename from pg_tables where schemaname = 'pgmq' and tablename in ('q_orders', 'a_orders', 'meta');
-- differs: catalogue
-- upstream: BASE TABLE
-- here: VIEW
select table_type from information_schema.tables where table_schema = 'pgmq' and table_name = 'q_orders';
-- differs: catalogue
-- upstream: 2
-- here: 0
select count(*) from pg_indexes where schemaname = 'pgmq' and tablename = 'q_orders';
-- differs: catalogue
-- upstream: q_orders
-- here: nothing
select relname from pg_stat_user_tables where schemaname = 'pgmq' and relname = 'q_orders';
-- differs: catalogue
-- upstream: 0
-- here: 2
select count(*) from pg_trigger where tgrelid = 'pgmq.q_orders'::regclass;
-- differs: catalogue
-- upstream: r
-- here: v
select relkind from pg_class where oid = 'pgmq.q_orders'::regclass;
select to_regclass('pgmq.q_orders') is not null, to_regclass('pgmq.a_orders') is not null, to_regclass('pgmq.q_none') is null;
select column_name from information_schema.columns where table_schema = 'pgmq' and table_name = 'q_orders';
select exists (select from pg_proc where pronamespace = 'pgmq'::regnamespace and proname = 'read_with_poll');
select has_table_privilege('pgmq.q_orders', 'select');

-- scenario: lists that functions change
-- differs: meta, notify_insert_throttle
-- upstream: nothing
-- here: error MQ004: UPDATE of meta is not possible: it shows what the functions do
update pgmq.meta set is_unlogged = true where queue_name = 'orders';
delete from pgmq.meta where queue_name = 'none';
-- differs: meta, notify_insert_throttle
-- upstream: nothing
-- here: error MQ004: INSERT of notify_insert_throttle is not possible: it shows what the functions do
insert into pgmq.notify_insert_throttle (queue_name, throttle_interval_ms) values ('orders', 5);
select queue_name from pgmq.meta;
insert into pgmq.topic_bindings (pattern, queue_name) values ('a.*', 'orders');
select pgmq.send_topic('a.b', '1');
delete from pgmq.topic_bindings where queue_name = 'orders' returning pattern;
select pgmq.send_topic('a.b', '1');

-- scenario: the owner drops or renames a table
alter table pgmq.q_orders rename to q_renamed;
alter table pgmq.q_renamed rename to q_orders;
-- differs: drop table
-- upstream: nothing
-- here: error 42809: "q_orders" is not a table
drop table pgmq.q_orders;
-- differs: drop table
-- upstream: error 42P01: relation "pgmq.q_orders" does not exist
-- here: 1
select pgmq.send('orders', '1');
select pgmq.create('orders');

-- scenario: counts and extremes
select pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select count(*), max(msg_id), min(msg_id), min(enqueued_at) <= now(), sum(read_ct) from pgmq.q_orders;
select count(*) filter (where vt > now()), count(*) filter (where read_ct > 0) from pgmq.q_orders;
-- in order
select msg_id from pgmq.q_orders order by msg_id desc limit 2;
select msg_id from pgmq.q_orders where vt <= clock_timestamp() and read_ct < 5;
select extract(epoch from now() - min(enqueued_at)) < 1000 from pgmq.q_orders;
