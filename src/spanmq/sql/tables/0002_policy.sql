-- since 0.1.0
-- How a queue delivers. A queue without a row here has the defaults, which are PGMQ's behaviour: endless attempts, no order.
create table spanmq.policy (
    queue_id int primary key references spanmq.queue on delete cascade,
    max_attempts int check (max_attempts between 1 and 1000),               -- null: endless
    lease double precision not null default 30 check (lease > 0),           -- seconds; for receivers that name none
    backoff_base double precision not null default 1 check (backoff_base >= 0),         -- seconds before the second attempt
    backoff_factor double precision not null default 2 check (backoff_factor >= 1),
    backoff_max double precision not null default 3600 check (backoff_max >= 0),        -- seconds
    jitter boolean not null default true,                                   -- full: a random part of the backoff
    dead_letter_retention interval check (dead_letter_retention > interval '0'),        -- null: for ever
    ordered boolean not null default false,                                 -- receive, read and pop give head runs of free groups
    dead_letter_blocks_group boolean not null default false,                -- until it is redriven or discarded
    paused boolean not null default false,                                  -- receivers get nothing
    drop_expired boolean not null default false,                            -- else a message that expired is dead-lettered
    max_in_flight int check (max_in_flight > 0),                            -- over all receivers; null: any number
    max_in_flight_per_group int check (max_in_flight_per_group > 0),
    rate_limit double precision check (rate_limit > 0),                     -- messages a second that receivers get; null: any
    rate_burst double precision check (rate_burst >= 1),                    -- messages that may come at once; null: a second's
    priority_aging double precision not null default 60 check (priority_aging > 0)      -- seconds of waiting that weigh a level of priority
);
