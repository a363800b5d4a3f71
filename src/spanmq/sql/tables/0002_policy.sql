-- since 0.1.0
-- How a queue delivers. A queue without a row here has the defaults. NaN and infinity are not valid numbers of seconds
-- or messages.
create table spanmq_core.policy (
    queue_id int primary key references spanmq_core.queue on delete cascade,
    -- 0: no limit; null: 25 for receive() and nack(), and none for PGMQ's read(), as PGMQ has it
    max_attempts int check (max_attempts between 0 and 1000),
    lease double precision not null default 30 check (lease > 0 and lease < 'infinity'),       -- seconds; for receivers that name none
    -- Seconds before the second attempt, and how they grow. 25 attempts take 20 days in the mean, 40 at most.
    backoff_base double precision not null default 1 check (backoff_base >= 0 and backoff_base < 'infinity'),
    backoff_factor double precision not null default 2 check (backoff_factor >= 1 and backoff_factor < 'infinity'),
    backoff_max double precision not null default 604800 check (backoff_max >= 0 and backoff_max < 'infinity'),
    jitter boolean not null default true,                                   -- full: a random part of the backoff
    dead_letter_retention interval check (dead_letter_retention > interval '0'),        -- null: indefinitely
    ordered boolean not null default false,                                 -- receive, read and pop give head runs of free groups
    dead_letter_blocks_group boolean not null default false,                -- until it is redriven or discarded
    paused boolean not null default false,                                  -- receivers get nothing
    drop_expired boolean not null default false,                            -- else a message that expired is dead-lettered
    max_in_flight int check (max_in_flight > 0),                            -- over all receivers; null: any number
    max_in_flight_per_group int check (max_in_flight_per_group > 0),
    -- Messages a second that receivers get (null: any), and how many may come at once (null: a second's).
    rate_limit double precision check (rate_limit > 0 and rate_limit < 'infinity'),
    rate_burst double precision check (rate_burst >= 1 and rate_burst < 'infinity'),
    -- Seconds of waiting that weigh a level of priority.
    priority_aging double precision not null default 60 check (priority_aging > 0 and priority_aging < 'infinity')
);
