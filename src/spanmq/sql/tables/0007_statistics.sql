-- since 0.1.0
-- Statistics of queues for each minute, for charts. Only maintain() writes them, from existing data: no other call
-- becomes slower.

-- A row a queue and sample, about a minute apart; none while a queue is empty and idle. Counts are of the seconds
-- before `sampled_at`.
create table spanmq_core.statistics (
    queue_id int not null,
    sampled_at timestamptz not null,
    seconds double precision not null,
    sent bigint not null,                  -- ids drawn, with those of sends that were rolled back
    -- deliveries that must have been: settled + failed + dead + more in flight than before
    received bigint not null,
    -- acked, deleted, archived, popped or purged: sent - dead - growth of the backlog
    settled bigint not null,
    failed bigint not null,                -- failed, or their lease expired
    dead bigint not null,
    backlog bigint not null,
    visible bigint not null,
    in_flight bigint not null,
    oldest_ready_seconds double precision, -- null: nothing is ready
    primary key (queue_id, sampled_at)
);

-- The values with which the next sample is compared.
create table spanmq_core.sample (
    queue_id int primary key,
    sampled_at timestamptz not null,
    drawn bigint not null,
    backlog bigint not null,
    in_flight bigint not null
) with (fillfactor = 50);

-- Reports of workers, for people and programs that monitor queues: see functions/operate/worker.sql. It decides
-- nothing.
create table spanmq_core.worker (
    queue_id int not null,
    worker text not null check (octet_length(worker) <= 1000),
    started_at timestamptz not null,
    seen_at timestamptz not null default clock_timestamp(),
    slots int not null,                    -- how many messages of all its queues it handles at once
    held int not null,                     -- how many messages of this queue it holds
    progress jsonb not null default '[]',  -- what its handlers have reported of their progress
    primary key (queue_id, worker)
);

-- How long the handlers of each kind of task took, a row for each minute, outcome and bucket of durations. Bucket b
-- ends at 2^(b/2) ms.
create table spanmq_core.task_time (
    queue_id int not null,
    kind text not null check (octet_length(kind) <= 255),
    minute timestamptz not null,
    has_failed boolean not null,
    bucket int not null check (bucket between 0 and 48),
    n bigint not null,
    primary key (queue_id, minute, kind, has_failed, bucket)
);

-- Changes to queues, by functions/operate/change.sql; kept for 90 days.
create table spanmq_core.change (
    change_id bigint generated always as identity primary key,
    changed_at timestamptz not null default clock_timestamp(),
    role name not null,
    actor text,                            -- the token or command, as the client said
    action text not null,
    queue_name text,
    details jsonb
);
create index change_role on spanmq_core.change (role, changed_at);
create index change_queue on spanmq_core.change (lower(queue_name), change_id);
