-- The grouped reads of PGMQ, over ordered groups (group.sql).

create or replace function spanmq_core.read_groups(queue_name text, vt int, qty int, mode text)
returns setof pgmq.message_record
language plpgsql as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue_name);
    at_ timestamptz := clock_timestamp();
    until timestamptz;
    ids bigint[];
    n int;
begin
    perform spanmq_core.check_quantity(qty);
    until := spanmq_core.after(vt, 'vt', at_);
    ids := spanmq_core.claim(this, qty, spanmq_core.new_lease(at_), until, at_, '{}'::jsonb, mode, false, null::int,
                             false);
    return query select * from spanmq_core.fetch(this.queue_id, ids, until, mode <> 'rr');
    get diagnostics n = row_count;
    if n < cardinality(ids) then
        perform spanmq_core.settle_missing(this, ids);
        if n = 0 then
            return query select * from spanmq_core.read_groups(queue_name, vt, qty, mode);
        end if;
    end if;
end $$;

-- Leases up to qty messages, filling up from the oldest group first. Raises MQ003 outside READ COMMITTED.
create or replace function spanmq_call.read_grouped(queue_name text, vt integer, qty integer)
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
begin
    return query select * from spanmq_core.read_groups(queue_name, vt, qty, 'fill');
end $$;

-- Leases up to qty messages, one of each group in turn.
create or replace function spanmq_call.read_grouped_rr(queue_name text, vt integer, qty integer)
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
begin
    return query select * from spanmq_core.read_groups(queue_name, vt, qty, 'rr');
end $$;

-- Leases the first message of up to qty groups.
create or replace function spanmq_call.read_grouped_head(queue_name text, vt integer, qty integer)
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
begin
    return query select * from spanmq_core.read_groups(queue_name, vt, qty, 'head');
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
