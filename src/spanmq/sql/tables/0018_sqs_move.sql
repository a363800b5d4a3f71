-- since 0.1.0
-- Move tasks of the SQS protocol: messages of a dead-letter queue return to their source queues, or move to another
-- one. Any service runs the next step of a task, under the lock of its row.
create table spanmq_core.sqs_move (
    handle uuid primary key default gen_random_uuid(),
    source text not null,
    destination text,                      -- null: where each message came from
    source_arn text not null,
    destination_arn text,
    access_key_id text,                    -- the key of SQS that started it; services check it at each step
    rate int check (rate between 1 and 500),                -- messages a second; null: as fast as it goes
    status text not null default 'RUNNING' check (status in ('RUNNING', 'CANCELLED', 'COMPLETED', 'FAILED')),
    moved bigint not null default 0,
    to_move bigint not null,               -- when it was started
    failure text,
    started_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    next_at timestamptz not null default clock_timestamp()  -- when the next step may begin
);
create index sqs_move_source on spanmq_core.sqs_move (source, started_at);
-- One at a time of a source; what is looked at for work.
create unique index sqs_move_running on spanmq_core.sqs_move (source) where status = 'RUNNING';

create type spanmq.sqs_move as (
    handle text,
    source text,
    destination text,
    source_arn text,
    destination_arn text,
    access_key_id text,
    rate int,
    status text,
    moved bigint,
    to_move bigint,
    failure text,
    started_at timestamptz
);
