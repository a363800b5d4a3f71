-- Looking at queues.

-- Counts and ages of one queue. Ages are of the oldest and newest unsettled message, visible or not, as in PGMQ;
-- total_messages counts ids drawn, with the gaps that rollbacks leave. default_partition_length: 0 for queues made by
-- create_partitioned, which have no default partition here, else null.
create or replace function spanmq_call.metrics(queue_name text) returns pgmq.metrics_result
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue_name);
    at_ timestamptz := clock_timestamp();
    drawn bigint := spanmq_core.drawn_from(this.ids);
    counts record := spanmq_core.tally(this.queue_id, at_);
begin
    return (queue_name, counts.backlog,
            case when counts.backlog > 0 then extract(epoch from at_ - spanmq_core.enqueued_at(this.queue_id, counts.newest_id)) end,
            case when counts.backlog > 0 then extract(epoch from at_ - spanmq_core.enqueued_at(this.queue_id, counts.oldest_id)) end,
            drawn, at_, counts.visible, case when this.is_partitioned then 0 end)::pgmq.metrics_result;
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
