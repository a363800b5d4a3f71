-- since 0.1.0
-- The messages that the last purge of a queue did not see: committed after its last look, though their ids were drawn
-- before.
--   purged_in  the snapshot of that look
--   purged_by  the transaction that purged: it saw its own messages
--   purged_on  the server on which that was: a restored queue counts transactions anew
--   spared     ids of bulk writes that were not published then; their rows may have existed
alter table spanmq_core.upkeep
    add column purged_in pg_snapshot,
    add column purged_by xid8,
    add column purged_on bigint,
    add column spared int8multirange not null default '{}';
