-- since 0.1.0
-- When the youngest message was archived that retention has deleted: streams over the archive that had not come so far are told.
alter table spanmq.upkeep add column archive_gone_at timestamptz;
