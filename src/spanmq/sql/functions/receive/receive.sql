-- Receiving: read and pop as in PGMQ, receive with a fencing token.

create or replace function spanmq_core.new_lease(at_ timestamptz) returns bigint
language sql volatile as $$
    -- Time first: a lease number that a crash lost (claims may be committed asynchronously) must not come again.
    select (date_part('epoch', at_) * 1000)::bigint << 20 | (nextval('spanmq_core.lease_number') & 1048575)
$$;

-- The queue of that name, with its bound, where a claim may lease the first messages of state in place: the caller has
-- the right, the policy does not order or limit, the clock was not set back, and the snapshot is not old. In SQL, so
-- that it is a part of the statement.
create or replace function spanmq_core.usual_queue(queue_name text, at_ timestamptz)
returns table (
    queue_id int, ids regclass, log_name text, log_lo bigint, log_hi bigint, lane int, lease double precision,
    max_attempts int, from_id bigint, due_from timestamptz
)
language sql stable as $$
    select q.queue_id, q.ids, q.log_name, q.log_lo, q.log_hi, q.lane, q.lease, q.max_attempts, b.from_id, b.due_from
    from spanmq_core.queue q
    cross join lateral (
        select b.*, b.xmax from spanmq_core.bound b
        where b.queue_id = q.queue_id order by b.queue_id desc, b.number desc limit 1) b
    where q.folded_name = lower(queue_name collate "C") and q.is_plain and greatest(b.due_from, b.mark_at) <= at_
      -- A step that is not committed has deleted the bound.
      and (b.xmax = '0' or not spanmq_core.is_marked_after(at_))
      and spanmq_core.sees_now() and has_table_privilege(q.queue_view, 'select')
$$;

-- Leases the first `quantity` visible messages of state where they are, if none of later is due. `untried`: only if no
-- receiver has had any of them, else none. read() and receive() have the same statement for one message.
create or replace function spanmq_core.claim_in_place(
    this_queue int, from_id bigint, due_from timestamptz, quantity int, untried boolean, lease bigint, at_ timestamptz,
    until timestamptz
) returns spanmq_core.claimed
language plpgsql as $$
declare
    took spanmq_core.claimed;
begin
    with found as materialized (
        select k.ctid as place, k.attempts from spanmq_core.state k
        where k.queue_id = this_queue and k.msg_id >= from_id and k.vt <= at_
          and not exists (select from spanmq_core.later d
                          where d.queue_id + 0 = this_queue and d.vt >= due_from and d.vt <= at_)
        order by k.queue_id, k.msg_id limit quantity for update skip locked),
    leased as (
        update spanmq_core.state s
            set vt = until, lease_id = lease, attempts = s.attempts + 1, last_read_at = at_
            where s.ctid = any (array(select f.place from found f))
              and not (untried and exists (select from found f where f.attempts > 0))
            returning s.msg_id, s.attempts)
    select min(l.msg_id), max(l.msg_id), count(*), max(l.attempts) into took from leased l;
    return took;
end $$;

-- Whether a message may be visible that a claim in place has not taken: what others hold now, or have changed since, is
-- looked for again in new statements.
create or replace function spanmq_core.is_due(this_queue int, from_id bigint, due_from timestamptz, at_ timestamptz)
returns boolean
language plpgsql as $$
begin
    return exists (select from spanmq_core.later d
                   where d.queue_id + 0 = this_queue and d.vt >= due_from and d.vt <= at_)
        or exists (select from spanmq_core.state k
                   where k.queue_id = this_queue and k.msg_id >= from_id and k.vt <= at_);
end $$;

-- The messages that a claim in place has leased between these ids, ascending. lane and log_name: of the segment that
-- has them, null if the caller doesn't know.
create or replace function spanmq_core.fetch_claimed(
    this_queue int, lane int, log_name text, first_id bigint, last_id bigint, lease bigint
) returns setof pgmq.message_record
language plpgsql rows 100 as $$
declare
    rows record;
begin
    select array_agg(s.msg_id) as ids, array_agg(s.attempts) as attempts, array_agg(s.last_read_at) as read_ats,
           array_agg(s.vt) as vts
        into rows
        from (select * from spanmq_core.state s
              where s.queue_id = this_queue and s.msg_id between first_id and last_id and s.lease_id = lease
              order by s.queue_id, s.msg_id) s;
    return query select * from spanmq_core.fetch_some_by_lane(
        lane, coalesce(log_name, spanmq_core.log_of(this_queue, first_id, last_id)), rows.ids, rows.attempts,
        rows.read_ats, rows.vts);
end $$;

-- Leases up to qty visible messages for vt seconds, lowest ids first, and returns them in that order. With
-- `conditional`, only messages that contain it (message @> conditional) are leased. The call then reads every visible
-- message before them.
create or replace function spanmq_call.read(queue_name text, vt integer, qty integer, conditional jsonb default '{}')
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    at_ timestamptz := clock_timestamp();
    until timestamptz := at_ + make_interval(secs => vt);
    lease bigint := spanmq_core.new_lease(at_);
    this record;
    took spanmq_core.claimed;
    one pgmq.message_record;
    is_newest boolean;
    n int := 0;
begin
    if qty > 0 and conditional = '{}' and until is not null then
        select * into this from spanmq_core.usual_queue(queue_name, at_);
        if found then
            if qty = 1 then
                update spanmq_core.state s
                    set vt = until, lease_id = lease, attempts = s.attempts + 1, last_read_at = at_
                    where s.ctid = (
                        select k.ctid from spanmq_core.state k
                        where k.queue_id = this.queue_id and k.msg_id >= this.from_id and k.vt <= at_
                          and not exists (select from spanmq_core.later d
                                          where d.queue_id + 0 = this.queue_id and d.vt >= this.due_from
                                            and d.vt <= at_)
                        order by k.queue_id, k.msg_id limit 1 for update skip locked)
                      and (s.attempts = 0 or this.max_attempts is null)
                    returning s.msg_id, s.msg_id, 1, s.attempts into took;
            else
                took := spanmq_core.claim_in_place(this.queue_id, this.from_id, this.due_from, qty,
                                                   this.max_attempts is not null, lease, at_, until);
            end if;
            if took.first_id is not null then
                if took.n = 1 and took.first_id & 127 = 0
                    or took.n > 1 and took.first_id >> 10 <> (took.last_id + 1) >> 10 then
                    perform spanmq_core.move_bound(this.queue_id, this.ids);
                end if;
                if qty = 1 and took.first_id > this.log_lo and took.first_id <= this.log_hi then
                    one := spanmq_core.fetch_one_by_lane(this.lane, this.log_name, took.first_id, took.attempts, at_,
                                                         until);
                    if one.msg_id is not null then
                        return next one;
                        return;
                    end if;
                elsif took.first_id > this.log_lo and took.last_id <= this.log_hi and took.attempts = 1
                    and took.last_id - took.first_id = took.n - 1 then
                    return query select * from spanmq_core.fetch_by_lane(this.lane, this.log_name, took.first_id,
                                                                         took.last_id + 1, at_, until);
                    get diagnostics n = row_count;
                else
                    is_newest := took.first_id > this.log_lo and took.last_id <= this.log_hi;
                    return query select * from spanmq_core.fetch_claimed(
                        this.queue_id, case when is_newest then this.lane end,
                        case when is_newest then this.log_name end, took.first_id, took.last_id, lease);
                    get diagnostics n = row_count;
                end if;
                if n < took.n then
                    perform spanmq_core.settle_missing(spanmq_core.find_queue(queue_name), array(
                        select s.msg_id from spanmq_core.state s
                        where s.queue_id = this.queue_id and s.msg_id between took.first_id and took.last_id
                          and s.lease_id = lease));
                    if n = 0 then
                        return query select * from spanmq_call.read(queue_name, vt, qty, conditional);
                    end if;
                end if;
                return;
            elsif not spanmq_core.is_due(this.queue_id, this.from_id, this.due_from, at_) then
                return;
            end if;
        end if;
    end if;
    return query select * from spanmq_core.read_any(queue_name, vt, qty, conditional, null::text);
end $$;

-- Goes on with read() in every case but the usual one. mode: null, or that of a grouped read (take_groups).
create or replace function spanmq_core.read_any(queue_name text, vt int, qty int, conditional jsonb, mode text)
returns setof pgmq.message_record
language plpgsql as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue_name);
    at_ timestamptz := clock_timestamp();
    until timestamptz := spanmq_core.after(vt, 'vt', at_);
    ids bigint[];
    n int;
begin
    perform spanmq_core.check_quantity(qty);
    ids := spanmq_core.claim(this, qty, spanmq_core.new_lease(at_), until, at_, conditional, mode, false, null::int,
                             false);
    return query select * from spanmq_core.fetch(this, ids, until, mode is distinct from 'rr');
    get diagnostics n = row_count;
    if n < cardinality(ids) then
        perform spanmq_core.settle_missing(this, ids);
        if n = 0 then
            return query select * from spanmq_core.read_any(queue_name, vt, qty, conditional, mode);
        end if;
    end if;
end $$;

-- Removes up to qty visible messages from the queue and returns them. Without a lease, they are lost if the caller
-- fails.
create or replace function spanmq_call.pop(queue_name text, qty integer default 1) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue_name);
    at_ timestamptz := clock_timestamp();
    ids bigint[];
    n int;
begin
    perform spanmq_core.check_quantity(qty);
    ids := spanmq_core.claim(this, qty, null::bigint, null::timestamptz, at_, '{}'::jsonb, null::text, null::boolean,
                             null::int, false);
    return query select * from spanmq_core.fetch(this, ids, null::timestamptz, true);
    get diagnostics n = row_count;
    perform spanmq_core.take_out(this.queue_id, ids, null::bigint);
    if n < cardinality(ids) then
        perform spanmq_core.settle_missing(this, ids);
        if n = 0 then
            return query select * from spanmq_call.pop(queue_name, qty);
        end if;
    end if;
end $$;

-- Leases up to qty visible messages for `lease` seconds (null: as the queue's policy says), lowest ids first, and
-- returns them in that order; by priority, the highest first, then by id, where messages have one and no order of
-- groups counts. All have one lease_id, the token that ack() needs. A slot is a set of messages that one transaction
-- will settle: with `slots` = 1 this is the whole batch, and with one slot for each concurrent handler it is the share
-- of a handler. With alone, the caller is a worker that handles nothing else beside a message of slot 0. Such a
-- message has no body yet and is only reserved: begin_alone() returns it. Other callers get such a message alone,
-- while no other one is in flight. retries limits the messages that a receiver had before: at most this number, and at
-- most half of the batch; if no others are visible, one more than this number; null: any number. newest: only messages
-- that no receiver has had, the highest ids first; if there are none, one other message. retries and newest have no
-- effect if groups have an order or a limit. Priorities come before `retries`.
create or replace function spanmq_call.receive(
    queue text, qty integer default 1, lease double precision default null, slots integer default 1,
    alone boolean default false, retries integer default null, newest boolean default false
)
returns setof spanmq.leased_message
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    at_ timestamptz := clock_timestamp();
    this_lease bigint := spanmq_core.new_lease(at_);
    until timestamptz := case when lease between -3e9 and 3e9 then at_ + make_interval(secs => lease) end;
    this record;
    took spanmq_core.claimed;
    is_newest boolean;
    n int;
begin
    if qty > 0 and slots = 1 and (lease is null or until is not null) and alone is not null and not newest
        and coalesce(retries, 0) >= 0 then
        select * into this from spanmq_core.usual_queue(queue, at_);
        if found then
            until := coalesce(until, at_ + make_interval(secs => least(this.lease, 3e9)));
            if qty = 1 then
                update spanmq_core.state s
                    set vt = until, lease_id = this_lease, attempts = s.attempts + 1, last_read_at = at_
                    where s.ctid = (
                        select k.ctid from spanmq_core.state k
                        where k.queue_id = this.queue_id and k.msg_id >= this.from_id and k.vt <= at_
                          and not exists (select from spanmq_core.later d
                                          where d.queue_id + 0 = this.queue_id and d.vt >= this.due_from
                                            and d.vt <= at_)
                        order by k.queue_id, k.msg_id limit 1 for update skip locked)
                      and s.attempts = 0
                    returning s.msg_id, s.msg_id, 1, s.attempts into took;
            else
                took := spanmq_core.claim_in_place(this.queue_id, this.from_id, this.due_from, qty, true, this_lease,
                                                   at_, until);
            end if;
            if took.first_id is not null then
                if took.n = 1 and took.first_id & 127 = 0
                    or took.n > 1 and took.first_id >> 10 <> (took.last_id + 1) >> 10 then
                    perform spanmq_core.move_bound(this.queue_id, this.ids);
                end if;
                if took.first_id > this.log_lo and took.last_id <= this.log_hi
                    and took.last_id - took.first_id = took.n - 1 then
                    return query select f.*, this_lease, 1, 1, f.headers->>'x-pgmq-group', null::text
                        from spanmq_core.fetch_by_lane(this.lane, this.log_name, took.first_id, took.last_id + 1, at_,
                                                       until) f;
                else
                    is_newest := took.first_id > this.log_lo and took.last_id <= this.log_hi;
                    return query select f.*, this_lease, 1, f.read_ct, f.headers->>'x-pgmq-group', null::text
                        from spanmq_core.fetch_claimed(
                            this.queue_id, case when is_newest then this.lane end,
                            case when is_newest then this.log_name end, took.first_id, took.last_id, this_lease) f;
                end if;
                get diagnostics n = row_count;
                if n < took.n then
                    perform spanmq_core.settle_missing(spanmq_core.find_queue(queue), array(
                        select s.msg_id from spanmq_core.state s
                        where s.queue_id = this.queue_id and s.msg_id between took.first_id and took.last_id
                          and s.lease_id = this_lease));
                    if n = 0 then
                        return query
                            select * from spanmq_call.receive(queue, qty, lease, slots, alone, retries, newest);
                    end if;
                end if;
                return;
            elsif not spanmq_core.is_due(this.queue_id, this.from_id, this.due_from, at_) then
                return;
            end if;
        end if;
    end if;
    return query
        select * from spanmq_core.receive_any(queue, qty, lease, slots, alone, retries, newest, at_, this_lease);
end $$;

-- Goes on with receive() in every case but the usual one; see read_any().
create or replace function spanmq_core.receive_any(
    queue text, qty int, lease double precision, slots int, alone boolean, retries int, newest boolean,
    at_ timestamptz, lease_id bigint
) returns setof spanmq.leased_message
language plpgsql as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    policy spanmq_core.policy := spanmq_core.policy_of(this.queue_id);
    until timestamptz := spanmq_core.after(coalesce(lease, least(this.lease, 3e9)), 'lease', at_);
    ids bigint[];
    n int;
begin
    perform spanmq_core.check_quantity(qty);
    if slots is null or slots < 1 then
        raise exception 'slots must be at least 1, got: %', slots
            using errcode = 'MQ002', hint = 'Pass 1 if one transaction settles the whole batch.';
    end if;
    perform spanmq_core.raise_if(alone is null, 'alone cannot be NULL', 'Omit it for false.');
    if newest is null or retries < 0 then
        perform spanmq_core.raise_if(newest is null, 'newest cannot be NULL', 'Omit it for false.'),
            spanmq_core.raise_if(true, format('retries cannot be negative, got: %s', retries),
                                 'Omit it for any number.');
    end if;
    -- Unlike PGMQ's read(): where the policy sets no number of attempts, its default holds.
    this.max_attempts := coalesce(this.max_attempts, spanmq_core.attempts_of(policy));
    ids := spanmq_core.claim(this, qty, lease_id, until, at_, '{}'::jsonb, null::text, alone, retries, newest);
    if ids = '{}' then
        return;
    end if;
    if alone and exists (select from spanmq_core.later l where l.queue_id = this.queue_id and l.msg_id = ids[1]
                         and l.alone + 0 > 0) then
        return query select m.msg_id, m.read_ct, m.enqueued_at, m.last_read_at, m.vt, null::jsonb, null::jsonb,
                            lease_id, 0, m.read_ct + 1, spanmq_core.group_of(m.headers), null::text
            from spanmq_core.fetch(this, ids, until, true) m;
    else
        return query select *
            from spanmq_core.fetch_leased(this, ids, until, lease_id, slots,
                                          not this.uses_priority or spanmq_core.regards_groups(policy));
    end if;
    get diagnostics n = row_count;
    if n < cardinality(ids) then
        perform spanmq_core.settle_missing(this, ids);
        if n = 0 then
            return query select * from spanmq_call.receive(queue, qty, lease, slots, alone, retries, newest);
        end if;
    end if;
end $$;

-- As read, repeated until messages come or the time is over. As in PGMQ, the call sleeps inside one statement, with a
-- connection and a snapshot; spanmq's own clients poll from outside. With 0 seconds it returns nothing, as in PGMQ.
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
            return query select * from spanmq_core.read_any(queue_name, vt, qty, conditional, mode);
        end if;
        exit when found;
        perform spanmq_core.raise_if(poll_interval_ms is null or poll_interval_ms < 0,
            format('poll_interval_ms must be 0 or more, got: %s', coalesce(poll_interval_ms::text, 'NULL')),
            'Omit it for 100.');
        perform pg_sleep(greatest(poll_interval_ms, 1) / 1000.0);
    end loop;
end $$;
