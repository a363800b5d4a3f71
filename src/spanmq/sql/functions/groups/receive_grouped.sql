-- The grouped reads of PGMQ, over ordered groups (group.sql): read_any() with a mode.

-- Leases up to qty messages, filling up from the oldest group first. Raises MQ003 outside READ COMMITTED.
create or replace function spanmq_call.read_grouped(queue_name text, vt integer, qty integer)
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
begin
    return query select * from spanmq_core.read_any(queue_name, vt, qty, '{}'::jsonb, 'fill');
end $$;

-- Leases up to qty messages, one of each group in turn.
create or replace function spanmq_call.read_grouped_rr(queue_name text, vt integer, qty integer)
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
begin
    return query select * from spanmq_core.read_any(queue_name, vt, qty, '{}'::jsonb, 'rr');
end $$;

-- Leases the first message of up to qty groups.
create or replace function spanmq_call.read_grouped_head(queue_name text, vt integer, qty integer)
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
begin
    return query select * from spanmq_core.read_any(queue_name, vt, qty, '{}'::jsonb, 'head');
end $$;

-- As read_grouped(), repeated until messages come or the time is over.
create or replace function spanmq_call.read_grouped_with_poll(
    queue_name text, vt integer, qty integer, max_poll_seconds integer default 5, poll_interval_ms integer default 100
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
begin
    return query select * from spanmq_core.poll(queue_name, vt, qty, '{}', 'fill', max_poll_seconds, poll_interval_ms);
end $$;

-- As read_grouped_rr(), repeated until messages come or the time is over.
create or replace function spanmq_call.read_grouped_rr_with_poll(
    queue_name text, vt integer, qty integer, max_poll_seconds integer default 5, poll_interval_ms integer default 100
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
begin
    return query select * from spanmq_core.poll(queue_name, vt, qty, '{}', 'rr', max_poll_seconds, poll_interval_ms);
end $$;

-- As read_grouped_head(), repeated until messages come or the time is over.
create or replace function spanmq_call.read_grouped_head_with_poll(
    queue_name text, vt integer, qty integer, max_poll_seconds integer default 5, poll_interval_ms integer default 100
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
begin
    return query select * from spanmq_core.poll(queue_name, vt, qty, '{}', 'head', max_poll_seconds, poll_interval_ms);
end $$;
