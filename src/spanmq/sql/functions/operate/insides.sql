-- Looking into a queue at a bounded price: what pages for people show.

-- The current state of each of these queues (null: all on which the caller has look), in the order of their creation.
-- is_exact: the queue has at most `most` messages, and these were counted. Otherwise the counts are null: use the last
-- sample (latest_statistics). The cost for a queue is at most that of `most` messages. Queues that do not exist, or
-- into which the caller may not look, are left out. Raises MQ002 for a bad number.
create or replace function spanmq_call.count_messages(queues text[] default null, most integer default 200)
returns table (queue text, is_paused boolean, is_exact boolean, backlog bigint, visible bigint, in_flight bigint,
               delayed bigint, failed bigint,
               breaker_open_until timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    at_ timestamptz := clock_timestamp();
begin
    perform spanmq_core.raise_if(most is null or most not between 1 and 100000,
        format('most must be 1 to 100000, got: %L', most), 'Ask for fewer at a time.');
    return query
        select q.name::text, not q.has_plain_policy and (spanmq_core.policy_of(q.queue_id)).paused,
        s.backlog is not null,
               s.backlog, s.visible, s.in_flight, s.delayed, s.failed, spanmq_core.breaker_open_until(q.queue_id)
        from spanmq_core.queue q left join lateral (
            -- A fence: the survey is not made of a queue with more.
            select * from spanmq_core.survey(q.queue_id, at_)
            where (select count(*) from (
                       (select from spanmq_core.state f where f.queue_id = q.queue_id order by f.queue_id, f.msg_id
                        limit most + 1)
                       union all
                       (select from spanmq_core.later h where h.queue_id = q.queue_id order by h.queue_id, h.msg_id
                        limit most + 1)) r) <= most offset 0) s on true
        where queues is null or q.folded_name = any (array(select lower(n collate "C") from unnest(queues) n))
        order by q.queue_id;
end $$;

-- The oldest leases of the receivers of a queue, at most qty. Three sets of messages are read: the first 20,000 that
-- were never retried, delayed or set aside, and of the others the 20,000 that become visible next and the 20,000 that
-- became visible first. An expired lease is listed until its messages are received again (is_expired).
create or replace function spanmq_call.list_leases(queue text, qty integer default 100)
returns table (leased_at timestamptz, leased_until timestamptz, messages bigint, first_id bigint, last_id bigint,
               attempt integer, is_expired boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    at_ timestamptz := clock_timestamp();
    bound spanmq_core.bound := spanmq_core.bound_of(this.queue_id);
begin
    perform spanmq_core.check_quantity(qty);
    return query
        select min(h.last_read_at), max(h.vt), count(*), min(h.msg_id), max(h.msg_id), max(h.attempts),
        max(h.vt) <= at_
        from ((select * from spanmq_core.state f
               where f.queue_id = this.queue_id and f.msg_id >= bound.from_id
               order by f.queue_id, f.msg_id limit 20000)
              union all
              (select * from spanmq_core.later l where l.queue_id + 0 = this.queue_id and l.vt > at_
               order by l.queue_id + 0, l.vt, l.msg_id + 0 limit 20000)
              union all
              (select * from spanmq_core.later l
               where l.queue_id + 0 = this.queue_id and l.vt >= bound.due_from and l.vt <= at_
               order by l.queue_id + 0, l.vt, l.msg_id + 0 limit 20000)) h
        where h.lease_id <> 0
        group by h.lease_id order by h.lease_id limit qty;
end $$;

-- Groups of a queue, at most qty, blocked ones first. state is one of these: free; leased, if one of its messages is
-- in flight until `until`; retrying, if one waits for its backoff until `until`; delayed, if its first message is;
-- dead letter, if the group waits until a dead letter is redriven or discarded. messages counts up to 1,000 messages;
-- has_more: there are more. Reads the 2,000 hidden messages that become visible next, the 2,000 that became visible
-- first, the first 2,000 messages that were never retried, delayed or set aside, and 1,000 groups that a dead letter
-- blocks. A group without a message among these is not shown.
create or replace function spanmq_call.list_groups(queue text, qty integer default 100)
returns table (group_key text, state text, until timestamptz, first_id bigint, messages bigint, has_more boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    at_ timestamptz := clock_timestamp();
begin
    perform spanmq_core.check_quantity(qty);
    return query
        with candidates as (
            select c.hash, min(c.key) as key, min(c.place) as place
            from (
                (select h.group_hash as hash, h.group_key as key, 1 as place from spanmq_core.later h
                    where h.queue_id + 0 = this.queue_id and h.vt > at_
                    order by h.queue_id + 0, h.vt, h.msg_id + 0 limit 2000)
                union all
                (select b.group_hash, b.group_key, 1 from spanmq_core.blocked_group b where b.queue_id = this.queue_id
                 order by b.queue_id, b.group_hash limit 1000)
                union all
                (select h.group_hash, h.group_key, 2 from spanmq_core.later h
                    where h.queue_id + 0 = this.queue_id and h.vt <= at_
                    order by h.queue_id + 0, h.vt, h.msg_id + 0 limit 2000)
                union all
                (select f.group_hash, f.group_key, 2 from spanmq_core.state f
                    where f.queue_id = this.queue_id order by f.queue_id, f.msg_id limit 2000)) c
            where c.hash is not null
            group by c.hash order by min(c.place), c.hash limit qty)
        select c.key,
               case when blocker.lease_id <> 0 then 'leased'
                    when blocker.lease_id = 0 then 'retrying'
                    when delayed.msg_id < coalesce(ready.msg_id, 9223372036854775807) then 'delayed'
                    when bars.it then 'dead letter'
                    else 'free' end,
               coalesce(blocker.vt, case when delayed.msg_id < coalesce(ready.msg_id, 9223372036854775807)
                                    then delayed.vt end),
               least(blocker.msg_id, delayed.msg_id, ready.msg_id), counted.n::bigint, counted.has_more
        from candidates c
        left join lateral (
            select h.lease_id, h.vt, h.msg_id from (
                select h.lease_id, h.vt, h.msg_id, h.attempts from spanmq_core.later h
                where h.queue_id + 0 = this.queue_id and h.group_hash = c.hash and h.group_hash is not null
                and h.vt > at_
                union all
                (select f.lease_id, f.vt, f.msg_id, f.attempts from spanmq_core.state f
                 where f.queue_id + 0 = this.queue_id and f.group_hash = c.hash and f.group_hash is not null
                 order by f.queue_id + 0, f.group_hash, f.msg_id limit 1)) h
            where h.vt > at_ and (h.lease_id <> 0 or h.attempts > 0) limit 1) blocker on true
        left join lateral (
            select h.msg_id, h.vt from spanmq_core.later h
            where h.queue_id + 0 = this.queue_id and h.group_hash = c.hash and h.group_hash is not null and h.vt > at_
              and h.lease_id = 0 and h.attempts = 0 order by h.msg_id limit 1) delayed on true
        left join lateral (
            select min(r.msg_id) as msg_id from (
                (select f.msg_id from spanmq_core.state f
                 where f.queue_id + 0 = this.queue_id and f.group_hash = c.hash and f.group_hash is not null
                 and f.vt <= at_
                 order by f.queue_id + 0, f.group_hash, f.msg_id limit 1)
                union all
                select h.msg_id from spanmq_core.later h
                where h.queue_id + 0 = this.queue_id and h.group_hash = c.hash and h.group_hash is not null
                and h.vt <= at_) r
            ) ready on true
        left join lateral (
            select true as it from spanmq_core.blocked_group b where b.queue_id = this.queue_id
                and b.group_hash = c.hash
              and (select p.dead_letter_blocks_group from spanmq_core.policy p where p.queue_id = b.queue_id)
              limit 1) bars on true
        cross join lateral (
            select least(count(*), 1000) as n, count(*) > 1000 as has_more
            from ((select from spanmq_core.state f where f.queue_id + 0 = this.queue_id
                   and f.group_hash = c.hash and f.group_hash is not null limit 1001)
                  union all
                  (select from spanmq_core.later h
                   where h.queue_id + 0 = this.queue_id and h.group_hash = c.hash and h.group_hash is not null
                   limit 1001)) r) counted
        order by blocker.msg_id is null and (delayed.msg_id < coalesce(ready.msg_id, 9223372036854775807)) is not true
        and bars.it is null,
                 least(blocker.msg_id, delayed.msg_id, ready.msg_id), c.key
        limit qty;
end $$;

-- The segments of a queue's log, at most qty, the newest first. A subscription has the log of the queue that it
-- follows. state: ahead (none of its ids was drawn yet), open, settled (none of its rows is needed, and it will be
-- truncated), or truncated. is_rewritten: another table replaces its table.
create or replace function spanmq_call.list_segments(queue text, qty integer default 100)
returns table (segment text, first_id bigint, last_id bigint, state text, is_rewritten boolean, bytes bigint,
               created_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    log_id int := coalesce((select p.log_id from spanmq_core.subscription p where p.queue_id = this.queue_id),
                           this.queue_id);
    drawn bigint := spanmq_core.drawn_from((select q.ids from spanmq_core.queue q where q.queue_id = log_id));
begin
    perform spanmq_core.check_quantity(qty);
    return query
        select s.log_name, s.lo, s.hi,
               case when s.state = 'truncated' then 'truncated' when s.lo > drawn then 'ahead'
               when s.settled_at_xid is not null then 'settled' else 'open' end,
               s.copy_name is not null or s.old_name is not null,
               -- A table that is dropped at this moment has a null size.
               (select sum(pg_total_relation_size(to_regclass(format('spanmq_core.%I', t.name))))::bigint
                from unnest(array[s.log_name, s.copy_name, s.old_name]) t (name) where t.name is not null),
               s.created_at
        from spanmq_core.segment s where s.queue_id = log_id order by s.queue_id desc, s.lo desc limit qty;
end $$;

-- The dead letters of a message, the first one first. A message that was redriven may die again, and then has several.
-- Bodies and headers of more than body_bytes_max bytes are left out (see cut()).
create or replace function spanmq_call.dead_letters_of(
    queue text, msg_id bigint, body_bytes_max integer default null
) returns setof spanmq.dead_letter
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_core.raise_if(dead_letters_of.msg_id is null, 'msg_id cannot be NULL', 'Pass the id of a message.');
    perform spanmq_core.check_body_bytes(body_bytes_max);
    return query
        select (spanmq_core.as_dead_letter(d, this.name, body_bytes_max)).*
        from spanmq_core.letters_of_messages(this.queue_id, dead_letters_of.msg_id, dead_letters_of.msg_id) d
        order by d.dead_letter_id;
end $$;

-- The statistics of these queues together for that many seconds, in steps of `step` seconds up to a minute ago: later
-- samples are not complete. Oldest first; a step in which nothing happened has nulls. Counts and levels of a sample are
-- spread evenly over the time that it covers, in whole seconds; oldest_ready_seconds is the worst of them. queues null:
-- all into which the caller may look; queues that do not exist, or without that right, are left out. The cost depends
-- on the number of samples. Raises MQ002 for an invalid number.
create or replace function spanmq.sum_statistics(queues text[] default null, seconds double precision default 3600,
                                                 step double precision default 60)
returns table (began_at timestamptz, sent double precision, received double precision, settled double precision,
               failed double precision,
               dead double precision, backlog double precision, visible double precision, in_flight double precision,
               oldest_ready_seconds double precision)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    step_ double precision := step;
    last_step bigint;
    first_step bigint;
begin
    perform spanmq_core.raise_if(seconds is null or not (seconds > 0 and seconds <= 3e9),
        format('seconds must be a positive number, got: %L', seconds), 'Pass a number of seconds above 0.');
    perform spanmq_core.raise_if(step is null or not (step >= 1 and step <= seconds) or seconds / step > 10000,
        format('step must be at least 1 and no longer than seconds, which may have 10000 steps; got: %L', step),
        'Take longer steps, or fewer seconds.');
    last_step := floor((extract(epoch from clock_timestamp()) - 60) / step) - 1;
    first_step := last_step - ceil(seconds / step)::bigint + 1;
    return query
        -- Samples of one second and length are added up first: the rest costs four times as much for each row.
        with alike as (
            -- Both ends in whole seconds, so that samples follow each other without a gap: a constant is a flat line.
            select date_trunc('second', s.sampled_at) as sampled_at,
                greatest(floor(extract(epoch from s.sampled_at))
                         - floor(extract(epoch from s.sampled_at)::double precision - s.seconds + 1e-4), 1)
                ::double precision as seconds,
                sum(s.sent) as sent,
                   sum(s.received) as received, sum(s.settled) as settled, sum(s.failed) as failed, sum(s.dead) as dead,
                   sum(s.backlog) as backlog,
                   sum(s.visible) as visible, sum(s.in_flight) as in_flight,
                   max(s.oldest_ready_seconds) as oldest_ready_seconds
            from spanmq_core.queue q
            cross join lateral (
                select * from spanmq_core.statistics t
                where t.queue_id = q.queue_id and t.sampled_at > to_timestamp(first_step * step_)
                offset 0) s
            where s.seconds > 0
            and (queues is null or q.folded_name = any (select lower(n collate "C") from unnest(queues) n))
            group by 1, 2),
        samples as (
            select a.*, extract(epoch from a.sampled_at)::double precision - a.seconds as from_,
                extract(epoch from a.sampled_at)::double precision as to_
            from alike a),
        -- A sample is a minute, and touches a step or two: these are a row each; only of a longer one rows are
        -- generated, at six times the price.
        placed as (
            select floor(s.from_ / step_)::bigint as first_, floor(s.to_ / step_)::bigint as last_, s.* from samples s),
        parts as (
            select p.first_ as place, least(p.to_, (p.first_ + 1) * step_) - p.from_ as part, p.* from placed p
                where p.first_ >= first_step
            union all
            select p.last_, p.to_ - p.last_ * step_, p.* from placed p where p.last_ > p.first_
            union all
            select g.place, step_, p.* from placed p
            cross join lateral generate_series(greatest(p.first_ + 1, first_step), least(p.last_ - 1, last_step)) g
            (place)
            where p.last_ > p.first_ + 1),
        sums as (
            select p.place, sum(p.sent * p.part / p.seconds) as sent, sum(p.received * p.part / p.seconds) as received,
                   sum(p.settled * p.part / p.seconds) as settled, sum(p.failed * p.part / p.seconds) as failed,
                   sum(p.dead * p.part / p.seconds) as dead,
                   sum(p.backlog * p.part) / step_ as backlog, sum(p.visible * p.part) / step_ as visible,
                   sum(p.in_flight * p.part) / step_ as in_flight, max(p.oldest_ready_seconds) as ready
            from parts p where p.part > 0 group by p.place)
        select to_timestamp(g.place * step_), f.sent, f.received, f.settled, f.failed, f.dead, f.backlog, f.visible,
        f.in_flight, f.ready
        from generate_series(first_step, last_step) g (place) left join sums f on f.place = g.place
        order by g.place;
end $$;
