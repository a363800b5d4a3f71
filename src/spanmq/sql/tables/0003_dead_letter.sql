-- since 0.1.0
-- What went wrong with messages: failures, dead letters, what each category of failures means; and when messages expire.

-- Why a call gave messages up, for now or for good.
create type spanmq.reason as (
    category text,
    error text,
    error_class text,
    traceback text,
    worker text
);

-- A row for each call that gave messages back with a failure, and block of 256 ids: a nack of a thousand ids writes four. Of the
-- messages that are still in the queue; what is dead-lettered takes a copy of its story along.
--   lo, n, ids  which messages, as in a span
--   outcome     retrying, or expired (its lease ran out); cancelled is no failure, but says that the message is not completed
create table spanmq.failure (
    queue_id int not null,
    block bigint not null,                 -- lo / 256
    lo bigint not null,
    n int not null check (n between 1 and 256),
    ids int8multirange,
    attempt int not null,
    failed_at timestamptz not null,
    outcome text not null check (outcome in ('retrying', 'expired', 'cancelled')),
    category text not null,
    error text,
    error_class text,
    traceback text,
    worker text,
    retry_at timestamptz
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index failure_block on spanmq.failure (queue_id, block);

-- How far maintain() has looked for failures that may go, and up to which id a purge has emptied the queue.
alter table spanmq.upkeep
    add column failures_to bigint not null default 0,
    add column failures_at timestamptz not null default '-infinity',
    add column purged_to bigint not null default 0;

-- A message that was given up. It is out of its queue, in the same transaction.
create table spanmq.dead_letter (
    queue_id int not null,
    msg_id bigint not null,
    message jsonb,
    headers jsonb,
    group_key text,
    attempts int not null,
    enqueued_at timestamptz not null,
    first_failed_at timestamptz not null,
    last_failed_at timestamptz not null,
    dead_at timestamptz not null,
    category text not null,
    error text,
    error_class text,
    traceback text,
    worker text,
    history jsonb not null default '[]',   -- every earlier failure: attempt, failed_at, outcome, category, error, error_class, traceback, worker, retry_at
    redriven_at timestamptz,
    redriven_as bigint,                    -- the id under which it was sent again
    primary key (queue_id, msg_id)
);

-- How many dead letters of each category there are, as differences: who dead-letters adds a row and waits for nobody; maintain()
-- folds them. The count is the sum.
create table spanmq.dead_letter_count (
    queue_id int not null,
    category text not null,
    n bigint not null
);
create index dead_letter_count_queue on spanmq.dead_letter_count (queue_id, category);

-- What a category of failures means: whether such a message is tried again, how often, and how far apart. Null: as the queue's
-- policy says. A row without a queue holds for all queues that have none of their own.
create table spanmq.category_policy (
    queue_id int references spanmq.queue on delete cascade,
    category text not null check (category <> '' and length(category) <= 63),
    retries boolean not null default true,
    max_attempts int check (max_attempts between 1 and 1000),
    backoff_base double precision check (backoff_base >= 0),
    backoff_factor double precision check (backoff_factor >= 1),
    backoff_max double precision check (backoff_max >= 0)
);
create unique index category_policy_key on spanmq.category_policy (coalesce(queue_id, 0), category);
insert into spanmq.category_policy (queue_id, category, retries)
    values (null, 'TRANSIENT', true), (null, 'DEPENDENCY', true), (null, 'PERMANENT', false), (null, 'BUSINESS', false), (null, 'UNKNOWN', true);

-- When messages expire that say so in their headers (x-spanmq-expires-at). A claim never delivers one after it; the row goes when
-- the message has expired, or when it is found to have gone before.
create table spanmq.expiry (
    queue_id int not null,
    msg_id bigint not null,
    expires_at timestamptz not null,
    primary key (queue_id, msg_id)
);
create index expiry_due on spanmq.expiry (queue_id, expires_at, msg_id);
