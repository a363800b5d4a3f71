-- scenario: p01 row-level security is enabled on a queue and its archive
-- differs: row-level security, policies
-- upstream: nothing
-- here: error 42809: ALTER action ENABLE ROW SECURITY cannot be performed on relation "q_orders"
alter table pgmq.q_orders enable row level security;
alter table pgmq.a_orders enable row level security;

-- scenario: p02 a block creates a queue and enables row-level security on it
-- differs: row-level security, policies
-- upstream: nothing
-- here: error 42809: ALTER action ENABLE ROW SECURITY cannot be performed on relation "q_secured"
do $$ begin perform pgmq.create('secured'); alter table pgmq.q_secured enable row level security; end $$;
-- differs: row-level security, policies
-- upstream: 1
-- here: 0
select count(*) from pgmq.list_queues() where queue_name = 'secured';

-- scenario: p03 a policy opens a queue to one role
-- differs: row-level security, policies
-- upstream: nothing
-- here: error 42809: "q_orders" is not a table
create policy workers on pgmq.q_orders for all to pattern_role using (true) with check (true);

-- scenario: p04 a policy shows a role its own messages only
grant usage on schema pgmq to pattern_role;
grant all on all tables in schema pgmq to pattern_role;
-- differs: row-level security, policies
-- upstream: nothing
-- here: error 42809: ALTER action ENABLE ROW SECURITY cannot be performed on relation "q_orders"
alter table pgmq.q_orders enable row level security;
-- differs: row-level security, policies
-- upstream: nothing
-- here: error 42809: "q_orders" is not a table
create policy own on pgmq.q_orders using (message->>'tenant' = current_user);
select pgmq.send_batch('orders', array['{"tenant": "pattern_role"}', '{"tenant": "other"}']::jsonb[]);
set role pattern_role;
-- differs: row-level security, policies
-- upstream: {"tenant": "pattern_role"}
-- here: {"tenant": "other"}
-- here: {"tenant": "pattern_role"}
select message from pgmq.read('orders', 30, 10);
reset role;

-- scenario: p05 a role gets all tables, sequences and functions, and works
grant usage on schema pgmq to pattern_role;
grant all on all tables in schema pgmq to pattern_role;
grant all on all sequences in schema pgmq to pattern_role;
grant execute on all functions in schema pgmq to pattern_role;
set role pattern_role;
select pgmq.send('orders', '1');
select msg_id from pgmq.read('orders', 30, 1);
select pgmq.archive('orders', 1);
reset role;

-- scenario: p06 default privileges come first, and the queue later
grant usage on schema pgmq to pattern_role;
alter default privileges in schema pgmq grant all on tables to pattern_role;
alter default privileges in schema pgmq grant all on sequences to pattern_role;
grant execute on all functions in schema pgmq to pattern_role;
grant all on all tables in schema pgmq to pattern_role;
select pgmq.create('later');
set role pattern_role;
select pgmq.send('later', '1');
select msg_id from pgmq.read('later', 30, 1);
select pgmq.delete('later', 1);
reset role;
alter default privileges in schema pgmq revoke all on tables from pattern_role;
alter default privileges in schema pgmq revoke all on sequences from pattern_role;

-- scenario: p07 a sender inserts, a worker reads and archives, by least privileges
grant usage on schema pgmq to pattern_role, pattern_other;
grant execute on all functions in schema pgmq to pattern_role, pattern_other;
grant select, insert on pgmq.q_orders to pattern_role;
grant usage on sequence pgmq.q_orders_msg_id_seq to pattern_role;
grant select, update, delete on pgmq.q_orders to pattern_other;
grant select, insert on pgmq.a_orders to pattern_other;
set role pattern_role;
select pgmq.send('orders', '1');
set role pattern_other;
select msg_id from pgmq.read('orders', 30, 1);
select pgmq.archive('orders', 1);
reset role;

-- scenario: p08 a role without grants may do nothing
grant usage on schema pgmq to pattern_role;
revoke all on pgmq.q_orders from public, pattern_role;
set role pattern_role;
select has_table_privilege('pgmq.q_orders', 'select, insert, update, delete');
do $$ begin perform pgmq.send('orders', '1'); exception when insufficient_privilege or undefined_table then raise warning 'refused'; end $$;
reset role;

-- scenario: p09 a function of the owner sends for a role without grants
create function public.enqueue(body jsonb) returns bigint language sql security definer set search_path = '' as $$ select pgmq.send('orders', body) $$;
grant execute on function public.enqueue to pattern_role;
set role pattern_role;
select public.enqueue('{"a": 1}');
reset role;
select message from pgmq.read('orders', 30, 1);
drop function public.enqueue;

-- scenario: p10 a wrapper with the caller's rights, and grants on the tables
grant usage on schema pgmq to pattern_role;
grant all on all tables in schema pgmq to pattern_role;
grant all on all sequences in schema pgmq to pattern_role;
create function public.enqueue(body jsonb) returns bigint language sql as $$ select pgmq.send('orders', body) $$;
set role pattern_role;
select public.enqueue('{"a": 1}');
select pgmq.pop('orders') is not null;
reset role;
drop function public.enqueue;

-- scenario: p11 a dump's grants of trigger, references and truncate
grant select, insert, references, delete, trigger, truncate, update on table pgmq.q_orders to pattern_role;

-- scenario: p12 a linter looks for readable tables without row-level security
grant select on pgmq.q_orders to pattern_role;
-- differs: row-level security, policies
-- upstream: q_orders
-- here: nothing
select relname from pg_class where relnamespace = 'pgmq'::regnamespace and relkind = 'r' and not relrowsecurity and relname = 'q_orders' and has_table_privilege('pattern_role', oid, 'select');
