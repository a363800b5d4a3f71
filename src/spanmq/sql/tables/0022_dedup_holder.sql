-- Which message was sent last with a dedup_id that stands for it until it is settled or started. It holds the id while
-- it has a row in state or later: nothing is noted here when it leaves, so settlements and claims do not know of ids.
-- look_at: when maintain() looks whether the message has left; another time at each change, by which senders see one.
-- See functions/send/dedup_holder.sql.
create table spanmq_core.dedup_holder (
    queue_id int not null,
    dedup_id text collate "C" not null,
    msg_id bigint not null,
    look_at timestamptz not null,
    primary key (queue_id, dedup_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index dedup_holder_look on spanmq_core.dedup_holder ((queue_id + 0), look_at);
