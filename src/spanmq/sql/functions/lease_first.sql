-- The usual cases of read and receive in few steps: nothing fell due, and what stands first is enough. Whatever else there is, errors
-- included, they leave to the general way (claim.sql). PL/pgSQL prepares each expression anew in each transaction, and each table
-- that a statement names costs its opening, so what every call runs through is kept short.

-- Leases the first ready message until then (null: as the queue's policy says), and returns it. msg_id is null in every other case,
-- enqueued_at if the message has no row in the log.
create or replace function spanmq.lease_one(queue_name text, lease bigint, until timestamptz, at_ timestamptz) returns pgmq.leased_message
language plpgsql as $$
declare
    this_queue int;
    log_name text;
    log_lo bigint;
    log_hi bigint;
    lane int;
    max_attempts int;
    first_id bigint;
    n int;
    ids int8multirange;
    attempt int;
    logged spanmq.logged;
    hint spanmq.hint;
    from_lo bigint;
    due_from timestamptz := timestamptz '-infinity';
    started_at timestamptz;
begin
    select q.queue_id, q.log_name, q.log_lo, q.log_hi, q.lane, q.max_attempts, q.settled_to,
           coalesce(until, at_ + make_interval(secs => least(q.lease, 3e9)))
        into this_queue, log_name, log_lo, log_hi, lane, max_attempts, from_lo, until
        from spanmq.queue q
        where q.folded_name = lower(queue_name) and not q.is_unlogged and q.is_plain
          and has_table_privilege(coalesce(nullif(current_setting('role'), 'none'), session_user), q.queue_view, 'update');
    if current_setting('spanmq.hints', true) <> '' then
        hint := spanmq.get_hint(this_queue, at_);
        from_lo := greatest(from_lo, hint.ready_from);
        due_from := hint.due_from;
    end if;
    started_at := clock_timestamp();
    -- Skip what another receiver holds this instant: waiting for it would serialise them all.
    select s.lo, s.n, s.ids, s.attempts + 1 into first_id, n, ids, attempt
        from spanmq.span s
        where s.queue_id = this_queue and s.state = 'r' and s.lo >= from_lo
          and not exists (select from spanmq.span d where d.queue_id = this_queue and d.state <> 'r' and d.vt <= at_ and d.vt >= due_from)
        order by s.queue_id, s.lo limit 1 for update skip locked;
    if not found then
        return null;
    elsif spanmq.is_slow(clock_timestamp() - started_at) then
        -- Also for the general way, which needn't look from the left again.
        perform spanmq.start_hint(this_queue, spanmq.hint_from(hint, from_lo), first_id, at_, clock_timestamp() - started_at);
    elsif hint.ready_until is not null and (first_id > hint.ready_from + 1000 or random() < 0.03) then
        -- To move it costs as much as to pass a hundred dead entries. Nothing has fallen due up to now.
        perform spanmq.set_hint(this_queue, hint, first_id, null, at_, null);
    end if;
    if ids is not null or attempt > max_attempts then
        return null;
    end if;
    if n > 1 then
        perform spanmq.leave_behind(this_queue, first_id, 1);
    end if;
    update spanmq.span s
        set lease_id = lease, state = 'l', n = 1, attempts = attempt, vt = until, last_read_at = at_
        where s.queue_id = this_queue and s.lo = first_id and s.lease_id = 0;
    if until <= at_ then
        perform spanmq.forget_hint(this_queue);
    end if;
    if lane is not null and first_id between log_lo and log_hi then
        logged := spanmq.fetch_by_lane(lane, first_id);
    else
        logged := spanmq.fetch_one(this_queue, first_id, case when first_id between log_lo and log_hi then log_name end);
    end if;
    return (first_id, attempt, logged.enqueued_at, at_, until, logged.message, logged.headers, lease, 1, attempt, logged.headers->>'x-pgmq-group',
            case when attempt > 1 then spanmq.last_error(this_queue, first_id) end);
end $$;

-- As lease_one(), in the order of groups: leases the first message of the oldest group that is not blocked, under the rules of
-- claim_groups(). For queues with a plain policy. Locks that group to the end of the transaction; never waits.
create or replace function spanmq.lease_head(queue_name text, lease bigint, until timestamptz, at_ timestamptz) returns pgmq.message_record
language plpgsql as $$
declare
    this_queue int;
    log_name text;
    log_lo bigint;
    log_hi bigint;
    lane int;
    hash bigint;
    first_lo bigint;
    this spanmq.span;
    logged spanmq.logged;
    hint spanmq.hint;
    settled_to bigint;
    settled_now bigint := 0;
    from_lo bigint;
    due_from timestamptz := timestamptz '-infinity';
    started_at timestamptz;
begin
    if not spanmq.sees_now() then
        return null;
    end if;
    select q.queue_id, q.log_name, q.log_lo, q.log_hi, q.lane, q.settled_to, q.settled_to
        into this_queue, log_name, log_lo, log_hi, lane, settled_to, from_lo
        from spanmq.queue q
        where q.folded_name = lower(queue_name) and not q.is_unlogged and q.is_plain and q.max_attempts is null
          and has_table_privilege(coalesce(nullif(current_setting('role'), 'none'), session_user), q.queue_view, 'update');
    if current_setting('spanmq.hints', true) <> '' then
        hint := spanmq.get_hint(this_queue, at_);
        from_lo := greatest(from_lo, hint.ready_from);
        due_from := hint.due_from;
    end if;
    started_at := clock_timestamp();
    -- Only among the oldest spans: what stands behind blocked groups must cost nothing. case keeps the order: a group is locked only
    -- when it is about to be taken. Messages without a group are one too, which is left to claim_groups().
    select o.group_hash, o.first_lo into hash, first_lo
        from (select s.group_hash, s.lo, first_value(s.lo) over (order by s.queue_id, s.lo rows unbounded preceding) as first_lo
              from spanmq.span s
              where s.queue_id = this_queue and s.state = 'r' and s.lo >= from_lo
                and not exists (select from spanmq.span d where d.queue_id = this_queue and d.state <> 'r' and d.vt <= at_ and d.vt >= due_from)
              order by s.queue_id, s.lo limit 34) o
        where case when o.group_hash is null then true
                   -- One look a group: `exists` could be planned as a look for all that are blocked.
                   when (select true from spanmq.span b
                         where b.queue_id + 0 = this_queue and b.group_hash = o.group_hash and b.group_hash is not null
                           and case when b.state = 'l' or b.state = 'w' and b.attempts > 0 then 1 else 0 end = 1 and b.lo + 0 >= settled_to
                           and spanmq.holds_any(b) limit 1) then false
                   -- A delayed message stands first.
                   when (select h.state = 'w' from spanmq.span h
                         where h.queue_id + 0 = this_queue and h.group_hash = o.group_hash and h.group_hash is not null
                           and case when h.state = 'l' or h.state = 'w' and h.attempts > 0 then 1 else 0 end = 0 and h.lo + 0 >= settled_to
                         order by h.lo + 0 limit 1) then false
                   else pg_try_advisory_xact_lock(hashint8extended(o.group_hash, this_queue)) end
        order by o.lo limit 1;
    if hash is null then
        return null;
    elsif spanmq.is_slow(clock_timestamp() - started_at) or hint.ready_until is not null and random() < 0.03 then
        hint := spanmq.start_hint(this_queue, spanmq.hint_from(hint, from_lo), first_lo, at_, clock_timestamp() - started_at);
    end if;
    if hint.ready_until is not null then
        -- Anew, under the lock: what came back before may be in work already. Nobody can take it now.
        select q.settled_to into settled_now from spanmq.queue q where q.queue_id = this_queue;
    end if;
    -- A new statement, begun under the lock. Its head and no other: `skip locked` on the look for it would skip a locked head.
    select s.* into this
        from (select s.lo from spanmq.span s
              where s.queue_id + 0 = this_queue and s.group_hash = hash and s.group_hash is not null
                and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 0 and s.lo + 0 >= settled_now
              order by s.lo + 0 limit 1 offset 0) h
        cross join lateral (
            select * from spanmq.span s
            where s.queue_id = this_queue and s.lo = h.lo and s.lease_id = 0 and s.state = 'r' for update skip locked) s
        where (select true from spanmq.span b
               where b.queue_id + 0 = this_queue and b.group_hash = hash and b.group_hash is not null
                 and case when b.state = 'l' or b.state = 'w' and b.attempts > 0 then 1 else 0 end = 1 and b.lo + 0 >= settled_now limit 1) is null
          and (select true from spanmq.blocked_group b where b.queue_id = this_queue and b.group_hash = hash limit 1) is null;
    if not found then
        return null;
    end if;
    if this.n > 1 then
        perform spanmq.put_rest(this, 1, spanmq.first_ids(this.ids, 1));
    end if;
    update spanmq.span s
        set lease_id = lease, state = 'l', n = 1, ids = null, attempts = this.attempts + 1, vt = until, last_read_at = at_
        where s.queue_id = this_queue and s.lo = this.lo and s.lease_id = 0;
    if until <= at_ then
        perform spanmq.forget_hint(this_queue);
    end if;
    if lane is not null and this.lo between log_lo and log_hi then
        logged := spanmq.fetch_by_lane(lane, this.lo);
    else
        logged := spanmq.fetch_one(this_queue, this.lo, case when this.lo between log_lo and log_hi then log_name end);
    end if;
    return (this.lo, this.attempts + 1, logged.enqueued_at, at_, until, logged.message, logged.headers);
end $$;

-- Leases the first `quantity` ready messages, if they are the first span, or with those that go on where it ends; the last one
-- perhaps in part. Fewer, if these are all that are ready. Null in every other case.
create or replace function spanmq.lease_first(queue_name text, quantity int, lease bigint, until timestamptz, at_ timestamptz)
returns spanmq.leased_run
language plpgsql as $$
declare
    this record;
    first record;
    last record;
    covered int;
    hint spanmq.hint;
    due_from timestamptz := timestamptz '-infinity';
    started_at timestamptz;
begin
    select q.queue_id, q.log_lo, q.log_hi, q.log_name, q.lane, q.max_attempts, q.settled_to as from_lo,
           coalesce(until, at_ + make_interval(secs => least(q.lease, 3e9))) as until
        into this
        from spanmq.queue q
        where q.folded_name = lower(queue_name) and not q.is_unlogged and q.is_plain
          and has_table_privilege(coalesce(nullif(current_setting('role'), 'none'), session_user), q.queue_view, 'update');
    if current_setting('spanmq.hints', true) <> '' then
        hint := spanmq.get_hint(this.queue_id, at_);
        this.from_lo := greatest(this.from_lo, hint.ready_from);
        due_from := hint.due_from;
    end if;
    started_at := clock_timestamp();
    -- As in lease_one(). A receiver asks for as many as it has room for, and mostly there is one: then nothing more is asked.
    -- Who asks for none, a worker that warms a session, must hold none: others would skip it.
    select s.lo, s.n, s.ids, s.attempts + 1 as attempt,
           s.n >= quantity or exists (select from spanmq.span b where b.queue_id = this.queue_id and b.state = 'r' and b.lo > s.lo
                                      order by b.queue_id, b.lo limit 1) as has_more
        into first
        from spanmq.span s
        where s.queue_id = this.queue_id and s.state = 'r' and s.lo >= this.from_lo and quantity >= 1
          and not exists (select from spanmq.span d where d.queue_id = this.queue_id and d.state <> 'r' and d.vt <= at_ and d.vt >= due_from)
        order by s.queue_id, s.lo limit 1 for update skip locked;
    covered := first.n;
    last := first;
    if not found then
        return null;
    elsif spanmq.is_slow(clock_timestamp() - started_at) then
        perform spanmq.start_hint(this.queue_id, spanmq.hint_from(hint, this.from_lo), first.lo, at_, clock_timestamp() - started_at);
    elsif hint.ready_until is not null and (first.lo > hint.ready_from + 1000 or random() < 0.03) then
        perform spanmq.set_hint(this.queue_id, hint, first.lo, null, at_, null);
    end if;
    if first.ids is not null or first.attempt > this.max_attempts then
        return null;
    end if;
    if not first.has_more then
        quantity := covered;
    elsif covered < quantity then
        select sum(k.n) as n, max(k.lo) as lo, max(k.lo + k.n) as ends_at into last
            from (select s.lo, s.n from spanmq.span s
                  where s.queue_id = this.queue_id and s.state = 'r' and s.lo > first.lo and s.lo < first.lo + quantity and s.lease_id = 0
                    and s.ids is null and s.attempts = first.attempt - 1
                  order by s.queue_id, s.lo for update skip locked) k;
        covered := first.n + coalesce(last.n, 0);
        -- Where as many messages end as began, there is no gap between the spans.
        if last.ends_at <> first.lo + covered then
            return null;
        end if;
        if covered < quantity then
            -- Behind these may be a span with gaps, of other attempts, or one that somebody holds.
            if exists (select from spanmq.span s where s.queue_id = this.queue_id and s.state = 'r' and s.lo >= first.lo + covered
                       order by s.queue_id, s.lo limit 1)
            then
                return null;
            end if;
            quantity := covered;
        end if;
    end if;
    if covered > quantity then
        perform spanmq.leave_behind(this.queue_id, last.lo, (first.lo + quantity - last.lo)::int);
    end if;
    update spanmq.span s
        set lease_id = lease, state = 'l', n = least(s.n, first.lo + quantity - s.lo), attempts = first.attempt, vt = this.until, last_read_at = at_
        where s.queue_id = this.queue_id and s.lo >= first.lo and s.lo < first.lo + quantity and s.lease_id = 0;
    if this.until <= at_ then
        perform spanmq.forget_hint(this.queue_id);
    end if;
    if first.lo < this.log_lo or first.lo + quantity - 1 > this.log_hi then
        this.log_name := spanmq.log_of(this.queue_id, first.lo, first.lo + quantity - 1);
        this.lane := null;
    end if;
    return (first.lo, quantity, first.attempt, this.log_name, this.queue_id, this.until, this.lane);
end $$;

-- Makes all but the first `quantity` messages of a span without gaps, which the caller has locked, a span of their own. The caller
-- sees to the span itself.
create or replace function spanmq.leave_behind(this_queue int, this_lo bigint, quantity int) returns void
language plpgsql as $$
begin
    insert into spanmq.span (queue_id, lo, n, attempts, state, vt, last_read_at, group_hash, group_key, priority)
        select s.queue_id, s.lo + quantity, s.n - quantity, s.attempts, s.state, s.vt, s.last_read_at, s.group_hash, s.group_key, s.priority
        from spanmq.span s
        where s.queue_id = this_queue and s.lo = this_lo and s.lease_id = 0;
end $$;
