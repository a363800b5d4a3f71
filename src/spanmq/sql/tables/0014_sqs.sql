-- since 0.1.0
-- Keys of the SQS protocol. A signature can only be checked by who has the secret: so the secret itself is here, and who may select
-- from this table may sign as anybody.
create table spanmq.access_key (
    access_key_id text primary key check (access_key_id ~ '^[A-Z0-9]{16,128}$'),
    secret text not null check (octet_length(secret) between 16 and 200),
    queues text[] not null check (cardinality(queues) between 1 and 100),  -- patterns: * stands for any characters
    verbs text[] not null check (verbs <@ array['send', 'receive', 'look', 'manage'] and cardinality(verbs) > 0),
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz                                                 -- null: never
);

-- What SQS knows of a queue and a policy does not. A queue without a row has SQS's defaults.
create table spanmq.sqs_queue (
    queue_id int primary key references spanmq.queue on delete cascade,
    attributes jsonb not null default '{}',
    tags jsonb not null default '{}',
    changed_at timestamptz not null default clock_timestamp()
);

create type pgmq.access_key as (
    access_key_id text,
    queues text[],
    verbs text[],
    created_at timestamptz,
    expires_at timestamptz
);
