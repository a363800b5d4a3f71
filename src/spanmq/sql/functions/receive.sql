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
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    at_ timestamptz := clock_timestamp();
    until timestamptz := at_ + make_interval(secs => vt);
    lease bigint := spanmq.new_lease(at_);
    one pgmq.leased_message;
    first spanmq.leased_run;
    this spanmq.queue;
    runs spanmq.run[];
    n int;
begin
    if conditional = '{}' and until is not null then
        if qty = 1 then
            one := spanmq.lease_one(queue_name, lease, until, at_);
            if one.enqueued_at is not null then
                return next (one.msg_id, one.read_ct, one.enqueued_at, at_, until, one.message, one.headers)::pgmq.message_record;
                return;
            end if;
            first.lo := one.msg_id;
            first.n := 1;
            n := 0;
        else
            first := spanmq.lease_first(queue_name, qty, lease, until, at_);
            if first.lo is not null then
                return query execute format(
                        'select msg_id, $3, enqueued_at, $4, $5, message, headers from spanmq.%I where msg_id >= $1 and msg_id < $2 order by msg_id',
                        first.log_name)
                    using first.lo, first.lo + first.n, first.attempt, at_, until;
                get diagnostics n = row_count;
                if n = first.n then
                    return;
                end if;
            end if;
        end if;
        if first.lo is not null then
            -- Some have no row in the log.
            runs := array[(first.lo, first.n, null, 0, 0, null, null, null, null, null)::spanmq.run];
        end if;
    end if;
    this := spanmq.find_queue(queue_name, 'update');
    if runs is null then
        perform spanmq.check_quantity(qty), spanmq.after(vt, 'vt');
        runs := spanmq.claim_of(this, qty, lease, until, at_, 1, conditional);
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

-- Dispatches a claim: of a plain or an unlogged queue, of any message or of those that match.
create or replace function spanmq.claim_of(
    this spanmq.queue, quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int, conditional jsonb
) returns spanmq.run[]
language plpgsql as $$
begin
    if this.max_attempts is not null or this.uses_limits then
        return spanmq.claim_screened(this, quantity, lease, until, at_, slots, conditional, null);
    elsif not this.is_plain then
        return spanmq.claim_special(this, quantity, lease, until, at_, slots, conditional, null);
    elsif conditional <> '{}' and this.is_unlogged then
        return spanmq.claim_matching_unlogged(this.queue_id, quantity, lease, until, at_, conditional);
    elsif conditional <> '{}' then
        return spanmq.claim_matching(this.queue_id, quantity, lease, until, at_, conditional);
    elsif this.is_unlogged then
        return spanmq.claim_unlogged(this.queue_id, quantity, lease, until, at_, slots);
    end if;
    return spanmq.claim(this.queue_id, quantity, lease, until, at_, slots);
end $$;

-- As claim_of(), for receive(): where the policy sets no number of attempts its default holds, which PGMQ's read() does not have. Only what
-- comes from leases that ran out is looked through, and that only for its last attempts: all else costs what it costs in PGMQ's way.
create or replace function spanmq.claim_limited(this spanmq.queue, quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int)
returns spanmq.run[]
language plpgsql as $$
declare
    runs spanmq.run[] := spanmq.claim_of(this, quantity, lease, until, at_, slots, null);
    run spanmq.run;
begin
    if this.max_attempts is not null then
        return runs;
    end if;
    foreach run in array runs loop
        if run.lease_id <> 0 and run.attempts >= spanmq.default_attempts() - 2 then
            this.max_attempts := spanmq.attempts_of(spanmq.policy_of(this.queue_id));
            exit when this.max_attempts is null;
            runs := spanmq.screen(this, runs, lease, until, at_, null);
            return case when runs = '{}' then spanmq.claim_screened(this, quantity, lease, until, at_, slots, null, null) else runs end;
        end if;
    end loop;
    return runs;
end $$;

-- Takes up to qty visible messages out of the queue for good and returns them.
create or replace function pgmq.pop(queue_name text, qty integer default 1) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    this spanmq.queue := spanmq.find_queue(queue_name, 'delete');
    at_ timestamptz := clock_timestamp();
    runs spanmq.run[];
    n int;
begin
    perform spanmq.check_quantity(qty);
    runs := spanmq.claim_of(this, qty, null, null, at_, 1, null);
    return query select * from spanmq.fetch(this.queue_id, runs, 0, null, null, true);
    get diagnostics n = row_count;
    if n < spanmq.count_runs(runs) then
        perform spanmq.settle_missing(this, runs);
        if n = 0 then
            return query select * from pgmq.pop(queue_name, qty);
        end if;
    end if;
end $$;

-- Leases up to qty visible messages for `lease` seconds (null: as the queue's policy says), lowest ids first, and returns them in that
-- order; by priority, the highest first, then by id, where messages have one and no order of groups counts. All carry one
-- lease_id, the token without which ack() settles nothing. A slot is what one transaction will settle: with `slots` = 1 the
-- whole batch, with as many slots as concurrent handlers each its share.
create or replace function pgmq.receive(queue text, qty integer default 1, lease double precision default null, slots integer default 1)
returns setof pgmq.leased_message
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    at_ timestamptz := clock_timestamp();
    -- Null without a lease: lease_one() and lease_first() know the policy's. Of nulls greatest() takes no notice.
    until timestamptz := case when lease is not null then at_ + make_interval(secs => least(greatest(lease, -3e9), 3e9)) end;
    lease_id bigint := spanmq.new_lease(at_);
    one pgmq.leased_message;
    first spanmq.leased_run;
    logged spanmq.logged;
    this spanmq.queue;
    runs spanmq.run[];
    n int;
begin
    -- A lease that no time can hold goes the long way, where it is refused.
    if slots = 1 and (lease between -3e9 and 3e9) is not false then
        if qty = 1 then
            one := spanmq.lease_one(queue, lease_id, until, at_);
            if one.enqueued_at is not null then
                return next one;
                return;
            end if;
            first.lo := one.msg_id;
            first.n := 1;
            n := 0;
        else
            first := spanmq.lease_first(queue, qty, lease_id, until, at_);
            if first.n = 1 and first.lane is not null then
                -- There was one, and to read one by its lane is quicker than a statement of its own.
                logged := spanmq.fetch_by_lane(first.lane, first.lo);
                if logged.enqueued_at is not null then
                    return next (first.lo, first.attempt, logged.enqueued_at, at_, first.until, logged.message, logged.headers, lease_id, 1, first.attempt,
                                 logged.headers->>'x-pgmq-group',
                                 case when first.attempt > 1 then spanmq.last_error(first.queue_id, first.lo) end)::pgmq.leased_message;
                    return;
                end if;
                n := 0;
            elsif first.lo is not null then
                return query execute format(
                        'select msg_id, $3, enqueued_at, $4, $5, message, headers, $6, 1, $3, headers->>''x-pgmq-group'', %s'
                        ' from spanmq.%I where msg_id >= $1 and msg_id < $2 order by msg_id',
                        case when first.attempt > 1 then format('spanmq.last_error(%s, msg_id)', first.queue_id) else 'null::text' end,
                        first.log_name)
                    using first.lo, first.lo + first.n, first.attempt, at_, first.until, lease_id;
                get diagnostics n = row_count;
                if n = first.n then
                    return;
                end if;
            end if;
        end if;
        if first.lo is not null then
            -- Some have no row in the log.
            runs := array[(first.lo, first.n, null, 0, 0, null, null, null, null, null)::spanmq.run];
        end if;
    end if;
    this := spanmq.find_queue(queue, 'update');
    if runs is null then
        if lease is null then
            lease := least(this.lease, 3e9);
            until := at_ + make_interval(secs => lease);
        end if;
        perform spanmq.check_quantity(qty), spanmq.after(lease, 'lease');
        if slots is null or slots < 1 then
            raise exception 'slots must be at least 1, got: %', slots
                using errcode = 'MQ002', hint = '1 where one transaction settles the whole batch.';
        end if;
        runs := spanmq.claim_limited(this, qty, lease_id, until, at_, slots);
        return query select * from spanmq.fetch_leased(this.queue_id, runs, at_, until, lease_id, slots, not spanmq.goes_by_priority(this));
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
        raise exception 'poll_interval_ms must be 0 or more, got: %', poll_interval_ms
            using errcode = 'MQ002', hint = 'Leave it out for 100.';
    end if;
    return greatest(poll_interval_ms, 1) / 1000.0;
end $$;
