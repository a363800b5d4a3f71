-- scenario: p61 the planner finds a message by its id
select pgmq.send('orders', '1');
select message from pgmq.q_orders where msg_id = 1;

-- scenario: p62 an index on a part of the body
-- differs: indexes, constraints
-- upstream: nothing
-- here: error 42809: cannot create index on relation "q_orders"
create index on pgmq.q_orders ((message->>'jobId'));

-- scenario: p63 a unique index against duplicates
-- differs: indexes, constraints
-- upstream: nothing
-- here: error 42809: cannot create index on relation "q_orders"
create unique index one_key on pgmq.q_orders ((message->>'key'));
select pgmq.send('orders', '{"key": 1}');
-- differs: indexes, constraints
-- upstream: error 23505: duplicate key value violates unique constraint "one_key"
-- here: 2
select pgmq.send('orders', '{"key": 1}');

-- scenario: p64 a foreign key to messages
-- differs: foreign keys
-- upstream: nothing
-- here: error 42809: referenced relation "q_orders" is not a table
create table public.follow_up (msg_id bigint references pgmq.q_orders (msg_id));

-- scenario: p65 a missing column is added
-- differs: storage parameters, columns, table options
-- upstream: nothing
-- here: error 42809: ALTER action ADD COLUMN cannot be performed on relation "q_orders"
alter table pgmq.q_orders add column if not exists headers jsonb;

-- scenario: p66 a missing column is added after a look
do $$ begin if not exists (select from information_schema.columns where table_schema = 'pgmq' and table_name = 'q_orders' and column_name = 'headers') then alter table pgmq.q_orders add column headers jsonb; end if; end $$;

-- scenario: p67 the owner is set
alter table pgmq.q_orders owner to current_user;

-- scenario: p68 a comment on the table
-- differs: comments
-- upstream: nothing
-- here: error 42809: "q_orders" is not a table
comment on table pgmq.q_orders is 'orders to pack';

-- scenario: p69 storage parameters
-- differs: storage parameters, columns, table options
-- upstream: nothing
-- here: error 22023: unrecognized parameter "fillfactor"
alter table pgmq.q_orders set (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01);

-- scenario: p70 a publication of a queue
set client_min_messages = error;
-- differs: publications, replica identity
-- upstream: nothing
-- here: error 22023: cannot add relation "q_orders" to publication
create publication of_orders for table pgmq.q_orders;
drop publication if exists of_orders;
reset client_min_messages;

-- scenario: p71 a publication of all tables contains the queue
set client_min_messages = error;
create publication of_all for all tables;
-- differs: publications, replica identity
-- upstream: q_orders
-- here: nothing
select tablename from pg_publication_tables where pubname = 'of_all' and schemaname = 'pgmq' and tablename = 'q_orders';
drop publication of_all;
reset client_min_messages;

-- scenario: p72 the table is dropped
-- differs: drop table
-- upstream: nothing
-- here: error 42809: "q_orders" is not a table
drop table pgmq.q_orders cascade;

-- scenario: p73 drop and create again
do $$ begin perform pgmq.drop_queue('orders'); perform pgmq.drop_queue('orders'); exception when others then raise warning 'failed: %', sqlstate; end $$;
select pgmq.create('orders');
select pgmq.send('orders', '1');

-- scenario: p74 the sequence of ids is set through its column
-- differs: catalogue
-- upstream: 9007199254740991
-- here: null
select setval(pg_get_serial_sequence('pgmq.q_orders', 'msg_id'), 9007199254740991);
-- differs: catalogue
-- upstream: 9007199254740992
-- here: 1
select pgmq.send('orders', '1');

-- scenario: p75 an id is drawn through the column
-- differs: catalogue
-- upstream: 1
-- here: null
select nextval(pg_get_serial_sequence('pgmq.q_orders', 'msg_id'));

-- scenario: p76 the sequence by its name
select pgmq.send('orders', '1');
select last_value, is_called from pgmq.q_orders_msg_id_seq;
revoke all on sequence pgmq.q_orders_msg_id_seq from pattern_role;

-- scenario: p77 a queue is created where its table is missing
do $$ begin if to_regclass('pgmq.q_fresh') is null then perform pgmq.create('fresh'); end if; end $$;
select to_regclass('pgmq.q_fresh') is not null;

-- scenario: p78 information_schema.tables
select count(*) from information_schema.tables where table_schema = 'pgmq' and table_name = 'q_orders';
-- differs: catalogue
-- upstream: BASE TABLE
-- here: VIEW
select table_type from information_schema.tables where table_schema = 'pgmq' and table_name = 'q_orders';

-- scenario: p79 pg_tables
-- differs: catalogue
-- upstream: q_orders
-- here: nothing
select tablename from pg_tables where schemaname = 'pgmq' and tablename = 'q_orders';

-- scenario: p80 a loop over the tables of all queues
-- differs: catalogue
-- upstream: q_orders
-- here: nothing
select relname from pg_class where relnamespace = 'pgmq'::regnamespace and relkind = 'r' and relname like 'q\_%';

-- scenario: p81 PGMQ is installed unless pg_tables has its list
-- differs: catalogue
-- upstream: 1
-- here: 0
select count(*) from pg_tables where schemaname = 'pgmq' and tablename = 'meta';

-- scenario: p82 the index of create_fifo_index
select pgmq.send('orders', '1');
select pgmq.create_fifo_index('orders');
-- differs: catalogue
-- upstream: 1
-- here: 0
select count(*) from pg_indexes where schemaname = 'pgmq' and indexname = 'q_orders_fifo_idx';

-- scenario: p83 sizes and statistics
select pgmq.send('orders', '1');
-- differs: vacuum, analyze, sizes
-- upstream: true
-- here: false
select pg_total_relation_size('pgmq.q_orders') > 0;

-- scenario: p84 the version of the extension
select extversion from pg_extension where extname = 'pgmq';
select extversion::text >= '1.5' from pg_extension where extname = 'pgmq';

-- scenario: p85 a migration creates the extension
create extension if not exists pgmq;
create extension if not exists pgmq cascade;
create extension if not exists pgmq with schema pgmq;
select pgmq.send('orders', '1');

-- scenario: p86 the extension is dropped and created again
set client_min_messages = error;
begin;
drop extension if exists pgmq cascade;
create extension pgmq;
rollback;
reset client_min_messages;

-- scenario: p87 the schema is dropped
set client_min_messages = error;
begin;
drop schema pgmq cascade;
select to_regnamespace('pgmq') is null;
rollback;
reset client_min_messages;

-- scenario: p88 the list of queues
select queue_name, is_partitioned, is_unlogged from pgmq.meta;
select exists (select 1 from pgmq.meta where queue_name = 'orders');
select pgmq.purge_queue(queue_name::text) from pgmq.meta;

-- scenario: p89 the list of queues is repaired
-- differs: meta, notify_insert_throttle
-- upstream: nothing
-- here: error MQ004: INSERT of meta is not possible: it shows what the functions do
insert into pgmq.meta (queue_name, is_partitioned, is_unlogged, created_at) values ('orders', false, false, now()) on conflict do nothing;

-- scenario: p90 functions of one's own in the schema
create function pgmq.revive(queue text, id bigint) returns bigint language sql as $$ select pgmq.send(queue, '"again"') $$;
create function pgmq.send(queue_name text, msg text) returns setof bigint language sql as $$ select * from pgmq.send(queue_name, to_jsonb(msg)) $$;
select pgmq.revive('orders', 1);
drop function pgmq.revive(text, bigint);
drop function pgmq.send(text, text);

-- scenario: p91 private functions
select pgmq.format_table_name('orders', 'q');
-- differs: private functions
-- upstream: false
-- here: error 42883: function pgmq._belongs_to_pgmq(unknown) does not exist
select pgmq._belongs_to_pgmq('q_orders');

-- scenario: p92 PGMQ's row type in functions of one's own
select pgmq.send('orders', '1');
create function public.next_order() returns setof pgmq.message_record language sql as $$ select * from pgmq.read('orders', 30, 1) $$;
select msg_id, read_ct, message from public.next_order();
select (r).msg_id from (select row(m.*)::pgmq.message_record as r from pgmq.pop('orders') m) x;
drop function public.next_order;

-- scenario: p93 a job moves messages by SQL
select pgmq.create('orders');
select pgmq.create('later');
select pgmq.send_batch('orders', array['1', '2']::jsonb[]);
do $$ declare m record; begin for m in select * from pgmq.read('orders', 30, 10) loop perform pgmq.send('later', m.message); perform pgmq.delete('orders', m.msg_id); end loop; end $$;
select message from pgmq.q_later;

-- scenario: p94 partitions of a queue in the catalogue
select count(*) from pg_inherits where inhparent = 'pgmq.q_orders'::regclass;
-- differs: catalogue
-- upstream: true
-- here: false
select relkind in ('r', 'p') from pg_class where oid = 'pgmq.q_orders'::regclass;

-- scenario: p95 a reset deletes the rows of every table
select pgmq.send('orders', '1');
do $$ declare t record; begin for t in select table_name from information_schema.tables where table_schema = 'pgmq' and table_type = 'BASE TABLE' and table_name ~ '^[qa]_' loop execute format('delete from pgmq.%I', t.table_name); end loop; end $$;
-- differs: catalogue
-- upstream: 0
-- here: 1
select count(*) from pgmq.q_orders;

-- scenario: p96 rows are copied out and in
select pgmq.send('orders', '1');
-- differs: copy to
-- upstream: nothing
-- here: error 42809: cannot copy from view "q_orders"
copy pgmq.q_orders (msg_id, message) to '/dev/null';
copy pgmq.q_orders (vt, message) from program 'echo "2020-01-01 00:00:00+00,3"' (format csv);
select message from pgmq.q_orders;

-- scenario: p100 a message is sent once, by an advisory lock
insert into pgmq.q_orders (vt, message) values (now(), '{"key": "a"}') on conflict do nothing;
begin;
select pg_advisory_xact_lock(hashtext('a'));
select pgmq.send('orders', '{"key": "a"}') where not exists (select 1 from pgmq.q_orders where message->>'key' = 'a');
commit;
select count(*) from pgmq.q_orders;
