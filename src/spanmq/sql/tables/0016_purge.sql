-- since 0.1.0
-- What the last purge of a queue did not see: messages that were committed after its last look, though their ids were drawn before.
--   purged_in  the snapshot of that look
--   purged_by  the transaction that purged: what it had sent itself it saw
--   purged_on  the server on which that was: a restored queue counts transactions anew
--   spared     ids of bulk writes that were not published then; their rows may have been there
alter table spanmq_core.upkeep
    add column purged_in pg_snapshot,
    add column purged_by xid8,
    add column purged_on bigint,
    add column spared int8multirange not null default '{}';
