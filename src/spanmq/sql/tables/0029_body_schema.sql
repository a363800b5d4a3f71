-- since 0.1.0
-- JSON Schemas of queues' bodies: see functions/body_schema.sql.
create table spanmq_core.body_schema (
    queue_id int primary key references spanmq_core.queue on delete cascade,
    schema jsonb not null
);

-- Whether what is sent must fit. In the row that every send reads anyway, so that the others pay nothing.
alter table spanmq_core.queue add column checks_bodies boolean not null default false;
