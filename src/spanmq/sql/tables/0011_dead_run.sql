-- since 0.1.0
-- Messages that became dead letters in one call, of one block of 256 ids and with one history: a row for all of them,
-- while the messages stay where they are in the log. maintain() makes a row of spanmq_core.dead_letter of each soon
-- after, before the log may drop them; so do functions that redrive or delete them. Functions that only read show them
-- as if that had been done (spanmq_core.letters_of).
--   lo, n, ids  which messages: lo, lo + 1, ...; or where ids is not null, exactly these
create table spanmq_core.dead_run (
    dead_letter_id bigint primary key,     -- of the message lo; the others follow at their distance from it
    queue_id int not null,
    lo bigint not null,
    n int not null check (n between 2 and 256),
    ids int8multirange,
    priority smallint,
    attempts int not null,
    first_failed_at timestamptz not null,
    dead_at timestamptz not null,
    category text not null,
    error text,
    error_class text,
    traceback text,
    worker text,
    history jsonb not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index dead_run_lo on spanmq_core.dead_run (queue_id, lo);
