-- The rows of the report.
select name as queue, messages, hidden, archived, coalesce(last_id, 0) as last_id, is_partitioned, is_unlogged, topics,
    notify_ms, grantees, notes
from spanmq_adopt.queue order by created_at, name
