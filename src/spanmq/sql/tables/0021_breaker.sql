-- since 0.1.0
-- Circuit breakers of workers that are open: the worker receives nothing from the queue until open_until. A row of the past means nothing, so
-- that a worker that was killed leaves none open. See functions/breaker.sql.
create table spanmq_core.breaker (
    queue_id int not null references spanmq_core.queue on delete cascade,
    worker text not null check (octet_length(worker) <= 1000),
    open_until timestamptz not null,
    primary key (queue_id, worker)
);
