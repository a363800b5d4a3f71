-- since 0.1.0
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
