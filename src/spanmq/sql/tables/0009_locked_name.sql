-- The rows of names that were locked: spanmq_core.lock_name() leaves none. One that a transaction holds goes when the
-- name is locked again.
delete from spanmq_core.lock l where l.queue_id = 0 and l.what = any (array(
    select o.what from spanmq_core.lock o
    where o.queue_id = 0 and (o.what like 'queue %' or o.what like 'schedule %' or o.what like 'shards %'
                              and not exists (select from spanmq_core.shard_map m where 'shards ' || m.name = o.what))
    for update skip locked));
