-- Which workers were asked to stop: those of this name that had begun before. A worker learns so from its next report.
-- A row for each request, and not a mark in the rows of worker, which the role of a worker may keep locked.
create table spanmq_core.worker_stop (
    worker text not null,
    asked_at timestamptz not null
);
alter table spanmq_core.worker_stop replica identity full;
