-- since 0.1.0
-- Batches: a message is sent when all messages of a batch are settled. See functions/batch.sql.
create table spanmq_core.batch (
    batch_id bigint generated always as identity primary key,
    queue_id int not null references spanmq_core.queue on delete cascade,   -- where the message is sent at the end
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
    queue_id int not null references spanmq_core.queue on delete cascade,
    ids int8range not null,
    primary key (batch_id, queue_id, ids)
);
create index batch_part_ids on spanmq_core.batch_part using gist (int4range(queue_id, queue_id, '[]'), ids);

-- Until when a session waits for messages of a queue to be settled.
create table spanmq_core.settle_wait (
    queue_id int primary key references spanmq_core.queue on delete cascade,
    until timestamptz not null
);

-- Whether settlements of a queue must look into these tables. In the row that every call reads anyway.
alter table spanmq_core.queue add column is_watched boolean not null default false;
