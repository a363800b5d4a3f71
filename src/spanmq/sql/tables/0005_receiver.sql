-- since 0.1.0
-- The batches that a stream of a data engine consumes, and the writes of its tasks. An offset there is the number of a
-- batch here.

-- A receiver is one checkpoint of one stream. A batch that it has claimed stays as it is until a later one is settled:
-- the checkpoint may be less durable than this database.
create table spanmq_core.receiver (
    receiver_id uuid primary key default gen_random_uuid(),
    queue_id int not null,
    label text,                            -- a name that a person gave it; one at a time bears it
    state text not null default 'active' check (state in ('active', 'adoptable', 'released')),
    incarnation bigint not null default 1, -- raised at every start of its reader: calls with an older one are refused
    -- the newest that it has claimed: a counter under the row's lock, in commit order
    batch bigint not null default 0,
    settled bigint not null default 0,     -- up to which batch all is settled
    created_at timestamptz not null default clock_timestamp(),
    opened_at timestamptz not null default clock_timestamp(),
    -- when its reader last called, written once a minute; created_at until its first claim
    seen_at timestamptz not null default clock_timestamp()
);
create unique index receiver_label on spanmq_core.receiver (queue_id, label) where label is not null
    and state <> 'released';

-- The messages of a batch: los[i] to his[i], for the attempts[i]-th time. Their runs are leased under lease_id, which
-- is negative: only the receiver's own functions take messages out of such a run.
create table spanmq_core.receiver_batch (
    receiver_id uuid not null references spanmq_core.receiver on delete cascade,
    batch bigint not null,
    queue_id int not null,
    lease_id bigint not null,
    state text not null default 'claimed' check (state in ('claimed', 'settled', 'released', 'lost')),
    n bigint not null,
    lo bigint not null,
    hi bigint not null,
    los bigint[] not null,
    his bigint[] not null,
    attempts int[] not null,
    -- in the checkpoint beside the number, which a database that went back in time assigns again
    token uuid not null default gen_random_uuid(),
    follows uuid,                                  -- the token of the batch before, null: none
    primary key (receiver_id, batch)
);
-- Arrays of many ranges do not shrink enough to pay for it.
alter table spanmq_core.receiver_batch
    alter column los set storage external, alter column his set storage external, alter column attempts
    set storage external;
create index receiver_batch_ids on spanmq_core.receiver_batch (queue_id, lo);

-- The positions that lakes and streams over archives keep outside of the database, noted before they are used. See
-- functions/pipeline/position.sql.
create table spanmq_core.position (
    token uuid primary key default gen_random_uuid(),
    position_id bigint generated always as identity,
    queue_id int not null,
    chain uuid not null,               -- the first token of the lake or stream
    noted_by name not null,
    noted_at timestamptz not null default clock_timestamp()
);
create index position_chain on spanmq_core.position (chain, position_id);
create index position_role on spanmq_core.position (queue_id, noted_by, position_id);

-- The lakes that have messages of an archive, or dead letters. Once a lake is noted here, retention deletes only what
-- it has: nothing, if the lake was refused.
create table spanmq_core.archive_export (
    queue_id int not null,
    lake text not null,
    of_table text not null default 'archive' check (of_table in ('archive', 'dead_letters')),
    refused_at timestamptz,            -- since when its position is not of this database; null: it is
    primary key (queue_id, of_table, lake)
);

-- Which ids a lake has, in rows of 32,768 ids: an export writes those again to which it added.
create table spanmq_core.archive_export_ids (
    queue_id int not null,
    lake text not null,
    of_table text not null,
    block bigint not null,             -- id >> 15
    ids int8multirange not null,
    primary key (queue_id, of_table, lake, block)
);

-- The messages that retention has deleted from an archive, so that streams that had not read them can report it. See
-- functions/log/archive_gone.sql.
create table spanmq_core.archive_gone (
    queue_id int primary key,
    system_id bigint not null,         -- of the server whose transactions these are: after a restore they mean nothing
    gone_at timestamptz,               -- when the youngest of the deleted was archived
    newest_writer bigint,              -- the newest transaction that wrote one of them
    -- Among the deleted messages, those that are not seen from this position, which is a minute or two old: their
    -- transactions, [writer, archived_at]. Usually none: deleted messages are old, and only a transaction that was open
    -- for longer than the retention can have archived them since.
    known_from jsonb not null,
    late jsonb not null default '[]',
    next_from jsonb not null,          -- takes the place of known_from in a minute
    moved_at timestamptz not null default clock_timestamp()
);

-- The runs of the pipeline's jobs, for display: no job reads it. See functions/pipeline/pipeline_run.sql.
create table spanmq_core.pipeline_run (
    run_id bigint generated always as identity primary key,
    job text not null check (octet_length(job) between 1 and 100),
    queue_id int,    -- null: a job over several queues
    target text check (octet_length(target) <= 2000),          -- where it writes to, or reads from
    begun_by name not null,
    begun_at timestamptz not null default clock_timestamp(),
    seen_at timestamptz not null default clock_timestamp(),    -- when it was heard of last
    done bigint,                                               -- messages, as far as it told
    ended_at timestamptz,
    report jsonb,
    error text
);
create index pipeline_run_queue on spanmq_core.pipeline_run (queue_id, run_id);
