-- now() is when the transaction began: what one transaction writes has one time.
insert into msg_queue (msg_id, queue_type, status, order_id, time_added)
values ($1, $2, 'N', $3, now())
