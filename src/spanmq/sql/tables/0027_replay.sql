-- since 0.1.0
-- How long settled messages stay in the log, and what it holds beside messages: see functions/replay.sql.
alter table spanmq_core.policy add column keep interval check (keep > interval '0');

-- When the first and the last message of a segment were sent. Written where the queue keeps its log, when the segment gets no more messages.
alter table spanmq_core.segment add column oldest_at timestamptz, add column newest_at timestamptz;

-- The highest id of which the log may lack the message: of a segment that was truncated, or rewritten with its unsettled messages alone.
-- lost_at: when the last of them was sent; null where that is not known.
alter table spanmq_core.upkeep add column lost_to bigint, add column lost_at timestamptz;

-- Ids whose rows in the log never became messages: blocks of bulk writes that were closed without being published.
create table spanmq_core.unsent (
    queue_id int not null references spanmq_core.queue on delete cascade,
    lo bigint not null,
    hi bigint not null,
    primary key (queue_id, lo)
);

-- Which messages a replay chooses: of these ids and times, whose body meets the path, at most qty.
create type spanmq_core.choice as (
    first_id bigint,
    last_id bigint,
    since timestamptz,
    until timestamptz,
    path jsonpath,
    qty bigint
);

-- The messages that were chosen.
create type spanmq_core.replayed as (
    ids bigint[],
    groups text[],
    has_limits boolean
);
