-- Receiving: read and pop as in PGMQ, receive with a fencing token.

create or replace function spanmq.new_lease(at_ timestamptz) returns bigint
language sql volatile as $$
    -- Time first: a lease number that a crash lost (claims may be committed asynchronously) must not come again.
    select (extract(epoch from at_) * 1000)::bigint << 20 | (nextval('spanmq.lease_number') & 1048575)
$$;

-- Leases up to qty visible messages for vt seconds, lowest ids first, and returns them in that order.
-- `conditional`: only messages that contain it (message @> conditional), which looks at every visible message before them.
create or replace function pgmq.read(queue_name text, vt integer, qty integer, conditional jsonb default '{}')
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    this spanmq.queue := spanmq.find_queue(queue_name, 'update');
    at_ timestamptz := clock_timestamp();
    until timestamptz := at_ + make_interval(secs => vt);
    runs spanmq.run[];
    range spanmq.run;
    n int;
begin
    if qty is null or qty < 0 or until is null then
        perform spanmq.check_quantity(qty), spanmq.after(vt, 'vt');
    end if;
    if conditional <> '{}' then
        runs := spanmq.claim_matching_of(this, qty, spanmq.new_lease(at_), until, at_, conditional);
    elsif this.is_unlogged then
        runs := spanmq.claim_unlogged(this.queue_id, qty, spanmq.new_lease(at_), until, at_, 1);
    else
        runs := spanmq.claim(this.queue_id, qty, spanmq.new_lease(at_), until, at_, 1);
    end if;
    range := case when cardinality(runs) = 1 and (runs[1]).ids is null then runs[1] else spanmq.as_range(runs, false) end;
    if range.n > 0 then
        -- The usual case: without another copy of the messages.
        return query execute spanmq.fetch_range(this.queue_id, range.lo, range.lo + range.n - 1)
            using range.lo, range.lo + range.n, range.attempts + 1, at_, until;
        get diagnostics n = row_count;
        if n = range.n then
            return;
        end if;
    elsif runs <> '{}' then
        return query select * from spanmq.fetch(this.queue_id, runs, 1, at_, until, true);
        get diagnostics n = row_count;
    end if;
    if n < (select sum(r.n) from unnest(runs) r) then
        perform spanmq.settle_missing(this, runs);
        if n = 0 then
            return query select * from pgmq.read(queue_name, vt, qty, conditional);
        end if;
    end if;
end $$;

create or replace function spanmq.claim_matching_of(
    this spanmq.queue, quantity int, lease bigint, until timestamptz, at_ timestamptz, conditional jsonb
) returns spanmq.run[]
language plpgsql as $$
begin
    if this.is_unlogged then
        return spanmq.claim_matching_unlogged(this.queue_id, quantity, lease, until, at_, conditional);
    end if;
    return spanmq.claim_matching(this.queue_id, quantity, lease, until, at_, conditional);
end $$;

-- Takes up to qty visible messages out of the queue for good and returns them.
create or replace function pgmq.pop(queue_name text, qty integer default 1) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    this spanmq.queue := spanmq.find_queue(queue_name, 'delete');
    at_ timestamptz := clock_timestamp();
    runs spanmq.run[];
begin
    perform spanmq.check_quantity(qty);
    if this.is_unlogged then
        runs := spanmq.claim_unlogged(this.queue_id, qty, null, null, at_, 1);
    else
        runs := spanmq.claim(this.queue_id, qty, null, null, at_, 1);
    end if;
    return query select * from spanmq.fetch(this.queue_id, runs, 0, null, null, true);
    if not found and runs <> '{}' then
        perform spanmq.settle_missing(this, runs);
        return query select * from pgmq.pop(queue_name, qty);
    end if;
end $$;

-- Leases up to qty visible messages for `lease` seconds, lowest ids first, and returns them in that order. All carry one
-- lease_id, the token without which ack() settles nothing. A slot is what one transaction will settle: with `slots` = 1 the
-- whole batch, with as many slots as concurrent handlers each its share.
create or replace function pgmq.receive(queue text, qty integer default 1, lease double precision default 30, slots integer default 1)
returns setof pgmq.leased_message
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    this spanmq.queue := spanmq.find_queue(queue, 'update');
    at_ timestamptz := clock_timestamp();
    until timestamptz := at_ + make_interval(secs => least(lease, 3e9));
    lease_id bigint := spanmq.new_lease(at_);
    runs spanmq.run[];
    range spanmq.run;
    n int;
begin
    if qty is null or qty < 0 or slots is null or slots < 1 or until is null or lease > 3e9 or lease < -3e9 then
        perform spanmq.check_quantity(qty), spanmq.after(lease, 'lease');
        raise exception 'slots must be at least 1, got: %', slots using errcode = 'MQ002';
    end if;
    if this.is_unlogged then
        runs := spanmq.claim_unlogged(this.queue_id, qty, lease_id, until, at_, slots);
    else
        runs := spanmq.claim(this.queue_id, qty, lease_id, until, at_, slots);
    end if;
    if slots = 1 then
        range := case when cardinality(runs) = 1 and (runs[1]).ids is null then runs[1] else spanmq.as_range(runs, false) end;
    end if;
    if range.n > 0 then
        -- The usual case: without another copy of the messages.
        return query execute spanmq.fetch_range(this.queue_id, range.lo, range.lo + range.n - 1, ', $6, 1, $3, headers->>''x-pgmq-group'', null::text')
            using range.lo, range.lo + range.n, range.attempts + 1, at_, until, lease_id;
        get diagnostics n = row_count;
        if n = range.n then
            return;
        end if;
    elsif runs <> '{}' then
        return query select * from spanmq.fetch_leased(
            this.queue_id, runs, at_, until, lease_id,
            case when slots > 1 then (select ceil(sum(r.n) / slots::numeric)::int from unnest(runs) r) end);
        get diagnostics n = row_count;
    end if;
    if n < (select sum(r.n) from unnest(runs) r) then
        perform spanmq.settle_missing(this, runs);
        if n = 0 then
            return query select * from pgmq.receive(queue, qty, lease, slots);
        end if;
    end if;
end $$;

-- As read, and again until messages come or the time is over. PGMQ's interface makes this sleep inside one statement, which
-- holds a connection and a snapshot: our own clients poll from outside. With 0 seconds it returns nothing, as in PGMQ.
create or replace function pgmq.read_with_poll(
    queue_name text, vt integer, qty integer, max_poll_seconds integer default 5, poll_interval_ms integer default 100,
    conditional jsonb default '{}'
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    stop_at timestamptz := spanmq.after(max_poll_seconds, 'max_poll_seconds');
begin
    while clock_timestamp() < stop_at loop
        return query select * from pgmq.read(queue_name, vt, qty, conditional);
        exit when found;
        perform pg_sleep(spanmq.poll_pause(poll_interval_ms));
    end loop;
end $$;

create or replace function spanmq.poll_pause(poll_interval_ms int) returns double precision
language plpgsql immutable as $$
begin
    if poll_interval_ms is null or poll_interval_ms < 0 then
        raise exception 'poll_interval_ms must be 0 or more, got: %', poll_interval_ms using errcode = 'MQ002';
    end if;
    return greatest(poll_interval_ms, 1) / 1000.0;
end $$;
