-- The grouped reads of PGMQ, over ordered groups (group.sql).

create or replace function spanmq.read_groups(queue_name text, vt int, qty int, mode text) returns setof pgmq.message_record
language plpgsql as $$
declare
    this spanmq.queue := spanmq.find_queue(queue_name, 'update');
    at_ timestamptz := clock_timestamp();
    until timestamptz;
    one pgmq.leased_message;
    runs spanmq.run[];
begin
    perform spanmq.check_quantity(qty);
    until := spanmq.after(vt, 'vt');
    if qty = 1 and this.is_plain and this.max_attempts is null and not this.is_unlogged then
        one := spanmq.lease_head(this.queue_id, spanmq.new_lease(at_), until, at_);
        if one.enqueued_at is not null then
            return next (one.msg_id, one.read_ct, one.enqueued_at, at_, until, one.message, one.headers)::pgmq.message_record;
            return;
        elsif one.msg_id is not null then
            perform spanmq.settle_missing(this, array[(one.msg_id, 1, null, 0, 0, null, null, null, null, null)::spanmq.run]);
        end if;
    end if;
    if this.max_attempts is not null or this.uses_limits then
        runs := spanmq.claim_screened(this, qty, spanmq.new_lease(at_), until, at_, 1, null, mode);
    else
        runs := spanmq.claim_special(this, qty, spanmq.new_lease(at_), until, at_, 1, null, mode);
    end if;
    return query select * from spanmq.fetch(this.queue_id, runs, 1, at_, until, mode <> 'rr');
end $$;

-- Leases up to qty messages, filling up from the oldest group first. Raises MQ003 outside READ COMMITTED.
create or replace function pgmq.read_grouped(queue_name text, vt integer, qty integer) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
begin
    return query select * from spanmq.read_groups(queue_name, vt, qty, 'fill');
end $$;

-- Leases up to qty messages, one of each group in turn.
create or replace function pgmq.read_grouped_rr(queue_name text, vt integer, qty integer) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
begin
    return query select * from spanmq.read_groups(queue_name, vt, qty, 'rr');
end $$;

-- Leases the first message of up to qty groups.
create or replace function pgmq.read_grouped_head(queue_name text, vt integer, qty integer) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
begin
    return query select * from spanmq.read_groups(queue_name, vt, qty, 'head');
end $$;

create or replace function pgmq.read_grouped_with_poll(
    queue_name text, vt integer, qty integer, max_poll_seconds integer default 5, poll_interval_ms integer default 100
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    stop_at timestamptz := spanmq.after(max_poll_seconds, 'max_poll_seconds');
begin
    while clock_timestamp() < stop_at loop
        return query select * from pgmq.read_grouped(queue_name, vt, qty);
        exit when found;
        perform pg_sleep(spanmq.poll_pause(poll_interval_ms));
    end loop;
end $$;

create or replace function pgmq.read_grouped_rr_with_poll(
    queue_name text, vt integer, qty integer, max_poll_seconds integer default 5, poll_interval_ms integer default 100
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    stop_at timestamptz := spanmq.after(max_poll_seconds, 'max_poll_seconds');
begin
    while clock_timestamp() < stop_at loop
        return query select * from pgmq.read_grouped_rr(queue_name, vt, qty);
        exit when found;
        perform pg_sleep(spanmq.poll_pause(poll_interval_ms));
    end loop;
end $$;

create or replace function pgmq.read_grouped_head_with_poll(
    queue_name text, vt integer, qty integer, max_poll_seconds integer default 5, poll_interval_ms integer default 100
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    stop_at timestamptz := spanmq.after(max_poll_seconds, 'max_poll_seconds');
begin
    while clock_timestamp() < stop_at loop
        return query select * from pgmq.read_grouped_head(queue_name, vt, qty);
        exit when found;
        perform pg_sleep(spanmq.poll_pause(poll_interval_ms));
    end loop;
end $$;
