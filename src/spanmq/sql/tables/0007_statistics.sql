-- since 0.1.0
-- Statistics of queues for each minute, for charts. Only maintain() writes them, from existing data: no other call
-- becomes slower.

-- A row a queue and sample, about a minute apart; none while a queue is empty and idle. Counts are of the seconds before `sampled_at`.
create table spanmq_core.statistics (
    queue_id int not null references spanmq_core.queue on delete cascade,
    sampled_at timestamptz not null,
    seconds double precision not null,
    sent bigint not null,                  -- ids drawn, with those of sends that were rolled back
    received bigint not null,              -- deliveries that must have been: settled + failed + dead + more in flight than before
    settled bigint not null,               -- acked, deleted, archived, popped or purged: sent - dead - growth of the backlog
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
    queue_id int primary key references spanmq_core.queue on delete cascade,
    sampled_at timestamptz not null,
    drawn bigint not null,
    backlog bigint not null,
    in_flight bigint not null
) with (fillfactor = 50);

-- Failures since a time, at no cost for their writers: rows are in the order of time.
create index failure_time on spanmq_core.failure using brin (failed_at) with (autosummarize = on);
