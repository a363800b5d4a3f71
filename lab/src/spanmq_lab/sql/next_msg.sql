-- The classic claim: a new message of type $1, if no other new one of its key was added at the same time or before.
-- Its faults, kept: two messages of a key with the same time block each other indefinitely; a claim compares every
-- waiting message with every other; and order holds only as long as the transaction of the claim stays open.
with candidate as (
    select waiting.msg_id
    from msg_queue waiting
    where waiting.queue_type = $1
      and waiting.status = 'N'
      and not exists (
          select from msg_queue before
          where before.queue_type = waiting.queue_type
            and before.order_id = waiting.order_id
            and before.status = 'N'
            and before.time_added <= waiting.time_added
            and before.msg_id <> waiting.msg_id)
    limit 1
    for update skip locked
)
update msg_queue taken
set status = 'P'
from candidate
where taken.msg_id = candidate.msg_id
returning taken.msg_id, taken.queue_type, taken.order_id
