-- since 0.1.0
-- The replica identity of tables, for logical replication: the whole row, where a table has no primary key. A key of
-- its own would cost these an index entry at every failure and every count; this costs nothing until wal_level is
-- logical, and then the old row in the WAL of each of their deletes, which maintenance makes.
alter table spanmq_core.failure replica identity full;
alter table spanmq_core.dead_letter_count replica identity full;
alter table spanmq_core.category_policy replica identity full;
alter table spanmq_core.bulk_run replica identity full;
alter table spanmq_core.missing replica identity full;
alter table pgmq.topic_bindings replica identity using index topic_bindings_unique_pattern_queue;
