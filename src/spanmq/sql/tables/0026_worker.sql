-- since 0.1.0
-- Reports of workers, for people and programs that monitor queues: see functions/worker.sql. It decides nothing.
create table spanmq_core.worker (
    queue_id int not null references spanmq_core.queue on delete cascade,
    worker text not null check (octet_length(worker) <= 1000),
    started_at timestamptz not null,
    seen_at timestamptz not null default clock_timestamp(),
    slots int not null,                    -- how many messages of all its queues it handles at once
    held int not null,                     -- how many messages of this queue it holds
    primary key (queue_id, worker)
);

-- How long the handlers of each kind of task took, a row for each minute, outcome and bucket of durations. Bucket b ends at 2^(b/2) ms.
create table spanmq_core.task_time (
    queue_id int not null references spanmq_core.queue on delete cascade,
    kind text not null check (octet_length(kind) <= 255),
    minute timestamptz not null,
    has_failed boolean not null,
    bucket int not null check (bucket between 0 and 48),
    n bigint not null,
    primary key (queue_id, minute, kind, has_failed, bucket)
);
