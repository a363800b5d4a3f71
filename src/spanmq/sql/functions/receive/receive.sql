-- Receiving: read and pop as in PGMQ, receive with a fencing token.

create or replace function spanmq_core.new_lease(at_ timestamptz) returns bigint
language sql volatile as $$
    -- Time first: a lease number that a crash lost (claims may be committed asynchronously) must not come again.
    select (extract(epoch from at_) * 1000)::bigint << 20 | (nextval('spanmq_core.lease_number') & 1048575)
$$;

-- Leases runs that the caller has taken, after it saw that the bound is not ahead of the clock. Every row of held is
-- written with a vt that is not before the clock: see bound.sql. alone: as held.alone; a delivery that is only reserved
-- (1) does not count as an attempt.
create or replace function spanmq_core.hold(
    this_queue int, runs spanmq_core.run[], lease bigint, until timestamptz, at_ timestamptz, alone int default 0
) returns void
language plpgsql as $$
begin
    insert into spanmq_core.held (queue_id, lo, n, lease_id, attempts, lost, alone, vt, last_read_at, priority,
                                  group_hash, group_key)
        select this_queue, r.lo, r.n, lease, r.attempts + (hold.alone <> 1)::int,
        spanmq_core.losses(r.lost, r.lease_id, r.alone), hold.alone,
               greatest(until, at_, clock_timestamp()), at_, r.priority, r.group_hash, r.group_key
        from unnest(runs) r;
end $$;

-- The queue of that name, with its bound, where a claim may take the first fresh messages: the caller has the right,
-- the policy does not order or limit, the clock was not set back, and the snapshot is not old. In SQL, so that it is a
-- part of the statement.
create or replace function spanmq_core.usual_queue(queue_name text, at_ timestamptz)
returns table (
    queue_id int, log_name text, log_lo bigint, log_hi bigint, lane int, lease double precision, fresh_from bigint,
    due_from timestamptz
)
language sql stable as $$
    select q.queue_id, q.log_name, q.log_lo, q.log_hi, q.lane, q.lease, b.fresh_from, b.due_from
    from spanmq_core.queue q
    cross join lateral (
        select b.*, b.xmax from spanmq_core.bound b
        where b.queue_id = q.queue_id order by b.queue_id desc, b.number desc limit 1) b
    where q.folded_name = lower(queue_name) and q.is_plain and greatest(b.due_from, b.mark_at) <= at_
      -- A step that is not committed has deleted the bound.
      and (b.xmax = '0' or not spanmq_core.is_marked_after(at_))
      and spanmq_core.sees_now() and has_table_privilege(q.queue_view, 'select')
$$;

-- Leases up to qty visible messages for vt seconds, lowest ids first, and returns them in that order.
-- `conditional`: only messages that contain it (message @> conditional), which looks at every visible message before
-- them.
create or replace function spanmq_call.read(queue_name text, vt integer, qty integer, conditional jsonb default '{}')
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    at_ timestamptz := clock_timestamp();
    until timestamptz := at_ + make_interval(secs => vt);
    lease bigint := spanmq_core.new_lease(at_);
    this record;
    claimed spanmq_core.claimed;
    n int;
begin
    if qty > 0 and conditional = '{}' and until is not null then
        select * into this from spanmq_core.usual_queue(queue_name, at_);
        if found then
            claimed := spanmq_core.take_fresh(this.queue_id, qty, this.fresh_from, this.due_from, at_, lease, until);
            if claimed.lo > this.log_lo and claimed.lo + claimed.n - 1 <= this.log_hi then
                if this.lane is not null then
                    return query
                        select *
                        from spanmq_core.fetch_by_lane(this.lane, claimed.lo, claimed.lo + claimed.n, at_, until);
                else
                    return query execute format(
                        'select msg_id, 1, enqueued_at, $3, $4, message, headers from spanmq_core.%I'
                        ' where msg_id >= $1 and msg_id < $2 order by msg_id', this.log_name)
                        using claimed.lo, claimed.lo + claimed.n, at_, until;
                end if;
                get diagnostics n = row_count;
                if n = claimed.n then
                    return;
                end if;
            end if;
        end if;
    end if;
    return query select * from spanmq_core.read_any(queue_name, vt, qty, conditional, at_, lease, claimed, n);
end $$;

-- Goes on with read() in every case but the usual one. claimed: what take_fresh() returned, if it was called;
-- n_fetched: how many of these have been returned, fewer than were claimed.
create or replace function spanmq_core.read_any(
    queue_name text, vt int, qty int, conditional jsonb, at_ timestamptz, lease bigint, claimed spanmq_core.claimed,
    n_fetched int
) returns setof pgmq.message_record
language plpgsql as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue_name);
    until timestamptz := spanmq_core.after(vt, 'vt', at_);
    runs spanmq_core.run[];
begin
    if claimed.lo is not null then
        runs := spanmq_core.blocks(claimed.lo, claimed.lo + claimed.n - 1);
    elsif claimed.runs <> '{}' then
        runs := claimed.runs;
        perform spanmq_core.hold(this.queue_id, runs, lease, until, at_);
    else
        perform spanmq_core.check_quantity(qty);
        runs := spanmq_core.claim(this, qty, lease, until, at_, 1, conditional, null, false);
    end if;
    if n_fetched is null then
        return query select * from spanmq_core.fetch(this.queue_id, runs, 1, at_, until, true);
        get diagnostics n_fetched = row_count;
    end if;
    if n_fetched < spanmq_core.count_runs(runs) then
        perform spanmq_core.settle_missing(this, runs);
        if n_fetched = 0 then
            return query select * from spanmq_call.read(queue_name, vt, qty, conditional);
        end if;
    end if;
end $$;

-- Takes up to qty visible messages out of the queue for good and returns them.
create or replace function spanmq_call.pop(queue_name text, qty integer default 1) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue_name);
    at_ timestamptz := clock_timestamp();
    runs spanmq_core.run[];
    n int;
begin
    perform spanmq_core.check_quantity(qty);
    runs := spanmq_core.claim(this, qty, null, null, at_, 1);
    return query select * from spanmq_core.fetch(this.queue_id, runs, 0, null, null, true);
    get diagnostics n = row_count;
    if n < spanmq_core.count_runs(runs) then
        perform spanmq_core.settle_missing(this, runs);
        if n = 0 then
            return query select * from spanmq_call.pop(queue_name, qty);
        end if;
    end if;
end $$;

-- Leases up to qty visible messages for `lease` seconds (null: as the queue's policy says), lowest ids first, and
-- returns them in that order; by priority, the highest first, then by id, where messages have one and no order of
-- groups counts. All carry one lease_id, the token without which ack() settles nothing. A slot is what one transaction
-- will settle: with `slots` = 1 the whole batch, with as many slots as concurrent handlers each its share. alone: the
-- caller is a worker that handles nothing beside a message of slot 0, which has no body yet and is only reserved:
-- begin_alone() returns it. Other callers get such a message alone, while no other one is in flight.
create or replace function spanmq_call.receive(
    queue text, qty integer default 1, lease double precision default null, slots integer default 1,
    alone boolean default false
)
returns setof spanmq.leased_message
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    at_ timestamptz := clock_timestamp();
    lease_id bigint := spanmq_core.new_lease(at_);
    until timestamptz := case when lease between -3e9 and 3e9 then at_ + make_interval(secs => lease) end;
    this record;
    claimed spanmq_core.claimed;
    n int;
begin
    if qty > 0 and slots = 1 and (lease is null or until is not null) and alone is not null then
        select * into this from spanmq_core.usual_queue(queue, at_);
        if found then
            until := coalesce(until, at_ + make_interval(secs => least(this.lease, 3e9)));
            claimed := spanmq_core.take_fresh(this.queue_id, qty, this.fresh_from, this.due_from, at_, lease_id, until);
            if claimed.lo > this.log_lo and claimed.lo + claimed.n - 1 <= this.log_hi then
                if this.lane is not null then
                    return query select f.*, lease_id, 1, 1, f.headers->>'x-pgmq-group', null::text
                        from spanmq_core.fetch_by_lane(this.lane, claimed.lo, claimed.lo + claimed.n, at_, until) f;
                else
                    return query execute format(
                        'select msg_id, 1, enqueued_at, $3, $4, message, headers, $5, 1, 1, headers->>''x-pgmq-group'','
                        ' null::text from spanmq_core.%I where msg_id >= $1 and msg_id < $2 order by msg_id',
                        this.log_name)
                        using claimed.lo, claimed.lo + claimed.n, at_, until, lease_id;
                end if;
                get diagnostics n = row_count;
                if n = claimed.n then
                    return;
                end if;
            end if;
        end if;
    end if;
    return query
        select * from spanmq_core.receive_any(queue, qty, lease, slots, alone, at_, lease_id, until, claimed, n);
end $$;

-- Goes on with receive() in every case but the usual one; see read_any(). until: as take_fresh() got it, if it was
-- called.
create or replace function spanmq_core.receive_any(
    queue text, qty int, lease double precision, slots int, alone boolean, at_ timestamptz, lease_id bigint,
    until timestamptz, claimed spanmq_core.claimed, n_fetched int
) returns setof spanmq.leased_message
language plpgsql as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    runs spanmq_core.run[];
begin
    if claimed.lo is not null then
        runs := spanmq_core.blocks(claimed.lo, claimed.lo + claimed.n - 1);
    elsif claimed.runs <> '{}' then
        runs := claimed.runs;
        perform spanmq_core.hold(this.queue_id, runs, lease_id, until, at_);
    else
        until := spanmq_core.after(coalesce(lease, least(this.lease, 3e9)), 'lease', at_);
        perform spanmq_core.check_quantity(qty);
        if slots is null or slots < 1 then
            raise exception 'slots must be at least 1, got: %', slots
                using errcode = 'MQ002', hint = '1 where one transaction settles the whole batch.';
        end if;
        perform spanmq_core.raise_if(alone is null, 'alone cannot be NULL', 'Omit it for false.');
        -- Unlike PGMQ's read(): where the policy sets no number of attempts, its default holds.
        this.max_attempts := coalesce(this.max_attempts, spanmq_core.attempts_of(spanmq_core.policy_of(this.queue_id)));
        runs := spanmq_core.claim(this, qty, lease_id, until, at_, slots, '{}', null, alone);
    end if;
    if runs = '{}' then
        return;
    end if;
    if alone and runs[1].alone > 0 then
        return query select m.msg_id, m.read_ct, m.enqueued_at, m.last_read_at, m.vt, null::jsonb, null::jsonb,
            lease_id, 0, m.read_ct + 1,
                            runs[1].group_key, null::text
            from spanmq_core.fetch(this.queue_id, runs, 0, at_, until, true) m;
        get diagnostics n_fetched = row_count;
    elsif n_fetched is null then
        return query select *
            from spanmq_core.fetch_leased(this.queue_id, runs, at_, until, lease_id, slots,
                                          not spanmq_core.goes_by_priority(this));
        get diagnostics n_fetched = row_count;
    end if;
    if n_fetched < spanmq_core.count_runs(runs) then
        perform spanmq_core.settle_missing(this, runs);
        if n_fetched = 0 then
            return query select * from spanmq_call.receive(queue, qty, lease, slots, alone);
        end if;
    end if;
end $$;

-- As read, repeated until messages come or the time is over. PGMQ's interface makes this sleep inside one statement,
-- which holds a connection and a snapshot: our own clients poll from outside. With 0 seconds it returns nothing, as in
-- PGMQ.
create or replace function spanmq_call.read_with_poll(
    queue_name text, vt integer, qty integer, max_poll_seconds integer default 5, poll_interval_ms integer default 100,
    conditional jsonb default '{}'
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return query select *
        from spanmq_core.poll(queue_name, vt, qty, conditional, null, max_poll_seconds, poll_interval_ms);
end $$;

-- For the polled reads. mode null: read(), else that of a grouped read.
create or replace function spanmq_core.poll(
    queue_name text, vt int, qty int, conditional jsonb, mode text, max_poll_seconds int, poll_interval_ms int
) returns setof pgmq.message_record
language plpgsql as $$
declare
    stop_at timestamptz := spanmq_core.after(max_poll_seconds, 'max_poll_seconds');
begin
    while clock_timestamp() < stop_at loop
        if mode is null then
            return query select * from spanmq_call.read(queue_name, vt, qty, conditional);
        else
            return query select * from spanmq_core.read_groups(queue_name, vt, qty, mode);
        end if;
        exit when found;
        perform spanmq_core.raise_if(poll_interval_ms is null or poll_interval_ms < 0,
            format('poll_interval_ms must be 0 or more, got: %s', coalesce(poll_interval_ms::text, 'NULL')),
            'Omit it for 100.');
        perform pg_sleep(greatest(poll_interval_ms, 1) / 1000.0);
    end loop;
end $$;
