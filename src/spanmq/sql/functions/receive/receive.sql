-- Receiving: read and pop as in PGMQ, receive with a fencing token.

create or replace function spanmq_core.new_lease(at_ timestamptz) returns bigint
language sql volatile as $$
    -- Time first: a lease number that a crash lost (claims may be committed asynchronously) must not come again.
    select (extract(epoch from at_) * 1000)::bigint << 20 | (nextval('spanmq_core.lease_number') & 1048575)
$$;

-- Leases runs that the caller has taken, after it saw that the bound is not ahead of the clock. Every row of held is written with a vt that is not
-- before the clock: see bound.sql. alone: as held.alone; a delivery that is only reserved (1) does not count as an attempt.
create or replace function spanmq_core.hold(
    this_queue int, runs spanmq_core.run[], lease bigint, until timestamptz, at_ timestamptz, alone int default 0
) returns void
language plpgsql as $$
begin
    insert into spanmq_core.held (queue_id, lo, n, lease_id, attempts, lost, alone, vt, last_read_at, priority, group_hash, group_key)
        select this_queue, r.lo, r.n, lease, r.attempts + (hold.alone <> 1)::int, spanmq_core.losses(r.lost, r.lease_id, r.alone), hold.alone,
               greatest(until, clock_timestamp()), at_, r.priority, r.group_hash, r.group_key
        from unnest(runs) r;
end $$;

-- Leases the first visible message until then (null: as the queue's policy says), where that is a fresh one and the queue has no limits: the
-- usual case in few steps. msg_id is null in every other case, errors included; enqueued_at if the message has no row in the log.
create or replace function spanmq_core.claim_one(queue_name text, lease bigint, until timestamptz, at_ timestamptz) returns spanmq.leased_message
language plpgsql as $$
declare
    this_queue int;
    log_name text;
    log_lo bigint;
    log_hi bigint;
    lane int;
    ids regclass;
    fresh_from bigint;
    due_from timestamptz;
    id bigint;
    n int;
    level smallint;
    hash bigint;
    key text;
    logged spanmq_core.logged;
begin
    select q.queue_id, q.log_name, q.log_lo, q.log_hi, q.lane, coalesce(until, at_ + make_interval(secs => least(q.lease, 3e9))), q.ids,
           b.fresh_from, b.due_from
        into this_queue, log_name, log_lo, log_hi, lane, until, ids, fresh_from, due_from
        from spanmq_core.queue q
        cross join lateral (
            select b.fresh_from, b.due_from, b.mark_at from spanmq_core.bound b where b.queue_id = q.queue_id order by b.queue_id desc, b.number desc limit 1) b
        where q.folded_name = lower(queue_name) and q.is_plain and spanmq_core.sees_now() and greatest(b.due_from, b.mark_at) <= at_
          and has_table_privilege(q.queue_view, 'select');
    if not found then
        return null;
    end if;
    delete from spanmq_core.fresh f
        where f.ctid = (
            select k.ctid from spanmq_core.fresh k
            where k.queue_id = this_queue and k.lo >= fresh_from
              and not exists (select from spanmq_core.held h where h.queue_id + 0 = this_queue and h.vt >= due_from and h.vt <= at_)
            order by k.queue_id, k.lo limit 1 for update skip locked)
        returning f.lo, f.n, f.priority, f.group_hash, f.group_key into id, n, level, hash, key;
    if not found then
        return null;
    end if;
    if n > 1 then
        insert into spanmq_core.fresh (queue_id, lo, n, priority, group_hash, group_key) values (this_queue, id + 1, n - 1, level, hash, key);
    end if;
    insert into spanmq_core.held (queue_id, lo, n, lease_id, attempts, vt, last_read_at, priority, group_hash, group_key)
        values (this_queue, id, 1, lease, 1, greatest(until, at_, clock_timestamp()), at_, level, hash, key);
    if id & 127 = 0 then
        perform spanmq_core.move_bound(this_queue, ids);
    end if;
    if lane is not null and id between log_lo and log_hi then
        logged := spanmq_core.fetch_by_lane(lane, id);
    else
        execute 'select enqueued_at, message, headers from spanmq_core.'
                || quote_ident(case when id between log_lo and log_hi then log_name else (spanmq_core.segment_of(this_queue, id)).log_name end)
                || ' where msg_id = $1'
            into logged using id;
    end if;
    return (id, 1, logged.enqueued_at, at_, until, logged.message, logged.headers, lease, 1, 1, key, null::text)::spanmq.leased_message;
end $$;

-- As claim_one(), for several messages. Null in every case but the usual one, that no held message is visible.
create or replace function spanmq_core.claim_first(queue_name text, quantity int, lease bigint, until timestamptz, at_ timestamptz) returns spanmq_core.claimed
language plpgsql as $$
declare
    this record;
    claimed spanmq_core.claimed;
begin
    select q.queue_id, q.log_lo, q.log_hi, q.log_name, q.lane, q.ids, b.fresh_from, b.due_from,
           coalesce(until, at_ + make_interval(secs => least(q.lease, 3e9))) as until
        into this
        from spanmq_core.queue q
        cross join lateral (
            select b.fresh_from, b.due_from, b.mark_at from spanmq_core.bound b where b.queue_id = q.queue_id order by b.queue_id desc, b.number desc limit 1) b
        where q.folded_name = lower(queue_name) and q.is_plain and spanmq_core.sees_now() and greatest(b.due_from, b.mark_at) <= at_ and quantity > 0
          and has_table_privilege(q.queue_view, 'select');
    if not found then
        return null;
    end if;
    claimed := spanmq_core.take_fresh(this.queue_id, quantity, this.fresh_from, this.due_from, at_);
    if claimed.lo is not null then
        -- A row for each block of 256 ids that they touch.
        insert into spanmq_core.held (queue_id, lo, n, lease_id, attempts, vt, last_read_at)
            select this.queue_id, greatest(claimed.lo, block * 256),
                   (least(claimed.lo + claimed.n, block * 256 + 256) - greatest(claimed.lo, block * 256))::int,
                   lease, 1, greatest(this.until, at_, clock_timestamp()), at_
            from generate_series(claimed.lo / 256, (claimed.lo + claimed.n - 1) / 256) block;
        if claimed.lo / 8192 <> (claimed.lo + claimed.n) / 8192 then
            perform spanmq_core.move_bound(this.queue_id, this.ids);
        end if;
        if claimed.lo > this.log_lo and claimed.lo + claimed.n - 1 <= this.log_hi then
            claimed.log_name := this.log_name;
            claimed.lane := this.lane;
        else
            claimed.log_name := spanmq_core.log_of(this.queue_id, claimed.lo, claimed.lo + claimed.n - 1);
        end if;
    elsif claimed.runs <> '{}' then
        perform spanmq_core.hold(this.queue_id, claimed.runs, lease, this.until, at_);
    else
        return null;
    end if;
    claimed.until := this.until;
    return claimed;
end $$;

-- Leases up to qty visible messages for vt seconds, lowest ids first, and returns them in that order.
-- `conditional`: only messages that contain it (message @> conditional), which looks at every visible message before them.
create or replace function spanmq_call.read(queue_name text, vt integer, qty integer, conditional jsonb default '{}')
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    at_ timestamptz := clock_timestamp();
    until timestamptz := at_ + make_interval(secs => vt);
    lease bigint := spanmq_core.new_lease(at_);
    one spanmq.leased_message;
    claimed spanmq_core.claimed;
    this spanmq_core.queue;
    runs spanmq_core.run[];
    n int;
begin
    if qty = 1 and conditional = '{}' and until is not null then
        one := spanmq_core.claim_one(queue_name, lease, until, at_);
        if one.enqueued_at is not null then
            return next (one.msg_id, 1, one.enqueued_at, at_, until, one.message, one.headers)::pgmq.message_record;
            return;
        elsif one.msg_id is not null then
            runs := spanmq_core.blocks(one.msg_id, one.msg_id);
        end if;
    elsif conditional = '{}' and until is not null then
        claimed := spanmq_core.claim_first(queue_name, qty, lease, until, at_);
        runs := claimed.runs;
        if claimed.lo is not null then
            if claimed.lane is not null then
                return query select * from spanmq_core.fetch_run_by_lane(claimed.lane, claimed.lo, claimed.lo + claimed.n, at_, until);
            else
                return query execute
                    'select msg_id, 1, enqueued_at, $3, $4, message, headers from spanmq_core.' || quote_ident(claimed.log_name)
                    || ' where msg_id >= $1 and msg_id < $2 order by msg_id'
                    using claimed.lo, claimed.lo + claimed.n, at_, until;
            end if;
            get diagnostics n = row_count;
            if n = claimed.n then
                return;
            end if;
            runs := spanmq_core.blocks(claimed.lo, claimed.lo + claimed.n - 1);
        end if;
    end if;
    this := spanmq_core.find_queue(queue_name);
    if runs is null then
        until := spanmq_core.after(vt, 'vt', at_);
        perform spanmq_core.check_quantity(qty);
        runs := spanmq_core.claim(this, qty, lease, until, at_, 1, conditional, null, false);
    end if;
    if runs = '{}' then
        return;
    end if;
    if n is null then
        return query select * from spanmq_core.fetch(this.queue_id, runs, 1, at_, until, true);
        get diagnostics n = row_count;
    end if;
    if n < spanmq_core.count_runs(runs) then
        perform spanmq_core.settle_missing(this, runs);
        if n = 0 then
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

-- Leases up to qty visible messages for `lease` seconds (null: as the queue's policy says), lowest ids first, and returns them in that
-- order; by priority, the highest first, then by id, where messages have one and no order of groups counts. All carry one
-- lease_id, the token without which ack() settles nothing. A slot is what one transaction will settle: with `slots` = 1 the
-- whole batch, with as many slots as concurrent handlers each its share. alone: the caller is a worker that handles nothing beside a message of
-- slot 0, which has no body yet and is only reserved: begin_alone() returns it. Other callers get such a message alone, while no other one is in
-- flight.
create or replace function spanmq_call.receive(
    queue text, qty integer default 1, lease double precision default null, slots integer default 1, alone boolean default false
)
returns setof spanmq.leased_message
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    at_ timestamptz := clock_timestamp();
    lease_id bigint := spanmq_core.new_lease(at_);
    until timestamptz := case when lease between -3e9 and 3e9 then at_ + make_interval(secs => lease) end;
    one spanmq.leased_message;
    claimed spanmq_core.claimed;
    this spanmq_core.queue;
    runs spanmq_core.run[];
    n int;
begin
    if qty = 1 and slots = 1 and (lease is null or until is not null) then
        one := spanmq_core.claim_one(queue, lease_id, until, at_);
        if one.enqueued_at is not null then
            return next one;
            return;
        elsif one.msg_id is not null then
            runs := spanmq_core.blocks(one.msg_id, one.msg_id);
        end if;
    elsif slots = 1 and (lease is null or until is not null) then
        claimed := spanmq_core.claim_first(queue, qty, lease_id, until, at_);
        until := coalesce(claimed.until, until);
        runs := claimed.runs;
        if claimed.lo is not null then
            if claimed.lane is not null then
                return query select f.*, lease_id, 1, 1, f.headers->>'x-pgmq-group', null::text
                    from spanmq_core.fetch_run_by_lane(claimed.lane, claimed.lo, claimed.lo + claimed.n, at_, claimed.until) f;
            else
                return query execute
                    'select msg_id, 1, enqueued_at, $3, $4, message, headers, $5, 1, 1, headers->>''x-pgmq-group'', null::text from spanmq_core.'
                    || quote_ident(claimed.log_name) || ' where msg_id >= $1 and msg_id < $2 order by msg_id'
                    using claimed.lo, claimed.lo + claimed.n, at_, claimed.until, lease_id;
            end if;
            get diagnostics n = row_count;
            if n = claimed.n then
                return;
            end if;
            runs := spanmq_core.blocks(claimed.lo, claimed.lo + claimed.n - 1);
        end if;
    end if;
    this := spanmq_core.find_queue(queue);
    if runs is null then
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
        return query select m.msg_id, m.read_ct, m.enqueued_at, m.last_read_at, m.vt, null::jsonb, null::jsonb, lease_id, 0, m.read_ct + 1,
                            runs[1].group_key, null::text
            from spanmq_core.fetch(this.queue_id, runs, 0, at_, until, true) m;
        get diagnostics n = row_count;
    elsif n is null then
        return query select * from spanmq_core.fetch_leased(this.queue_id, runs, at_, until, lease_id, slots, not spanmq_core.goes_by_priority(this));
        get diagnostics n = row_count;
    end if;
    if n < spanmq_core.count_runs(runs) then
        perform spanmq_core.settle_missing(this, runs);
        if n = 0 then
            return query select * from spanmq_call.receive(queue, qty, lease, slots, alone);
        end if;
    end if;
end $$;

-- As read, repeated until messages come or the time is over. PGMQ's interface makes this sleep inside one statement, which
-- holds a connection and a snapshot: our own clients poll from outside. With 0 seconds it returns nothing, as in PGMQ.
create or replace function spanmq_call.read_with_poll(
    queue_name text, vt integer, qty integer, max_poll_seconds integer default 5, poll_interval_ms integer default 100,
    conditional jsonb default '{}'
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return query select * from spanmq_core.poll(queue_name, vt, qty, conditional, null, max_poll_seconds, poll_interval_ms);
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
            format('poll_interval_ms must be 0 or more, got: %s', coalesce(poll_interval_ms::text, 'NULL')), 'Omit it for 100.');
        perform pg_sleep(greatest(poll_interval_ms, 1) / 1000.0);
    end loop;
end $$;
