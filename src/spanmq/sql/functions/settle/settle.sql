-- Taking messages out by their ids: delete, archive, ack, nack and all other ends of a lease.
--
-- Lock order: rows of state, ascending by id -> rows of later, ascending. A message goes from state to later and never
-- back, and within later its row is updated in place: so whoever has looked in state looks in later in a new statement,
-- and finds it there, changed or not.

-- Locks these messages and returns the ids of those that are in the queue.
--   fence     null: wherever they are, but for batches of receivers; else only those of this lease, or with 0 only
--             those of none
--   behind    locks and returns these, too, if any lease holds them
create or replace function spanmq_core.lock_ids(this_queue int, msg_ids bigint[], fence bigint, behind bigint[])
returns bigint[]
language plpgsql as $$
declare
    mine bigint[] := array(
        select s.msg_id from spanmq_core.state s
        where s.queue_id = this_queue and s.msg_id = any (msg_ids || behind)
          and (s.lease_id = fence or fence is null and s.lease_id >= 0
               or s.lease_id > 0 and s.msg_id = any (behind))
        order by s.queue_id, s.msg_id for update);
begin
    if cardinality(mine) = cardinality(msg_ids) and behind = '{}' then
        return mine;
    end if;
    return mine || array(
        select l.msg_id from spanmq_core.later l
        where l.queue_id = this_queue and l.msg_id = any (msg_ids || behind)
          and (l.lease_id = fence or fence is null and l.lease_id >= 0
               or l.lease_id > 0 and l.msg_id = any (behind))
        order by l.queue_id, l.msg_id for update);
end $$;

-- Deletes these messages. Returns those that were in the queue: their ids, attempts, times of the last read and vts.
-- fence: as in lock_ids().
create or replace function spanmq_core.take_out(
    this_queue int, msg_ids bigint[], fence bigint, out ids bigint[], out attempts int[], out read_ats timestamptz[],
    out vts timestamptz[]
)
language plpgsql as $$
declare
    late record;
begin
    with d as (
        delete from spanmq_core.state s
            where s.queue_id = this_queue and s.msg_id = any (msg_ids)
              and (s.lease_id = fence or fence is null and s.lease_id >= 0)
            returning s.msg_id, s.attempts, s.last_read_at, s.vt)
    select coalesce(array_agg(d.msg_id), '{}'), array_agg(d.attempts), array_agg(d.last_read_at), array_agg(d.vt)
        into ids, attempts, read_ats, vts from d;
    if cardinality(ids) < cardinality(msg_ids) then
        with d as (
            delete from spanmq_core.later l
                where l.queue_id = this_queue and l.msg_id = any (msg_ids)
                  and (l.lease_id = fence or fence is null and l.lease_id >= 0)
                returning l.msg_id, l.attempts, l.last_read_at, l.vt)
        select array_agg(d.msg_id) as ids, array_agg(d.attempts) as attempts, array_agg(d.last_read_at) as read_ats,
               array_agg(d.vt) as vts
            into late from d;
        ids := ids || late.ids;
        attempts := attempts || late.attempts;
        read_ats := read_ats || late.read_ats;
        vts := vts || late.vts;
    end if;
end $$;

-- The same, and wakes receivers that wait for messages they blocked, and clients that wait for their end. Returns the
-- ids.
create or replace function spanmq_core.remove(
    this spanmq_core.queue, msg_ids bigint[], fence bigint
) returns bigint[]
language plpgsql as $$
declare
    gone bigint[];
begin
    perform spanmq_core.wake_behind(this, msg_ids, fence);
    gone := (spanmq_core.take_out(this.queue_id, msg_ids, fence)).ids;
    if this.is_watched then
        perform spanmq_core.note_settled(this, gone);
    end if;
    return gone;
end $$;

-- Returns messages that the caller has locked to the queue, each hidden until its retry_at(). A delivery alone
-- has ended with this. undelivered: this delivery does not count as an attempt (one that was only reserved never did),
-- and if it was alone, so is the next. With jitter those of a block of ids with equal attempts have the same part of
-- their time: messages that failed together are retried together, and cost one failure.
create or replace function spanmq_core.give_back(
    this_queue int, ids bigint[], undelivered boolean, at_ timestamptz, base double precision, factor double precision,
    most double precision, jitter boolean
) returns void
language plpgsql as $$
declare
    seed bigint := case when jitter then (random() * 9e18)::bigint end;
    now_at timestamptz;
    n int;
begin
    perform spanmq_core.heed_clock(this_queue);
    now_at := clock_timestamp();
    update spanmq_core.later l
        set vt = greatest(spanmq_core.retry_at(l.msg_id, l.attempts, at_, base, factor, most, seed), now_at),
            lease_id = 0, attempts = greatest(l.attempts - (undelivered and l.alone <> 1)::int, 0),
            alone = case when undelivered then least(l.alone, 1) else l.alone & 1 end,
            last_read_at = case when not undelivered or l.attempts > (l.alone <> 1)::int then l.last_read_at end
        where l.queue_id = this_queue and l.msg_id = any (ids);
    get diagnostics n = row_count;
    if n < cardinality(ids) then
        with gone as (
            delete from spanmq_core.state s where s.queue_id = this_queue and s.msg_id = any (ids) returning s.*)
        insert into spanmq_core.later (queue_id, msg_id, attempts, lost, alone, vt, last_read_at, priority, group_hash,
                                       group_key)
            select g.queue_id, g.msg_id, greatest(g.attempts - undelivered::int, 0), g.lost, g.alone,
                   greatest(spanmq_core.retry_at(g.msg_id, g.attempts, at_, base, factor, most, seed), now_at),
                   case when not undelivered or g.attempts > 1 then g.last_read_at end, g.priority, g.group_hash,
                   g.group_key
            from gone g;
    end if;
end $$;

-- When a message is tried again after this many attempts: least(most, base * factor^(attempts - 1)) seconds, at most a
-- century, after at_; with a seed, a part of that, the same for a block of ids with equal attempts.
create or replace function spanmq_core.retry_at(
    id bigint, attempts int, at_ timestamptz, base double precision, factor double precision, most double precision,
    seed bigint
) returns timestamptz
language sql immutable as $$
    select at_ + make_interval(secs => least(3e9, case
        when base <= 0 then 0
        -- In logarithms, for the power may be larger than any number; and so it may behind a base that is next to 0.
        when ln(base) + greatest(attempts - 1, 0) * ln(factor) >= ln(least(greatest(most, 1e-9), 3e9)) then most
        else base * power(factor, least(greatest(attempts - 1, 0), 690 / greatest(ln(factor), 1e-9))) end)
        * case when seed is null then 1
          else (hashint8extended(id / 256 * 1024 + attempts, seed) & 1048575) / 1048576::double precision end)
$$;

-- Takes all messages of a queue out of it. Returns their number. Messages sent meanwhile are removed and counted, too;
-- it ends when a statement sees none, although it may have waited for transactions that moved the messages it saw.
-- Messages that this statement did not see stay, and are recorded (was_purged).
create or replace function spanmq_core.purge(this_queue int) returns bigint
language plpgsql as $$
declare
    purged bigint := 0;
    n bigint;
    sees_any boolean;
    seen_in pg_snapshot;
    unpublished int8multirange;
begin
    loop
        delete from spanmq_core.state s
            where s.ctid = any (array(
                select k.ctid from spanmq_core.state k where k.queue_id = this_queue
                order by k.queue_id, k.msg_id for update));
        get diagnostics n = row_count;
        purged := purged + n;
        delete from spanmq_core.later s
            where s.ctid = any (array(
                select k.ctid from spanmq_core.later k where k.queue_id = this_queue
                order by k.queue_id, k.msg_id for update));
        get diagnostics n = row_count;
        purged := purged + n;
        select exists (select from spanmq_core.unsettled u where u.queue_id = this_queue), pg_current_snapshot(),
               -- Ids of bulk writes that are reserved and not published: of these and the messages one statement sees
               -- one.
               (select coalesce(range_agg(int8range(b.lo, b.hi, '[]')), '{}') from spanmq_core.bulk_block b
                where b.queue_id = coalesce((select p.log_id from spanmq_core.subscription p
                                             where p.queue_id = this_queue), this_queue))
            into sees_any, seen_in, unpublished;
        exit when not sees_any;
    end loop;
    if purged > 0 then
        insert into spanmq_core.upkeep (queue_id, purged_in, purged_by, purged_on, spared)
            values (this_queue, seen_in, pg_current_xact_id(), (select c.system_identifier from pg_control_system() c),
                    unpublished)
            -- Messages that an earlier purge spared are seen or spared by this one.
            on conflict (queue_id) do update
                set purged_in = excluded.purged_in, purged_by = excluded.purged_by, purged_on = excluded.purged_on,
                spared = excluded.spared;
    end if;
    return purged;
end $$;
