-- When a command last asked a worker to stop: it learns so from its next report, if it had begun before.
alter table spanmq_core.worker add column stop_asked_at timestamptz;
