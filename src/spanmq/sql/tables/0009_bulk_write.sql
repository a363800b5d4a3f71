-- since 0.1.0
-- Writes of many tasks that become visible at one instant: an open write, the blocks of ids that its tasks reserved, and what was
-- published. A write that is not here is published (then the ledger has it) or closed.
create table spanmq_core.bulk_write (
    write_id bigint generated always as identity primary key,
    queue_id int not null references spanmq_core.queue on delete cascade,
    writer text not null,                  -- a streaming query, a job, or a name made up for one write
    epoch bigint not null,
    opened_at timestamptz not null default clock_timestamp(),
    unique (queue_id, writer, epoch)
);

-- Reserved and committed before the first row is written, so that no segment goes from under it.
create table spanmq_core.bulk_block (
    block_id bigint generated always as identity primary key,
    write_id bigint not null references spanmq_core.bulk_write on delete cascade,
    queue_id int not null,
    lo bigint not null,
    hi bigint not null,
    log_name text not null,
    is_sealed boolean not null default false,      -- its task wrote it to the end
    has_groups boolean not null default false,     -- then its runs are in bulk_run
    has_limits boolean not null default false,     -- a message has an expiry or attempts of its own
    reserved_at timestamptz not null default clock_timestamp()
);
create index bulk_block_ids on spanmq_core.bulk_block (queue_id, lo);
create index bulk_block_write on spanmq_core.bulk_block (write_id);

-- The runs of a block whose messages have groups, as publishing will insert them.
create table spanmq_core.bulk_run (
    block_id bigint not null references spanmq_core.bulk_block on delete cascade,
    lo bigint not null,
    n int not null,
    group_key text
);
create index bulk_run_block on spanmq_core.bulk_run (block_id);

-- The published writes, so that none is published again. The newest thousand epochs of a writer are kept.
create table spanmq_core.bulk_ledger (
    queue_id int not null references spanmq_core.queue on delete cascade,
    writer text not null,
    epoch bigint not null,
    n bigint not null,
    published_at timestamptz not null default clock_timestamp(),
    primary key (queue_id, writer, epoch)
);
