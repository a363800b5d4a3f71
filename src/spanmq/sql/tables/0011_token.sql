-- since 0.1.0
-- Tokens of the HTTP service, and their rights on queues. A token's text is shown once and not stored; its SHA-256 is
-- stored, which is sufficient, because the text has 256 random bits and cannot be guessed.
create table spanmq_core.token (
    token_id int generated always as identity primary key,
    name text not null unique check (octet_length(name) between 1 and 100),
    secret_hash text not null check (secret_hash ~ '^[0-9a-f]{64}$'),
    previous_hash text check (previous_hash ~ '^[0-9a-f]{64}$'),   -- before the last rotation; good until previous_until
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
