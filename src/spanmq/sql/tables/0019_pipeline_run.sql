-- since 0.1.0
-- The runs of the pipeline's jobs, for display: no job reads it. See functions/pipeline_run.sql.
create table spanmq_core.pipeline_run (
    run_id bigint generated always as identity primary key,
    job text not null check (octet_length(job) between 1 and 100),
    queue_id int references spanmq_core.queue on delete cascade,    -- null: a job over several queues
    target text check (octet_length(target) <= 2000),          -- where it writes to, or reads from
    begun_by name not null,
    begun_at timestamptz not null default clock_timestamp(),
    seen_at timestamptz not null default clock_timestamp(),    -- when it was heard of last
    done bigint,                                               -- messages, as far as it told
    ended_at timestamptz,
    report jsonb,
    error text
);
create index pipeline_run_queue on spanmq_core.pipeline_run (queue_id, run_id);
