-- since 0.1.0
-- Keys of the SQS protocol. Checking a signature requires the secret: so the secret itself is stored here, and a role
-- that may select from this table may sign with any key.
create table spanmq_core.access_key (
    access_key_id text primary key check (access_key_id ~ '^[A-Z0-9]{16,128}$'),
    secret text not null check (octet_length(secret) between 16 and 200),
    queues text[] not null check (cardinality(queues) between 1 and 100),  -- patterns: * stands for any characters
    verbs text[] not null check (verbs <@ array['send', 'receive', 'look', 'manage'] and cardinality(verbs) > 0),
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz                                                 -- null: never
);

-- What SQS knows of a queue and a policy does not. A queue without a row has SQS's defaults.
create table spanmq_core.sqs_queue (
    queue_id int primary key references spanmq_core.queue on delete cascade,
    attributes jsonb not null default '{}',
    tags jsonb not null default '{}',
    changed_at timestamptz not null default clock_timestamp()
);

-- Where the messages of a dead-letter queue come from. Only move_sqs_messages() writes it, for messages that it moves: headers are no
-- proof, because senders write them.
create table spanmq_core.sqs_moved (
    queue_id int not null references spanmq_core.queue on delete cascade,
    msg_id bigint not null,
    source text not null,                    -- the queue that it was moved from
    first_queue text not null,               -- the queue that it was sent to, its id there, and when
    first_id bigint not null,
    sent_at timestamptz not null,
    expires_at timestamptz not null,         -- the message's own expiry
    primary key (queue_id, msg_id)
);
create index sqs_moved_expiry on spanmq_core.sqs_moved (expires_at);

create type spanmq.access_key as (
    access_key_id text,
    queues text[],
    verbs text[],
    created_at timestamptz,
    expires_at timestamptz
);
