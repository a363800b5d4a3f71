-- since 0.1.0
-- What a send may ask for beyond PGMQ's: deduplication, and an expiry.

-- What was sent under an id of the sender's own: the same id again before `until` is not sent, but gives msg_id. The message itself
-- may be gone long since. No foreign key: checking it would lock the queue's row at each send.
create table spanmq.deduplication (
    queue_id int not null,
    dedup_id text collate "C" not null,
    msg_id bigint not null,
    until timestamptz not null,
    primary key (queue_id, dedup_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index deduplication_until on spanmq.deduplication (queue_id, until);

-- An unlogged queue forgets these together with its messages.
create unlogged table spanmq.deduplication_unlogged (like spanmq.deduplication including all);

-- Messages that expire, and when; a message that is gone leaves its row until it is due.
create table if not exists spanmq.expiry (
    queue_id int not null,
    msg_id bigint not null,
    expires_at timestamptz not null,
    primary key (queue_id, msg_id)
);
create index if not exists expiry_due on spanmq.expiry (expires_at);
