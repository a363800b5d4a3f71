-- scenario: p13 a row trigger calls a function for each message
create function public.call_out() returns trigger language plpgsql as $$ begin perform pg_notify('called', new.msg_id::text); return new; end $$;
-- differs: row triggers
-- upstream: nothing
-- here: error 42809: "q_orders" is a view
create trigger call_out after insert on pgmq.q_orders for each row execute function public.call_out();
select pgmq.send('orders', '1');

-- scenario: p14 a row trigger copies each message into a table
create table public.job (msg_id bigint, message jsonb);
create function public.copy_job() returns trigger language plpgsql as $$ begin insert into public.job values (new.msg_id, new.message); return null; end $$;
-- differs: row triggers
-- upstream: nothing
-- here: error 42809: "q_orders" is a view
create trigger copy_job after insert on pgmq.q_orders for each row execute function public.copy_job();
select pgmq.send('orders', '1');
-- differs: row triggers
-- upstream: 1 | 1
-- here: nothing
select * from public.job;

-- scenario: p15 a row trigger notifies
create function public.tell() returns trigger language plpgsql as $$ begin perform pg_notify('orders', ''); return null; end $$;
-- differs: row triggers
-- upstream: nothing
-- here: error 42809: "q_orders" is a view
create trigger tell after insert on pgmq.q_orders for each row when (new.message is not null) execute function public.tell();

-- scenario: p16 a statement trigger wakes a worker
create table public.woken (n int);
create function public.wake() returns trigger language plpgsql as $$ begin insert into public.woken values (1); return null; end $$;
create trigger wake after insert on pgmq.q_orders for each statement execute function public.wake();
select pgmq.send('orders', '1');
-- differs: statement triggers
-- upstream: 1
-- here: 0
select count(*) from public.woken;

-- scenario: p17 a statement trigger guards a frozen queue
select pgmq.send('orders', '1');
create function public.refuse_all() returns trigger language plpgsql as $$ begin raise exception 'queue is frozen'; end $$;
create trigger frozen before update or delete on pgmq.q_orders for each statement execute function public.refuse_all();
-- differs: statement triggers
-- upstream: error P0001: queue is frozen
-- here: 1
select msg_id from pgmq.read('orders', 30, 1);

-- scenario: p18 a test lets every send fail by a row trigger
create function public.fail() returns trigger language plpgsql as $$ begin raise exception 'injected'; end $$;
-- differs: row triggers
-- upstream: nothing
-- here: error 42809: "q_orders" is a view
create trigger fail before insert on pgmq.q_orders for each row execute function public.fail();
-- differs: row triggers
-- upstream: error P0001: injected
-- here: 1
select pgmq.send('orders', '1');

-- scenario: p19 a row trigger delays every message
create function public.delay() returns trigger language plpgsql as $$ begin new.vt := new.vt + interval '1 hour'; return new; end $$;
-- differs: row triggers
-- upstream: nothing
-- here: error 42809: "q_orders" is a view
create trigger delay before insert on pgmq.q_orders for each row execute function public.delay();
select pgmq.send('orders', '1');
-- differs: row triggers
-- upstream: 0
-- here: 1
select count(*) from pgmq.read('orders', 30, 1);

-- scenario: p20 a row trigger on the archive
create table public.done (msg_id bigint);
create function public.note() returns trigger language plpgsql as $$ begin insert into public.done values (new.msg_id); return new; end $$;
create trigger note after insert on pgmq.a_orders for each row execute function public.note();
select pgmq.send('orders', '1');
select pgmq.archive('orders', 1);
select * from public.done;

-- scenario: p21 triggers are switched off and on
-- differs: row triggers
-- upstream: nothing
-- here: error 42809: ALTER action DISABLE TRIGGER USER cannot be performed on relation "q_orders"
alter table pgmq.q_orders disable trigger user;
-- differs: row triggers
-- upstream: nothing
-- here: error 42809: ALTER action ENABLE TRIGGER USER cannot be performed on relation "q_orders"
alter table pgmq.q_orders enable trigger user;

-- scenario: p22 a trigger on the list of queues
create function public.created() returns trigger language plpgsql as $$ begin return new; end $$;
-- differs: meta, notify_insert_throttle
-- upstream: nothing
-- here: error 42809: "meta" is a view
create trigger created after insert on pgmq.meta for each row execute function public.created();
drop trigger if exists created on pgmq.meta;

-- scenario: p23 an event trigger on new tables of queues
create table public.made (name text);
create function public.note_table() returns event_trigger language plpgsql as $$ begin insert into public.made select object_identity from pg_event_trigger_ddl_commands() where object_identity ~ 'q_fresh$' and command_tag = 'CREATE TABLE'; end $$;
create event trigger note_table on ddl_command_end when tag in ('CREATE TABLE') execute function public.note_table();
select pgmq.create('fresh');
drop event trigger note_table;
-- differs: event triggers on CREATE TABLE
-- upstream: pgmq.q_fresh
-- here: nothing
select * from public.made;

-- scenario: p24 a trigger of a business table sends, and rolls back with it
create table public.purchase (id int);
create function public.enqueue() returns trigger language plpgsql as $$ begin perform pgmq.send('orders', to_jsonb(new)); return new; end $$;
create trigger enqueue after insert on public.purchase for each row execute function public.enqueue();
begin;
insert into public.purchase values (1);
rollback;
insert into public.purchase values (2);
select message from pgmq.read('orders', 30, 10);
