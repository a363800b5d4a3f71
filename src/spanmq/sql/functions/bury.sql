-- Dead-lettering: messages that were taken out of their spans become dead letters, in the same transaction. So after a crash at any
-- instant a message is in exactly one of queue, archive and dead letters.

-- Writes dead letters for the messages of runs, which the caller has taken out of the queue (take_out, a claim without a lease), with
-- the attempts that the runs say and the story of each. Returns how many. Locks nothing that others need.
create or replace function spanmq.bury(this spanmq.queue, runs spanmq.run[], at_ timestamptz, reason spanmq.reason) returns bigint
language plpgsql as $$
declare
    n bigint;
begin
    if runs = '{}' then
        return 0;
    end if;
    reason := spanmq.bounded(reason);
    if exists (
        -- A run lies within a block.
        select from unnest(runs) r
        join spanmq.failure f on f.queue_id = this.queue_id and f.lo >= r.lo - r.lo % 256 and f.lo < r.lo - r.lo % 256 + 256)
    then
        insert into spanmq.dead_letter (queue_id, msg_id, message, headers, group_key, attempts, enqueued_at, first_failed_at, last_failed_at,
                                        dead_at, category, error, error_class, traceback, worker, history)
            select this.queue_id, m.msg_id, m.message, m.headers, spanmq.group_of(m.headers), m.read_ct, m.enqueued_at,
                   coalesce(h.first_failed_at, at_), at_, at_, reason.category, reason.error, reason.error_class, reason.traceback,
                   reason.worker, coalesce(h.history, '[]')
            from spanmq.fetch(this.queue_id, runs, 0, null, null, true) m
            left join spanmq.stories(this.queue_id, runs) h on h.msg_id = m.msg_id;
    else
        insert into spanmq.dead_letter (queue_id, msg_id, message, headers, group_key, attempts, enqueued_at, first_failed_at, last_failed_at,
                                        dead_at, category, error, error_class, traceback, worker)
            select this.queue_id, m.msg_id, m.message, m.headers, spanmq.group_of(m.headers), m.read_ct, m.enqueued_at, at_, at_, at_,
                   reason.category, reason.error, reason.error_class, reason.traceback, reason.worker
            from spanmq.fetch(this.queue_id, runs, 0, null, null, true) m;
    end if;
    get diagnostics n = row_count;
    if this.uses_priority then
        update spanmq.dead_letter d set priority = r.priority from unnest(runs) r, spanmq.expand(r.lo, r.n, r.ids) e (id)
            where r.priority is not null and d.queue_id = this.queue_id and d.msg_id = e.id and d.redriven_at is null;
    end if;
    perform spanmq.block_groups(this.queue_id, runs);
    if n > 0 then
        perform spanmq.count_dead(this.queue_id, reason.category, n);
    end if;
    if n < spanmq.count_runs(runs) then
        perform spanmq.settle_missing(this, runs);
    end if;
    return n;
end $$;

-- Where the policy wants it, the groups of these dead letters wait until they are redriven or discarded. Messages without a group wait for nothing.
create or replace function spanmq.block_groups(this_queue int, runs spanmq.run[]) returns void
language plpgsql as $$
declare
    run spanmq.run;
begin
    foreach run in array runs loop
        if run.group_key is not null then
            insert into spanmq.blocked_group (queue_id, group_hash, msg_id, group_key)
                select this_queue, r.group_hash, e.id, r.group_key from unnest(runs) r, spanmq.expand(r.lo, r.n, r.ids) e (id)
                where r.group_key is not null
                  and exists (select from spanmq.policy p where p.queue_id = this_queue and p.dead_letter_blocks_group)
                on conflict do nothing;
            return;
        end if;
    end loop;
end $$;

-- Changes the count of a queue's dead letters of a category, by a row of its own.
create or replace function spanmq.count_dead(this_queue int, category text, n bigint) returns void
language plpgsql as $$
begin
    insert into spanmq.dead_letter_count (queue_id, category, n) values (this_queue, category, n);
end $$;

-- Folds the differences of a queue's counts, where there are many. Skips what others add meanwhile, and never waits.
create or replace function spanmq.fold_dead_letter_counts(this_queue int) returns bigint
language plpgsql as $$
declare
    folded bigint;
begin
    if (select count(*) from (select from spanmq.dead_letter_count c where c.queue_id = this_queue limit 100) c) < 100 then
        return 0;
    end if;
    with gone as (
        delete from spanmq.dead_letter_count c
            where c.ctid = any (array(select k.ctid from spanmq.dead_letter_count k where k.queue_id = this_queue limit 10000 for update skip locked))
            returning c.category, c.n),
    sums as (
        insert into spanmq.dead_letter_count (queue_id, category, n)
            select this_queue, g.category, sum(g.n) from gone g group by g.category)
    select count(*) into folded from gone;
    return folded;
end $$;

-- Texts that fit: a failure must not cost more than the message.
create or replace function spanmq.bounded(reason spanmq.reason) returns spanmq.reason
language sql immutable as $$
    select (reason.category, left(reason.error, 10000), left(reason.error_class, 500), left(reason.traceback, 100000),
            left(reason.worker, 500))::spanmq.reason
$$;
