-- since 0.1.0
-- The options of a send beyond PGMQ's: deduplication; and the receivers that it wakes.

-- The sequences with the time until which a receiver waits for messages, and the time when the queue was last woken;
-- null: no receiver has waited yet. See wake.sql.
alter table spanmq_core.queue add column waiting regclass, add column woken regclass;

-- The messages that were sent with a sender's own id: a send with the same id before `until` sends nothing and returns
-- msg_id. The message itself may have been removed since. No foreign key: checking it would lock the queue's row at
-- each send.
create table spanmq_core.deduplication (
    queue_id int not null,
    dedup_id text collate "C" not null,
    msg_id bigint not null,
    until timestamptz not null,
    -- The sender's fingerprint of the request: the same id with another fingerprint is refused. Null: not compared.
    fingerprint text collate "C",
    primary key (queue_id, dedup_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index deduplication_until on spanmq_core.deduplication (queue_id, until);

-- Recurring messages. The text of cron is read by clients, which write the times to come into spanmq_core.schedule_time.
create table spanmq_core.schedule (
    schedule_id int generated always as identity primary key,
    name text collate "C" not null unique check (octet_length(name) between 1 and 255),
    queue_id int not null references spanmq_core.queue on delete cascade,
    cron text not null,
    time_zone text not null,
    message jsonb,
    headers jsonb check (jsonb_typeof(headers) = 'object'),
    catch_up boolean not null,             -- whether each of the times missed gets its message; else all together get one
    is_paused boolean not null default false,
    made_by name not null,                 -- it fires while this role may send into the queue
    pause_reason text,                     -- why maintain() paused it; null where a caller did
    created_at timestamptz not null default clock_timestamp(),
    planned_until timestamptz not null default clock_timestamp(),      -- up to here the times are known
    last_at timestamptz,                   -- the time that last fired, and its message
    last_msg_id bigint
);
create index schedule_queue on spanmq_core.schedule (queue_id);
create table spanmq_core.schedule_time (
    schedule_id int not null references spanmq_core.schedule on delete cascade,
    due_at timestamptz not null,
    primary key (schedule_id, due_at)
);
create index schedule_time_due on spanmq_core.schedule_time (due_at, schedule_id);
