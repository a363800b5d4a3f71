-- since 0.1.0
-- Sending beyond PGMQ: deduplication, schedules, bulk writes, batches, results, subscriptions, shards and replays.

-- The messages that were sent with a sender's own id: a send with the same id before `until` sends nothing and returns
-- msg_id. The message itself may have been removed since. No foreign key: checking it would lock the queue's row at
-- each send.
create table spanmq_core.deduplication (
    queue_id int not null,
    dedup_id text collate "C" not null,
    msg_id bigint not null,
    until timestamptz not null,
    -- The sender's fingerprint of the request: the same id with another fingerprint is refused.
    fingerprint text collate "C",
    -- Ids with a fingerprint, such as the service's Idempotency-Keys, are in a space of their own: none can be taken by
    -- a sender without one.
    has_fingerprint boolean not null,
    primary key (queue_id, dedup_id, has_fingerprint),
    check (has_fingerprint = (fingerprint is not null))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index deduplication_until on spanmq_core.deduplication (queue_id, until);

-- Recurring messages. The text of cron is read by clients, which write the times to come into
-- spanmq_core.schedule_time.
create table spanmq_core.schedule (
    schedule_id int generated always as identity primary key,
    name text collate "C" not null unique check (octet_length(name) between 1 and 255),
    queue_id int not null,
    cron text not null,
    time_zone text not null,
    message jsonb,
    headers jsonb check (jsonb_typeof(headers) = 'object'),
    -- whether each of the times missed gets its message; else all together get one
    catch_up boolean not null,
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

-- Writes of many tasks that become visible at one instant: an open write, the blocks of ids that its tasks reserved,
-- and what was published. A write that is not here is published (then the ledger has it) or closed.
create table spanmq_core.bulk_write (
    write_id bigint generated always as identity primary key,
    queue_id int not null,
    writer text not null,                  -- a streaming query, a job, or a name made up for one write
    epoch bigint not null,
    opened_at timestamptz not null default clock_timestamp(),
    unique (queue_id, writer, epoch)
);

-- Reserved and committed before the first row is written, so that no segment goes from under it.
create table spanmq_core.bulk_block (
    block_id bigint generated always as identity primary key,
    write_id bigint not null references spanmq_core.bulk_write on delete cascade,
    queue_id int not null,
    lo bigint not null,
    hi bigint not null,
    log_name text not null,
    is_sealed boolean not null default false,      -- its task wrote it to the end
    has_groups boolean not null default false,
    has_limits boolean not null default false,     -- a message has an expiry or attempts of its own
    reserved_at timestamptz not null default clock_timestamp()
);
create index bulk_block_ids on spanmq_core.bulk_block (queue_id, lo);
create index bulk_block_write on spanmq_core.bulk_block (write_id);

-- The published writes, so that none is published again. The newest thousand epochs of a writer are kept.
create table spanmq_core.bulk_ledger (
    queue_id int not null,
    writer text not null,
    epoch bigint not null,
    n bigint not null,
    primary key (queue_id, writer, epoch)
);

-- Ids whose rows in the log never became messages: blocks of bulk writes that were closed without being published.
create table spanmq_core.unsent (
    queue_id int not null,
    lo bigint not null,
    hi bigint not null,
    primary key (queue_id, lo)
);

-- Batches: a message is sent when all messages of a batch are settled. See functions/send/batch.sql.
create table spanmq_core.batch (
    batch_id bigint generated always as identity primary key,
    queue_id int not null,   -- where the message is sent at the end
    message jsonb,
    headers jsonb,
    total bigint not null default 0,
    created_in xid8 not null default pg_current_xact_id(),     -- messages are added in this transaction only
    created_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,                                      -- the rest is null until then
    done bigint,
    dead bigint,
    sent_msg_id bigint
);
create index batch_open on spanmq_core.batch (batch_id) where ended_at is null;
create index batch_ended on spanmq_core.batch (ended_at) where ended_at is not null;
create index batch_queue on spanmq_core.batch (queue_id, batch_id);

-- The messages of a batch that is open. Whether they are settled is not stored: settled is what is in no run.
create table spanmq_core.batch_part (
    batch_id bigint not null references spanmq_core.batch on delete cascade,
    queue_id int not null,
    ids int8range not null,
    primary key (batch_id, queue_id, ids)
);
create index batch_part_ids on spanmq_core.batch_part using gist (int4range(queue_id, queue_id, '[]'), ids);

-- Until when a session waits for messages of a queue to be settled.
create table spanmq_core.settle_wait (
    queue_id int primary key,
    until timestamptz not null
);

-- Results of handlers, for programs that wait for them. See functions/settle/settled.sql.
create table spanmq_core.result (
    queue_id int not null,
    msg_id bigint not null,
    result jsonb,
    stored_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    primary key (queue_id, msg_id)
);
create index result_expires on spanmq_core.result (expires_at);

-- Subscriptions: queues without a log of their own, which get every message of another queue. See
-- functions/topics/subscription.sql.
create table spanmq_core.subscription (
    queue_id int primary key,
    log_id int not null                    -- the queue whose log it shares; that one can't be dropped before it
);
-- Used by every send. Empty without subscriptions: then it costs next to nothing.
create index subscription_log on spanmq_core.subscription (log_id, queue_id);

-- One logical queue over several queues, its shards, in this database and in others. Each of these holds a copy of the
-- map.
--   epoch    rises by one with each change; a send by an older map raises an error
--   shards   {"queue": "server", ...}: where a message may go. The client interprets the server's name.
--   former   null, or the shards before a change that is under way: a group stays where it has messages
create table spanmq_core.shard_map (
    name text primary key,
    epoch bigint not null check (epoch > 0),
    routing text not null check (routing in ('group', 'key', 'turn')),
    shards jsonb not null check (jsonb_typeof(shards) = 'object' and shards <> '{}'),
    former jsonb check (jsonb_typeof(former) = 'object' and former <> '{}')
);
