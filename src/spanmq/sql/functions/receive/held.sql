-- Messages under leases, other than settling them.

-- Leases messages that the caller has locked, after it saw that the bound is not ahead of the clock, in later: every
-- row there is written with a vt that is not before the clock (bound.sql). alone: as later.alone; a delivery that is
-- only reserved (1) does not count as an attempt.
create or replace function spanmq_core.lease_ids(
    this_queue int, ids bigint[], lease bigint, until timestamptz, at_ timestamptz, alone int
) returns void
language plpgsql as $$
declare
    n int;
begin
    perform spanmq_core.heed_clock(this_queue);
    update spanmq_core.later l
        set lease_id = lease, attempts = l.attempts + (lease_ids.alone <> 1)::int,
            lost = spanmq_core.losses(l.lost, l.lease_id, l.alone), alone = lease_ids.alone,
            vt = greatest(until, at_, clock_timestamp()), last_read_at = at_
        where l.queue_id = this_queue and l.msg_id = any (ids);
    get diagnostics n = row_count;
    if n < cardinality(ids) then
        with gone as (
            delete from spanmq_core.state s where s.queue_id = this_queue and s.msg_id = any (ids) returning s.*)
        insert into spanmq_core.later (queue_id, msg_id, lease_id, attempts, lost, alone, vt, last_read_at, priority,
                                       group_hash, group_key)
            select g.queue_id, g.msg_id, lease, g.attempts + (lease_ids.alone <> 1)::int,
                   spanmq_core.losses(g.lost, g.lease_id, g.alone), lease_ids.alone,
                   greatest(until, at_, clock_timestamp()), at_, g.priority, g.group_hash, g.group_key
            from gone g;
    end if;
end $$;

-- Moves messages from leases that have run out to a new, unknown one: those of `late` that are in the groups of a claim
-- (ids), and not part of it. Otherwise a worker that overslept could still settle or extend a message that follows one
-- which another worker has. The caller has locked them.
create or replace function spanmq_core.disown(this_queue int, late bigint[], ids bigint[], at_ timestamptz) returns void
language plpgsql as $$
declare
    new_lease bigint := spanmq_core.new_lease(at_);
    groups bigint[] := array(
        select distinct coalesce(u.group_hash, 0) from spanmq_core.unsettled u
        where u.queue_id = this_queue and u.msg_id = any (ids));
begin
    late := spanmq_core.without(late, ids);
    update spanmq_core.state s set lease_id = new_lease
        where s.queue_id = this_queue and s.msg_id = any (late) and coalesce(s.group_hash, 0) = any (groups);
    update spanmq_core.later l set lease_id = new_lease
        where l.queue_id = this_queue and l.msg_id = any (late) and coalesce(l.group_hash, 0) = any (groups);
end $$;

-- Locks those of the messages that no lease holds, or an expired one, and no other transaction has locked.
create or replace function spanmq_core.lock_free(this_queue int, msg_ids bigint[], at_ timestamptz) returns bigint[]
language plpgsql as $$
begin
    return array(
        select s.msg_id from spanmq_core.state s
        where s.queue_id = this_queue and s.msg_id = any (msg_ids)
          and (s.lease_id = 0 or s.lease_id > 0 and s.vt <= at_)
        order by s.queue_id, s.msg_id for update skip locked)
    || array(
        select l.msg_id from spanmq_core.later l
        where l.queue_id = this_queue and l.msg_id = any (msg_ids)
          and (l.lease_id = 0 or l.lease_id > 0 and l.vt <= at_)
        order by l.queue_id, l.msg_id for update skip locked);
end $$;

-- Locks those of these messages that a lease holds, and in an ordered queue, `behind`, what is leased of their groups
-- behind them: in the order of their ids, as every settlement does. Ends those that were cancelled, and returns the
-- others. Raises MQ002 for a lease that is none.
create or replace function spanmq_core.lock_leased(
    this spanmq_core.queue, msg_ids bigint[], lease bigint, out ids bigint[], out behind bigint[]
)
language plpgsql as $$
declare
    bound spanmq_core.bound;
begin
    perform spanmq_core.check_lease(lease, msg_ids);
    if this.has_plain_policy or not (spanmq_core.policy_of(this.queue_id)).ordered then
        ids := spanmq_core.lock_ids(this.queue_id, msg_ids, lease, '{}'::bigint[]);
        behind := '{}';
    else
        bound := spanmq_core.bound_of(this.queue_id);
        behind := array(
            select f.msg_id
            from (select u.group_hash, min(u.msg_id) as first_id from spanmq_core.unsettled u
                  where u.queue_id = this.queue_id and u.msg_id = any (msg_ids) and u.lease_id = lease
                  group by u.group_hash) g
            cross join lateral (
                select l.msg_id from spanmq_core.later l
                where l.queue_id + 0 = this.queue_id and l.group_hash = g.group_hash and l.group_hash is not null
                  and l.vt >= bound.due_from and l.lease_id + 0 > 0 and l.msg_id > g.first_id
                union all
                select l.msg_id from spanmq_core.later l
                where g.group_hash is null and l.queue_id + 0 = this.queue_id and l.vt >= bound.due_from
                  and l.group_hash is null and l.lease_id + 0 > 0 and l.msg_id > g.first_id
                union all
                -- A claim in place may have been under way as the queue became an ordered one: see rows_of().
                select s.msg_id
                from (select * from spanmq_core.state s
                      where s.queue_id + 0 = this.queue_id and s.group_hash = g.group_hash
                        and s.group_hash is not null and s.msg_id > g.first_id
                      order by s.queue_id + 0, s.group_hash, s.msg_id limit 100) s
                where s.lease_id > 0
                union all
                select s.msg_id
                from (select * from spanmq_core.state s
                      where g.group_hash is null and s.queue_id = this.queue_id
                        and s.msg_id > greatest(g.first_id, bound.from_id - 1)
                      order by s.queue_id, s.msg_id limit 100) s
                where s.group_hash is null and s.lease_id > 0 offset 0) f);
        ids := spanmq_core.lock_ids(this.queue_id, msg_ids, lease, behind);
        -- Under the locks: what another session has claimed of a group meanwhile has taken the rest from the lease.
        select coalesce(array_agg(w.msg_id) filter (where w.is_named), '{}'),
               coalesce(array_agg(w.msg_id) filter (where not w.is_named and w.msg_id > w.first_id), '{}')
            into ids, behind
            from (select n.*, min(n.msg_id) filter (where n.is_named) over (partition by n.group_hash) as first_id
                  from (select u.msg_id, u.group_hash,
                               u.msg_id in (select unnest(msg_ids)) and u.lease_id = lease as is_named
                        from spanmq_core.unsettled u where u.queue_id = this.queue_id and u.msg_id = any (ids)) n) w;
    end if;
    ids := spanmq_core.end_cancelled(this, ids);
end $$;
