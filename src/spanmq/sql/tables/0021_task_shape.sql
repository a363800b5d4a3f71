-- Which arguments messages for tasks were sent with, a row for each role, task and shape: an object with the JSON type
-- of each argument by its name. Senders note a shape about every ten minutes, in a new row, so that none waits for
-- another; one of them removes the rows before. A row without a task: the role sent more shapes than are noted. See
-- functions/operate/task_shape.sql.
create table spanmq_core.task_shape (
    queue_id int not null,
    role name not null,
    task text not null check (octet_length(task) <= 255),
    shape jsonb not null check (octet_length(shape::text) <= 1000),
    first_at timestamptz not null,
    noted_at timestamptz not null,
    noted_by xid8 not null default pg_current_xact_id()
);
alter table spanmq_core.task_shape replica identity full;
create index task_shape_role on spanmq_core.task_shape (queue_id, role, task);

-- What a worker reports of handlers that take unusually long; and the stacks of its running handlers, when a command
-- has asked for them: see functions/operate/stack.sql.
alter table spanmq_core.worker
    add column slow jsonb not null default '[]',
    add column stacks_asked_at timestamptz,
    add column stacks jsonb,
    add column stacks_at timestamptz;
