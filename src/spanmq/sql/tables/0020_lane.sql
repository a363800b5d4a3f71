-- since 0.1.0
-- A lane is a view, spanmq_core.lane_<number>, of the log in which a queue's newest messages lie. Its name is known beforehand, so that statements
-- on it keep their plans: functions/lane.sql. A row here for each that there is.
create table spanmq_core.lane (
    lane int primary key,
    log_name text not null,                -- the log that the view shows, as long as the view exists
    free_from_xid xid8                     -- null: a queue's row names it, or has done until now
);

-- The lane that shows log_name; null: none does.
alter table spanmq_core.queue add column lane int;
create unique index queue_lane on spanmq_core.queue (lane) where lane is not null;

-- The columns of a log's row beside its id.
create type spanmq_core.logged as (
    enqueued_at timestamptz,
    message jsonb,
    headers jsonb
);
