-- since 0.1.0
-- How much may wait in a queue. null: any number of messages.
alter table spanmq_core.policy add column max_backlog bigint check (max_backlog > 0);

-- The sequence with the id up to which messages may be sent before the next count; null: without a limit. See
-- backlog.sql.
alter table spanmq_core.queue add column room regclass;
