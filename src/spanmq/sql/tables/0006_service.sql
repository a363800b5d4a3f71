-- since 0.1.0
-- Tokens of the HTTP service, and their rights on queues. A token's text is shown once and not stored; its SHA-256 is
-- stored, which is sufficient, because the text has 256 random bits and cannot be guessed.
create table spanmq_core.token (
    token_id int generated always as identity primary key,
    name text not null unique check (octet_length(name) between 1 and 100),
    secret_hash text not null check (secret_hash ~ '^[0-9a-f]{64}$'),
    -- before the last rotation; good until previous_until
    previous_hash text check (previous_hash ~ '^[0-9a-f]{64}$'),
    previous_until timestamptz,
    queues text[] not null check (cardinality(queues) between 1 and 100),  -- patterns: * stands for any characters
    verbs text[] not null check (verbs <@ array['send', 'receive', 'look', 'manage'] and cardinality(verbs) > 0),
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,                                        -- null: never
    rotated_at timestamptz
);
create unique index token_secret on spanmq_core.token (secret_hash);
create index token_previous_secret on spanmq_core.token (previous_hash) where previous_hash is not null;

create type spanmq.token as (
    name text,
    queues text[],
    verbs text[],
    created_at timestamptz,
    expires_at timestamptz,
    rotated_at timestamptz
);

-- Sessions of people in the service's pages. A caller that presents a token's secret gets one; a browser keeps its key,
-- whose SHA-256 is stored here. It is valid while its token is valid, and has the current rights of the token.
create table spanmq_core.session (
    key_hash text primary key check (key_hash ~ '^[0-9a-f]{64}$'),
    token_id int not null references spanmq_core.token on delete cascade,
    secret_hash text not null,             -- of the secret that was shown: a rotation ends it, after its overlap
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null
);
create index session_token on spanmq_core.session (token_id);
create index session_expiry on spanmq_core.session (expires_at);

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
    queue_id int primary key,
    attributes jsonb not null default '{}',
    tags jsonb not null default '{}',
    changed_at timestamptz not null default clock_timestamp()
);

-- Where the messages of a dead-letter queue come from. Only move_sqs_messages() writes it, for messages that it moves:
-- headers are no proof, because senders write them.
create table spanmq_core.sqs_moved (
    queue_id int not null,
    msg_id bigint not null,
    source text not null,                    -- the queue that it was moved from
    first_queue text not null,               -- the queue that it was sent to, its id there, and when
    first_id bigint not null,
    sent_at timestamptz not null,
    received int not null,                   -- how often it was received in earlier queues
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

-- Move tasks of the SQS protocol: messages of a dead-letter queue return to their source queues, or move to another
-- one. Any service runs the next step of a task, under the lock of its row.
create table spanmq_core.sqs_move (
    handle uuid primary key default gen_random_uuid(),
    source text not null,
    destination text,                      -- null: where each message came from
    source_arn text not null,
    destination_arn text,
    access_key_id text,                    -- the key of SQS that started it; services check it at each step
    rate int check (rate between 1 and 500),                -- messages a second; null: as fast as it goes
    status text not null default 'RUNNING' check (status in ('RUNNING', 'CANCELLED', 'COMPLETED', 'FAILED')),
    moved bigint not null default 0,
    to_move bigint not null,               -- when it was started
    failure text,
    started_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    next_at timestamptz not null default clock_timestamp()  -- when the next step may begin
);
create index sqs_move_source on spanmq_core.sqs_move (source, started_at);
-- One at a time of a source; what is looked at for work.
create unique index sqs_move_running on spanmq_core.sqs_move (source) where status = 'RUNNING';

create type spanmq.sqs_move as (
    handle text,
    source text,
    destination text,
    source_arn text,
    destination_arn text,
    access_key_id text,
    rate int,
    status text,
    moved bigint,
    to_move bigint,
    failure text,
    started_at timestamptz
);
