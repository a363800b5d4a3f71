-- The corrected claim: the first new message of a key, by time and then by id, for type $1. It steps from key to key
-- through the index, from a random key on and around, and stops at the first key whose first message is not locked: a
-- claim costs as many steps as keys are in flight, whatever the backlog. The transaction of the claim must stay open
-- until the message is handled.
with recursive place as materialized (
    select (random() * max(last.order_id))::integer as first_key
    from (select m.order_id from msg_queue m
          where m.queue_type = $1 and m.status = 'N' order by m.order_id desc limit 1) last
),
upper_heads as (
    (select m.order_id, m.msg_id from msg_queue m
     where m.queue_type = $1 and m.status = 'N' and m.order_id >= (select first_key from place)
     order by m.order_id, m.time_added, m.msg_id limit 1)
    union all
    select following.order_id, following.msg_id
    from upper_heads, lateral (
        select m.order_id, m.msg_id from msg_queue m
        where m.queue_type = $1 and m.status = 'N' and m.order_id > upper_heads.order_id
        order by m.order_id, m.time_added, m.msg_id limit 1) following
),
lower_heads as (
    (select m.order_id, m.msg_id from msg_queue m
     where m.queue_type = $1 and m.status = 'N' and m.order_id < (select first_key from place)
     order by m.order_id, m.time_added, m.msg_id limit 1)
    union all
    select following.order_id, following.msg_id
    from lower_heads, lateral (
        select m.order_id, m.msg_id from msg_queue m
        where m.queue_type = $1 and m.status = 'N' and m.order_id > lower_heads.order_id
          and m.order_id < (select first_key from place)
        order by m.order_id, m.time_added, m.msg_id limit 1) following
),
candidate as (
    select m.msg_id
    from (select msg_id from upper_heads union all select msg_id from lower_heads) head
    join msg_queue m on m.msg_id = head.msg_id
    where m.status = 'N'
    limit 1
    for update of m skip locked
)
update msg_queue taken
set status = 'P'
from candidate
where taken.msg_id = candidate.msg_id
returning taken.msg_id, taken.queue_type, taken.order_id
