-- Looking at queues.

-- Counts and ages of one queue. Ages are of the oldest and newest message that is not settled, visible or not, as in
-- PGMQ. total_messages counts the ids that were drawn, with the gaps that rollbacks leave. default_partition_length is
-- 0 for queues of create_partitioned, which have no default partition here, and null for others.
create or replace function spanmq_call.metrics(queue_name text) returns pgmq.metrics_result
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue_name);
    at_ timestamptz := clock_timestamp();
begin
    return spanmq_core.metrics_of(this, queue_name, spanmq_core.drawn_from(this.ids), at_);
end $$;

-- The metrics of the queues, or of all (null) into which the caller may look: pgmq.metrics_all() of some.
create or replace function spanmq_call.metrics_all(queues text[] default null) returns setof pgmq.metrics_result
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue;
    drawn bigint;
begin
    for this in
        select * from spanmq_core.queue q
        where (queues is null or q.folded_name = any (array(select lower(n collate "C") from unnest(queues) n)))
        and has_table_privilege(q.queue_view, 'select')
        order by q.queue_id
    loop
        -- A queue that was dropped meanwhile, for an old snapshot too, must not hide the others.
        drawn := spanmq_core.drawn_unless_gone(this);
        if drawn is not null then
            return next spanmq_core.metrics_of(this, this.name::text, drawn, clock_timestamp());
        end if;
    end loop;
end $$;

-- The metrics of all queues into which the caller may look.
create or replace function pgmq.metrics_all() returns setof pgmq.metrics_result
language plpgsql as $$
begin
    return query
        select m.queue_name, m.queue_length, m.newest_msg_age_sec, m.oldest_msg_age_sec, m.total_messages,
               m.scrape_time, m.queue_visible_length, m.default_partition_length
        from spanmq.metrics_all(null::pg_catalog.text[]) m;
end $$;

-- What metrics() returns. Most queues of many are empty: of those nothing is added up.
create or replace function spanmq_core.metrics_of(
    this spanmq_core.queue, queue_name text, drawn bigint, at_ timestamptz
) returns pgmq.metrics_result
language plpgsql as $$
declare
    counts record;
begin
    if not spanmq_core.has_messages(this.queue_id) then
        return (queue_name, 0, null, null, drawn, at_, 0,
                case when this.is_partitioned then 0 end)::pgmq.metrics_result;
    end if;
    counts := spanmq_core.tally(this.queue_id, at_);
    return (queue_name, counts.backlog,
            case
            when counts.backlog > 0 then extract(epoch
                                                 from at_ - spanmq_core.enqueued_at(this.queue_id,
                                                     counts.newest_id)) end,
            case
            when counts.backlog > 0 then extract(epoch
                                                 from at_ - spanmq_core.enqueued_at(this.queue_id,
                                                     counts.oldest_id)) end,
            drawn, at_, counts.visible, case when this.is_partitioned then 0 end)::pgmq.metrics_result;
end $$;

-- The version of the schema.
create or replace function spanmq.version() returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$ select :version $$;
