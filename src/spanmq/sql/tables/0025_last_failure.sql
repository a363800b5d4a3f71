-- The last failure of a message is the last entry of its id, or of its block: see last_error().
drop index spanmq_core.failure_lo;
create index failure_lo on spanmq_core.failure (queue_id, lo, failed_at);
drop index spanmq_core.failure_shared;
create index failure_shared on spanmq_core.failure (queue_id, (lo / 256), failed_at) where n > 1;
