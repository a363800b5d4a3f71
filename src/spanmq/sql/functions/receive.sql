-- Receiving: read and pop as in PGMQ, receive with a fencing token.

create or replace function spanmq.new_lease(at_ timestamptz) returns bigint
language sql volatile as $$
    -- Time first: a lease number that a crash lost (claims may be committed asynchronously) must not come again.
    select (extract(epoch from at_) * 1000)::bigint << 20 | (nextval('spanmq.lease_number') & 1048575)
$$;

-- The usual case of a receive in few steps: nothing fell due, and the first ready span is enough, or with the few that go on
-- where it ends. They are leased, the last one perhaps in part. Null for every other case, errors included. (PL/pgSQL prepares
-- each expression anew in each transaction, some 2 µs a piece, so what every call runs through is kept short.)
create or replace function spanmq.lease_first(queue_name text, quantity int, lease bigint, until timestamptz, at_ timestamptz)
returns spanmq.leased_run
language plpgsql as $$
declare
    this record;
    next record;
    covered int;
begin
    -- Skip what another receiver holds this instant: waiting for it would serialise them all.
    select s.queue_id, s.lo, s.n, s.attempts, s.ids, q.log_lo, q.log_hi, q.max_attempts,
           case when s.lo between q.log_lo and q.log_hi then q.log_name
                else (select g.log_name from spanmq.segment g
                      where g.queue_id = coalesce((select p.log_id from spanmq.subscription p where p.queue_id = q.queue_id), q.queue_id)
                        and g.lo <= s.lo
                      order by g.queue_id desc, g.lo desc limit 1) end as log_name
        into this
        from spanmq.queue q
        cross join lateral (
            select * from spanmq.span s
            where s.queue_id = q.queue_id and s.state = 'r'
              and not exists (select from spanmq.span d where d.queue_id = q.queue_id and d.state <> 'r' and d.vt <= at_)
            order by s.queue_id, s.lo limit 1 for update skip locked) s
        where q.folded_name = lower(queue_name) and not q.is_unlogged and q.is_plain
          and has_table_privilege(coalesce(nullif(current_setting('role'), 'none'), session_user), q.queue_view, 'update');
    covered := this.n;
    if covered is null or this.ids is not null or this.attempts >= this.max_attempts or clock_timestamp() - at_ > interval '1 millisecond' or quantity < 1 then
        return null;
    end if;
    while covered < quantity loop
        select s.n into next from spanmq.span s
            where s.queue_id = this.queue_id and s.lo = this.lo + covered and s.lease_id = 0
              and s.state = 'r' and s.ids is null and s.attempts = this.attempts
            for update skip locked;
        if not found then
            return null;
        end if;
        covered := covered + next.n;
    end loop;
    if covered > quantity then
        insert into spanmq.span (queue_id, lo, n, attempts, state, vt, last_read_at, group_hash, group_key, priority)
            select s.queue_id, this.lo + quantity, covered - quantity, s.attempts, s.state, s.vt, s.last_read_at, s.group_hash, s.group_key,
                   s.priority
            from spanmq.span s
            where s.queue_id = this.queue_id and s.lo >= this.lo and s.lo < this.lo + quantity and s.lease_id = 0 and s.lo + s.n > this.lo + quantity;
    end if;
    update spanmq.span s
        set lease_id = lease, state = 'l', n = least(s.n, this.lo + quantity - s.lo), attempts = this.attempts + 1, vt = until,
            last_read_at = at_
        where s.queue_id = this.queue_id and s.lo >= this.lo and s.lo < this.lo + quantity and s.lease_id = 0;
    if covered > this.n and not (this.lo >= this.log_lo and this.lo + quantity <= this.log_hi + 1) then
        -- Perhaps in two segments.
        this.log_name := spanmq.log_of(this.queue_id, this.lo, this.lo + quantity - 1);
    end if;
    return (this.lo, quantity, this.attempts + 1, this.log_name, this.queue_id);
end $$;

-- Leases up to qty visible messages for vt seconds, lowest ids first, and returns them in that order.
-- `conditional`: only messages that contain it (message @> conditional), which looks at every visible message before them.
create or replace function pgmq.read(queue_name text, vt integer, qty integer, conditional jsonb default '{}')
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    at_ timestamptz := clock_timestamp();
    until timestamptz := at_ + make_interval(secs => vt);
    lease bigint := spanmq.new_lease(at_);
    first spanmq.leased_run;
    this spanmq.queue;
    runs spanmq.run[];
    n int;
begin
    if conditional = '{}' and until is not null and coalesce(current_setting('spanmq.hints', true), '') = '' then
        first := spanmq.lease_first(queue_name, qty, lease, until, at_);
        if first.n > 0 then
            return query execute format(
                    'select msg_id, $3, enqueued_at, $4, $5, message, headers from spanmq.%I where msg_id >= $1 and msg_id < $2 order by msg_id',
                    first.log_name)
                using first.lo, first.lo + first.n, first.attempt, at_, until;
            get diagnostics n = row_count;
            if n = first.n then
                return;
            end if;
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
    runs := spanmq.claim_of(this, qty, null, null, at_, 1, null);
    return query select * from spanmq.fetch(this.queue_id, runs, 0, null, null, true);
    if not found and runs <> '{}' then
        perform spanmq.settle_missing(this, runs);
        return query select * from pgmq.pop(queue_name, qty);
    end if;
end $$;

-- Leases up to qty visible messages for `lease` seconds (null: as the queue's policy says), lowest ids first, and returns them in that order. All carry one
-- lease_id, the token without which ack() settles nothing. A slot is what one transaction will settle: with `slots` = 1 the
-- whole batch, with as many slots as concurrent handlers each its share.
create or replace function pgmq.receive(queue text, qty integer default 1, lease double precision default null, slots integer default 1)
returns setof pgmq.leased_message
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    at_ timestamptz := clock_timestamp();
    until timestamptz := at_ + make_interval(secs => least(greatest(lease, -3e9), 3e9));
    lease_id bigint := spanmq.new_lease(at_);
    first spanmq.leased_run;
    this spanmq.queue;
    runs spanmq.run[];
    n int;
begin
    if lease is null then
        lease := (select least(q.lease, 3e9) from spanmq.queue q where q.folded_name = lower(queue));
        until := at_ + make_interval(secs => lease);
    end if;
    if slots = 1 and until is not null and coalesce(current_setting('spanmq.hints', true), '') = '' then
        first := spanmq.lease_first(queue, qty, lease_id, until, at_);
        if first.n > 0 then
            return query execute format(
                    'select msg_id, $3, enqueued_at, $4, $5, message, headers, $6, 1, $3, headers->>''x-pgmq-group'', %s'
                    ' from spanmq.%I where msg_id >= $1 and msg_id < $2 order by msg_id',
                    case when first.attempt > 1 then format('spanmq.last_error(%s, msg_id)', first.queue_id) else 'null::text' end,
                    first.log_name)
                using first.lo, first.lo + first.n, first.attempt, at_, until, lease_id;
            get diagnostics n = row_count;
            if n = first.n then
                return;
            end if;
            runs := array[(first.lo, first.n, null, 0, 0, null, null, null, null, null)::spanmq.run];
        end if;
    end if;
    this := spanmq.find_queue(queue, 'update');
    if runs is null then
        perform spanmq.check_quantity(qty), spanmq.after(lease, 'lease');
        if slots is null or slots < 1 then
            raise exception 'slots must be at least 1, got: %', slots using errcode = 'MQ002';
        end if;
        runs := spanmq.claim_of(this, qty, lease_id, until, at_, slots, null);
        return query select * from spanmq.fetch_leased(this.queue_id, runs, at_, until, lease_id, slots);
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
