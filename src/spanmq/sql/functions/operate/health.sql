-- How queues are: health(), and the statistics that maintain() keeps. What it costs grows with the number of messages.

-- A survey, with the time since which the oldest visible message has been so, and how many receivers there are; no row
-- for a queue that was dropped meanwhile.
create or replace function spanmq_core.survey_of(this spanmq_core.queue, at_ timestamptz)
returns table (backlog bigint, visible bigint, in_flight bigint, delayed bigint, failed bigint, expired bigint,
               leases bigint,
               oldest_lease_at timestamptz, oldest_ready_at timestamptz, receivers bigint)
language plpgsql rows 1 as $$
begin
    return query
        select s.backlog, s.visible, s.in_flight, s.delayed, s.failed, s.expired, s.leases, s.oldest_lease_at,
               case when s.visible > 0 then
                   least(case
                         when s.first_fresh_id is not null then spanmq_core.enqueued_at(this.queue_id,
                             s.first_fresh_id) end, s.oldest_due_at) end,
               s.leases + spanmq_core.is_awaited(this)::int
        from spanmq_core.survey(this.queue_id, at_) s;
exception when undefined_table or internal_error then
    if not spanmq_core.is_gone(this) then
        raise;
    end if;
end $$;

-- Since when the oldest snapshot or transaction of the cluster is open that keeps dead rows and old segments; null:
-- none but ours.
create or replace function spanmq_core.oldest_snapshot_at() returns timestamptz
language sql stable as $$
    select least((select min(coalesce(a.xact_start, a.backend_start)) from pg_catalog.pg_stat_activity a
                  where a.pid <> pg_catalog.pg_backend_pid() and a.backend_type <> 'autovacuum worker'
                    and (a.backend_xmin is not null or a.backend_xid is not null)),
                 (select min(p.prepared) from pg_catalog.pg_prepared_xacts p))
$$;

-- How many sessions wait for each queue's tables.
create or replace function spanmq_core.waiting_sessions() returns table (queue_id int, sessions bigint)
language sql stable as $$
    select q.queue_id, count(distinct w.pid)
    from (select l.pid, l.relation, c.relname, c.relnamespace
          from pg_catalog.pg_locks l left join pg_catalog.pg_class c on c.oid = l.relation
          where not l.granted and l.database = (select d.oid from pg_catalog.pg_database d
                                                where d.datname = current_database())) w
    join spanmq_core.queue q
        on w.relation in (q.queue_view, q.archive, q.ids)
        or w.relnamespace = 'spanmq_core'::regnamespace and w.relname ~ ('^log_' || q.queue_id || '(_|$)')
    group by q.queue_id
$$;

-- How many sessions wait for a row of state, later or lock: of which queue it is can't be told.
create or replace function spanmq_core.sessions_waiting_for_rows() returns bigint
language sql stable as $$
    select count(distinct w.pid)
    from pg_catalog.pg_locks w
    where not w.granted and w.locktype in ('transactionid', 'tuple')
      and exists (select from pg_catalog.pg_locks o
                  where o.pid = w.pid and o.granted
                  and o.relation in ('spanmq_core.state'::regclass, 'spanmq_core.later'::regclass,
                                     'spanmq_core.lock'::regclass)
                    and o.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database()))
$$;

-- A row for each queue on which the caller has look, or only for the named ones:
--   backlog                 messages that are not settled = visible + in_flight + delayed + failed
--   visible                 a receive may get them now, if the queue isn't paused
--   in_flight               leased, and the lease runs
--   delayed, failed         hidden; delayed ones were never delivered, failed ones were delivered before and wait for
--                           the next attempt
--   dead, dead_per_minute   dead letters of the queue; messages that died within the last minute
--   oldest_ready_seconds    the time for which the first visible message has waited
--   oldest_lease_seconds    the time for which the oldest running lease has been held
--   receivers               leases that run, and one more while a receiver waits for messages
--   waiting_sessions        sessions that wait for a lock of the queue. The queue of a session that waits for a row is
--                           not known: it counts in every queue
--   oldest_snapshot_seconds  the age of the oldest snapshot or prepared transaction of the cluster, which keeps dead
--                            rows and old segments
--   silent_receivers        Spark streams that hold messages and have not called for a quarter of an hour
--   breaker_open_until      the time until which a worker of the queue receives nothing, because its circuit breaker
--                           is open; null: none is open
--   workers                 workers that have reported within a minute; receivers of other programs do not report
create or replace function spanmq_call.health(queues text[] default null)
returns table (queue text, backlog bigint, visible bigint, in_flight bigint, delayed bigint, failed bigint, dead bigint,
               dead_per_minute bigint, oldest_ready_seconds double precision, oldest_lease_seconds double precision,
               receivers bigint,
               waiting_sessions bigint, oldest_snapshot_seconds double precision, is_paused boolean,
               breaker_open_until timestamptz,
               silent_receivers bigint, workers bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    at_ timestamptz := clock_timestamp();
    waits jsonb := (select jsonb_object_agg(w.queue_id, w.sessions) from spanmq_core.waiting_sessions() w);
    shared_waits bigint := spanmq_core.sessions_waiting_for_rows();
    snapshot_seconds double precision := extract(epoch from at_ - spanmq_core.oldest_snapshot_at());
begin
    return query
        select q.name::text, c.backlog, c.visible, c.in_flight, c.delayed, c.failed,
               (select coalesce(sum(d.n), 0)::bigint from spanmq_core.dead_letter_count d
                where d.queue_id = q.queue_id),
               (select count(*) from spanmq_core.dead_letter d where d.queue_id = q.queue_id
                and d.dead_at > at_ - interval '1 minute'),
               extract(epoch from at_ - c.oldest_ready_at)::double precision,
               extract(epoch from at_ - c.oldest_lease_at)::double precision, c.receivers,
               coalesce((waits->>q.queue_id::text)::bigint, 0) + shared_waits, greatest(snapshot_seconds, 0),
               exists (select from spanmq_core.policy p where p.queue_id = q.queue_id and p.paused),
               spanmq_core.breaker_open_until(q.queue_id),
               (select count(*) from spanmq_core.silent_receivers(q.queue_id, at_)),
               (select count(*) from spanmq_core.worker w where w.queue_id = q.queue_id
                and w.seen_at > at_ - interval '60 seconds')
        from spanmq_core.queue q cross join lateral spanmq_core.survey_of(q, at_) c
        where queues is null or q.folded_name = any (array(select lower(n collate "C") from unnest(queues) n))
        order by q.queue_id;
end $$;

-- The statistics of a queue for that many seconds, a row a sample (see spanmq_core.statistics), oldest first.
-- maintain() samples once a minute and keeps three days. Raises MQ002 for seconds that are not positive.
create or replace function spanmq_call.statistics(queue text, seconds double precision default 3600)
returns table (sampled_at timestamptz, duration_seconds double precision, sent bigint, received bigint, settled bigint,
               failed bigint, dead bigint,
               backlog bigint, visible bigint, in_flight bigint, oldest_ready_seconds double precision)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_core.raise_if(seconds is null or not (seconds > 0 and seconds <= 3e9),
        format('seconds must be a positive number, got: %L', seconds), 'Pass a number of seconds above 0.');
    return query
        select s.sampled_at, s.seconds, s.sent, s.received, s.settled, s.failed, s.dead, s.backlog, s.visible,
        s.in_flight, s.oldest_ready_seconds
        from spanmq_core.statistics s
        where s.queue_id = this.queue_id
        and s.sampled_at > clock_timestamp() - make_interval(secs => statistics.seconds)
        order by s.sampled_at;
end $$;

-- Samples a queue, if the last time was a minute ago or never, and deletes some of what is older than three days.
create or replace function spanmq_core.take_sample(this spanmq_core.queue) returns void
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
    before spanmq_core.sample;
    found_counts record;
    drawn bigint;
    made spanmq_core.statistics;
begin
    select * into before from spanmq_core.sample s where s.queue_id = this.queue_id;
    -- A last sample in the future (the clock was set back) does not end the statistics.
    if before.sampled_at between at_ - interval '1 minute' and at_ + interval '1 minute' then
        return;
    end if;
    drawn := spanmq_core.drawn_from(this.ids);
    select * into found_counts from spanmq_core.survey_of(this, at_);
    if before.sampled_at is not null and before.sampled_at < at_ then
        made.queue_id := this.queue_id;
        made.sampled_at := at_;
        made.seconds := extract(epoch from at_ - before.sampled_at);
        -- The sequence may be set back by hand.
        made.sent := greatest(drawn - before.drawn, 0);
        made.dead := (select count(*) from spanmq_core.dead_letter d where d.queue_id = this.queue_id
                      and d.dead_at > before.sampled_at);
        made.failed := spanmq_core.count_failed(this.queue_id, before.sampled_at) + made.dead;
        -- Messages drawn before the last sample and committed after it, or the other way round, must not make it
        -- negative.
        made.settled := greatest(made.sent - made.dead - (found_counts.backlog - before.backlog), 0);
        made.received := greatest(made.settled + made.failed + found_counts.in_flight - before.in_flight, 0);
        made.backlog := found_counts.backlog;
        made.visible := found_counts.visible;
        made.in_flight := found_counts.in_flight;
        made.oldest_ready_seconds := extract(epoch from at_ - found_counts.oldest_ready_at);
        if made.sent > 0 or made.failed > 0 or made.settled > 0 or made.backlog > 0 or before.backlog > 0 then
            insert into spanmq_core.statistics select made.* on conflict do nothing;
        end if;
    end if;
    insert into spanmq_core.sample values (this.queue_id, at_, drawn, found_counts.backlog, found_counts.in_flight)
        on conflict (queue_id) do update
        set sampled_at = excluded.sampled_at, drawn = excluded.drawn, backlog = excluded.backlog,
        in_flight = excluded.in_flight;
    delete from spanmq_core.statistics s where s.queue_id = this.queue_id and s.sampled_at in (
        select o.sampled_at from spanmq_core.statistics o
        where o.queue_id = this.queue_id and o.sampled_at < at_ - interval '3 days' order by o.sampled_at limit 1000);
end $$;

-- The number of messages that have failed since then and are still in the queue. Uses the BRIN index.
create or replace function spanmq_core.count_failed(this_queue int, since timestamptz) returns bigint
language plpgsql set enable_bitmapscan = on as $$
begin
    return (select coalesce(sum(f.n), 0) from spanmq_core.failure f
            where f.queue_id = this_queue and f.failed_at > since and f.outcome <> 'cancelled');
end $$;
