-- since 0.1.0
-- What a send may ask for beyond PGMQ's: that nothing is sent twice; and whom it wakes.

-- The sequence that says until when somebody waits for messages, spanmq.waiting_<queue_id>; null: nobody ever has. See wake.sql.
alter table spanmq.queue add column waiting regclass;

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
