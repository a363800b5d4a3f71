-- since 0.1.0
-- Results of handlers, for programs that wait for them. See functions/settled.sql.
create table spanmq_core.result (
    queue_id int not null references spanmq_core.queue on delete cascade,
    msg_id bigint not null,
    result jsonb,
    stored_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    primary key (queue_id, msg_id)
);
create index result_expires on spanmq_core.result (expires_at);
