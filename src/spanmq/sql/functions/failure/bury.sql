-- Dead-lettering: messages that were taken out of the queue become dead letters, in the same transaction. So after a
-- crash at any instant a message is in exactly one of queue, archive and dead letters.

-- Makes dead letters of messages, which the caller has locked, with their attempts and the story of each, and takes
-- them out of the queue. fence: that of a batch of a receiver which holds them, else null. Returns how many. Locks
-- nothing that others need.
create or replace function spanmq_core.bury(
    this spanmq_core.queue, ids bigint[], at_ timestamptz, reason spanmq_core.reason, fence bigint
) returns bigint
language plpgsql as $$
declare
    n bigint;
begin
    if ids = '{}' then
        return 0;
    end if;
    -- Where the policy wants it, the groups of dead letters wait until these are redriven or discarded. Messages
    -- without a group wait for nothing.
    insert into spanmq_core.blocked_group (queue_id, group_hash, msg_id, group_key)
        select this.queue_id, u.group_hash, u.msg_id, u.group_key
        from spanmq_core.unsettled u
        where u.queue_id = this.queue_id and u.msg_id = any (ids) and u.group_key is not null
          and exists (select from spanmq_core.policy p where p.queue_id = this.queue_id and p.dead_letter_blocks_group)
        on conflict do nothing;
    insert into spanmq_core.dead_letter (queue_id, msg_id, message, headers, group_key, priority, attempts, enqueued_at,
                                         first_failed_at, last_failed_at, dead_at, category, error, error_class,
                                         traceback, worker, history)
        select this.queue_id, m.msg_id, m.message, m.headers, u.group_key, u.priority,
               m.read_ct, m.enqueued_at, coalesce(h.first_failed_at, at_), at_, at_, reason.category, reason.error,
               reason.error_class, reason.traceback, reason.worker, coalesce(h.history, '[]')
        from spanmq_core.fetch(this, ids, null::timestamptz, true) m
        left join lateral (select s.group_key, s.priority from spanmq_core.unsettled s
                           where s.queue_id = this.queue_id and s.msg_id = m.msg_id offset 0) u on true
        left join (
            -- The newest 500: one that failed without end has more than a value can hold.
            select k.id, min(k.failed_at) as first_failed_at,
                   jsonb_agg(to_jsonb(k) - '{id,place}'::text[] order by k.failed_at, k.attempt)
                       filter (where k.place <= 500) as history
            from (
                -- By blocks: looking each message up would read every failure of its block for each of its neighbours.
                select e.id, f.attempt, f.failed_at, f.outcome, f.category, f.error, f.error_class, f.traceback,
                       f.worker, f.retry_at,
                       row_number() over (partition by e.id order by f.failed_at desc, f.attempt desc) as place
                from (select distinct id / 256 as block from unnest(bury.ids) id) b
                join spanmq_core.failure f on f.queue_id = this.queue_id and f.lo >= b.block * 256
                and f.lo < b.block * 256 + 256 and f.outcome <> 'cancelled'
                cross join lateral unnest(spanmq_core.ids_of(f)) r
                cross join lateral generate_series(lower(r), upper(r) - 1) e (id)
                where e.id in (select unnest(bury.ids))) k
            group by k.id) h on h.id = m.msg_id
        order by m.msg_id;
    get diagnostics n = row_count;
    if n < cardinality(ids) then
        perform spanmq_core.settle_missing(this, ids);
    end if;
    perform spanmq_core.remove(this, ids, fence);
    if n > 0 then
        insert into spanmq_core.dead_letter_count (queue_id, category, n) values (this.queue_id, reason.category, n);
    end if;
    return n;
end $$;

-- Folds the differences of a queue's counts, where there are many. Skips what others add meanwhile, and never waits.
create or replace function spanmq_core.fold_dead_letter_counts(this_queue int) returns bigint
language plpgsql as $$
declare
    folded bigint;
begin
    if (select count(*) from (select from spanmq_core.dead_letter_count c where c.queue_id = this_queue limit 100) c)
        < 100 then
        return 0;
    end if;
    with gone as (
        delete from spanmq_core.dead_letter_count c
            where c.ctid = any (array(select k.ctid from spanmq_core.dead_letter_count k where k.queue_id = this_queue
                                      limit 10000 for update skip locked))
            returning c.category, c.n),
    sums as (
        insert into spanmq_core.dead_letter_count (queue_id, category, n)
            select this_queue, g.category, sum(g.n) from gone g group by g.category)
    select count(*) into folded from gone;
    return folded;
end $$;
