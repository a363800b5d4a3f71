-- scenario: p48 messages are counted by state
select pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select count(*) from pgmq.read('orders', 1000, 1);
select count(*), count(*) filter (where vt <= now()), count(*) filter (where vt > now()), max(read_ct) from pgmq.q_orders;

-- scenario: p49 a queue is joined with a table by id
create table public.job (msg_id bigint, name text);
insert into public.job values (1, 'a'), (3, 'c');
select pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select j.name, q.message from pgmq.q_orders q join public.job j using (msg_id);

-- scenario: p50 a send looks first whether the message is there
select pgmq.send('orders', '{"key": "a"}') where not exists (select 1 from pgmq.q_orders where message->>'key' = 'a');
select pgmq.send('orders', '{"key": "a"}') where not exists (select 1 from pgmq.q_orders where message->>'key' = 'a');

-- scenario: p51 a queue and its archive together
select pgmq.send_batch('orders', array['1', '2']::jsonb[]);
select pgmq.archive('orders', 1);
select msg_id, message from pgmq.q_orders union all select msg_id, message from pgmq.a_orders;

-- scenario: p52 a view over a queue
select pgmq.send('orders', '{"a": 1}');
create view public.open_orders as select msg_id, message->'a' as a, now() - enqueued_at < interval '1 hour' as is_new from pgmq.q_orders;
select * from public.open_orders;
drop view public.open_orders;

-- scenario: p53 a queue is dropped that a view needs
create view public.open_orders as select msg_id from pgmq.q_orders;
select pgmq.drop_queue('orders');
drop view public.open_orders;
select pgmq.drop_queue('orders');

-- scenario: p54 workers hold messages by row locks
select pgmq.send_batch('orders', array['1', '2']::jsonb[]);
begin;
-- differs: for update, for share
-- upstream: 1
-- here: error 0A000: FOR UPDATE cannot be applied to the nullable side of an outer join
select msg_id from pgmq.q_orders order by msg_id limit 1 for update skip locked;
-- differs: for update, for share
-- upstream: 2
-- here: 1
-- session: other
select msg_id from pgmq.read('orders', 0, 1);
rollback;

-- scenario: p55 a locked message is not deleted by another session
select pgmq.send('orders', '1');
begin;
-- differs: for update, for share
-- upstream: 1
-- here: error 0A000: FOR UPDATE cannot be applied to the nullable side of an outer join
select msg_id from pgmq.q_orders where msg_id = 1 for update;
-- differs: for update, for share
-- upstream: error 55P03: canceling statement due to lock timeout
-- here: true
-- session: other
select pgmq.delete('orders', 1);
rollback;

-- scenario: p56 a locked table keeps senders out
begin;
lock table pgmq.q_orders in share row exclusive mode;
-- session: other
select pgmq.send('orders', '1');
rollback;

-- scenario: p57 a lock on the list of queues keeps new ones out
begin;
lock table pgmq.meta in share row exclusive mode;
-- session: other
select pgmq.create('others');
rollback;

-- scenario: p58 whole rows
select pgmq.send('orders', '{"a": 1}');
select to_jsonb(q) - 'enqueued_at' - 'vt' from pgmq.q_orders q;
create function public.first_order() returns pgmq.q_orders language plpgsql as $$ declare r pgmq.q_orders; begin select * into r from pgmq.q_orders order by msg_id limit 1; return r; end $$;
select msg_id, message from public.first_order();
drop function public.first_order;

-- scenario: p59 a table like a queue
create table public.copied (like pgmq.q_orders including all);
-- differs: inheritance, partitions, rules
-- upstream: 2
-- here: 0
select count(*) from pg_indexes where tablename = 'copied';

-- scenario: p60 columns of the system
select pgmq.send('orders', '1');
-- differs: ctid, xmin, xmax, tableoid
-- upstream: true | pgmq.q_orders
-- here: error 42703: column "xmin" does not exist
select xmin is not null, tableoid::regclass from pgmq.q_orders;

-- scenario: p98 workers in open transactions read from one batch
select pgmq.send_batch('orders', array['1', '2']::jsonb[]);
begin;
select msg_id from pgmq.read('orders', 30, 1);
-- session: other
select msg_id from pgmq.read('orders', 30, 1);
commit;

-- scenario: p99 workers in open transactions, messages sent one by one
select pgmq.send('orders', '1');
select pgmq.send('orders', '2');
begin;
select msg_id from pgmq.pop('orders');
-- session: other
select msg_id from pgmq.pop('orders');
commit;

-- scenario: p97 fixtures look at a queue after each call
select pgmq.send('orders', '1');
select vt > clock_timestamp() from pgmq.read('orders', 1000, 1);
select read_ct, vt from pgmq.q_orders;
select pgmq.archive('orders', 1);
select count(*) from pgmq.q_orders;
