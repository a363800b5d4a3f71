-- Looking at queues.

-- Counts and ages of one queue. Ages are of the oldest and newest unsettled message, visible or not, as in PGMQ;
-- total_messages counts ids drawn, with the gaps that rollbacks leave. default_partition_length: 0 for queues made by
-- create_partitioned, which have no default partition here, else null.
create or replace function spanmq_call.metrics(queue_name text) returns pgmq.metrics_result
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue_name);
    at_ timestamptz := clock_timestamp();
    found_counts record;
    result pgmq.metrics_result;
begin
    -- Before the log: see drop_queue().
    result.total_messages := spanmq_core.drawn_from(this.ids);
    select * into found_counts from spanmq_core.survey(this.queue_id, at_);
    result.queue_name := queue_name;
    result.queue_length := found_counts.backlog;
    result.queue_visible_length := found_counts.visible;
    if found_counts.backlog > 0 then
        result.newest_msg_age_sec := extract(epoch from at_ - spanmq_core.enqueued_at(this.queue_id, found_counts.newest_id));
        result.oldest_msg_age_sec := extract(epoch from at_ - spanmq_core.enqueued_at(this.queue_id, found_counts.oldest_id));
    end if;
    result.scrape_time := at_;
    result.default_partition_length := case when this.is_partitioned then 0 end;
    return result;
end $$;

-- The metrics of all queues into which the caller may look.
create or replace function pgmq.metrics_all() returns setof pgmq.metrics_result
language plpgsql as $$
declare
    queue_name pg_catalog.text;
begin
    for queue_name in select * from spanmq_call.names_for('look') loop
        begin
            return query select * from pgmq.metrics(queue_name);
        exception when undefined_table then
            -- A queue that was dropped meanwhile must not hide the others.
            continue;
        end;
    end loop;
end $$;

-- The version of the schema.
create or replace function spanmq.version() returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$ select :version $$;
