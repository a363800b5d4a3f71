-- Runs of the pipeline's jobs: begun, heard of, ended. A run that was killed is never ended, and "lost" when it was not
-- heard of for two minutes. A record for people: it decides nothing.

-- Records the start of a job; returns the id of the run. The newest thousand of a queue (null: of several) are kept:
-- they are counted here and not in maintain(), which is called every second. Raises MQ002 for a name or a target that
-- is empty or too long.
create or replace function spanmq_call.begin_pipeline_run(
    job text, queue text default null, target text default null, of_caller uuid default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    of_queue int := spanmq_core.find_and_hold(queue);
    by_role name := spanmq_core.take_caller(of_caller);
    begun bigint;
begin
    perform spanmq_core.raise_if(job is null or octet_length(job) not between 1 and 100 or octet_length(target) > 2000,
        'a run needs the name of its job, of 1 to 100 bytes, and a target of at most 2,000',
        'Pass a name, and a shorter target.');
    insert into spanmq_core.pipeline_run (job, queue_id, target, begun_by) values (job, of_queue, target, by_role)
        returning run_id into begun;
    -- Two that begin at once may leave one more: the next sees to it.
    delete from spanmq_core.pipeline_run r where r.run_id <= (
        select o.run_id from spanmq_core.pipeline_run o where o.queue_id is not distinct from of_queue
            order by o.run_id desc offset 1000 limit 1)
        and r.queue_id is not distinct from of_queue;
    return begun;
end $$;

-- The queue of a run; null: several.
create or replace function spanmq_call.queue_of_run(run_id bigint) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select q.name from spanmq_core.pipeline_run r join spanmq_core.queue q on q.queue_id = r.queue_id
        where r.run_id = queue_of_run.run_id
$$;

-- Records that a run is alive, and the number of messages it has done (null: unknown); false if the caller has no such
-- run, or it has ended.
create or replace function spanmq_call.note_pipeline_run(
    of_queue text, run_id bigint, done bigint default null, of_caller uuid default null
) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    by_role name := spanmq_core.take_caller(of_caller);
begin
    update spanmq_core.pipeline_run r set seen_at = clock_timestamp(), done = coalesce(note_pipeline_run.done, r.done)
        where r.run_id = note_pipeline_run.run_id and r.begun_by = by_role
        and spanmq_call.queue_of_run(r.run_id) is not distinct from of_queue and r.ended_at is null;
    return found;
end $$;

-- Records the end of a run, with its report or its error; false if the caller has no such run, or it has ended. Raises
-- MQ002 for a report of over 65,536 bytes.
create or replace function spanmq_call.end_pipeline_run(
    of_queue text, run_id bigint, report jsonb default null, error text default null, of_caller uuid default null
) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    by_role name := spanmq_core.take_caller(of_caller);
begin
    -- A thousand runs of a queue are kept, and a role needs only `look`.
    perform spanmq_core.raise_if(octet_length(report::text) > 65536,
                                 'the report of a run must have at most 65,536 bytes as text',
        'Store what is longer elsewhere, and report where.');
    update spanmq_core.pipeline_run r
        set seen_at = clock_timestamp(), ended_at = clock_timestamp(), report = end_pipeline_run.report, error =
        left(end_pipeline_run.error, 2000)
        where r.run_id = end_pipeline_run.run_id and r.begun_by = by_role
        and spanmq_call.queue_of_run(r.run_id) is not distinct from of_queue and r.ended_at is null;
    return found;
end $$;

-- The newest runs first, those before the run `before` (null: from the newest), of a queue or of all that the caller
-- may see; state is running, succeeded, failed or lost. Raises MQ002 for a quantity below 1.
create or replace function spanmq_call.list_pipeline_runs(queue text default null, before bigint default null,
                                                          qty int default 100)
returns table (run_id bigint, job text, queue_name text, target text, begun_by text, state text, begun_at timestamptz,
               seen_at timestamptz,
               ended_at timestamptz, done bigint, report jsonb, error text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    of_queue int := case when queue is not null then (spanmq_core.find_queue(queue)).queue_id end;
begin
    perform spanmq_core.raise_if(qty is null or qty < 1, format('qty must be at least 1, got: %L', qty),
                                 'Pass the number of rows.');
    return query
        select r.run_id, r.job, q.name::text, r.target, r.begun_by::text,
            case when r.ended_at is null and r.seen_at < clock_timestamp() - interval '2 minutes' then 'lost'
                 when r.ended_at is null then 'running'
                 when r.error is null then 'succeeded'
                 else 'failed' end,
            r.begun_at, r.seen_at, r.ended_at, r.done, r.report, r.error
        from spanmq_core.pipeline_run r left join spanmq_core.queue q on q.queue_id = r.queue_id
        where (queue is null or r.queue_id = of_queue)
          and (r.queue_id is null or q.queue_id is not null)     -- else the queue was dropped
          and (before is null or r.run_id < before)
        order by r.run_id desc
        limit qty;
end $$;
