-- since 0.1.0
-- Subscriptions: queues without a log of their own, which get every message of another queue. See functions/subscription.sql.
create table spanmq_core.subscription (
    queue_id int primary key references spanmq_core.queue on delete cascade,
    log_id int not null references spanmq_core.queue    -- the queue whose log it shares; that one can't be dropped before it
);
-- Used by every send. Empty without subscriptions: then it costs next to nothing.
create index subscription_log on spanmq_core.subscription (log_id, queue_id);

-- Copies of these values, in the row that every call reads anyway.
alter table spanmq_core.queue
    add column is_subscription boolean not null default false,
    add column has_subscriptions boolean not null default false;
