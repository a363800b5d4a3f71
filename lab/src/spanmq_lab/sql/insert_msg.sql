insert into msg_queue (msg_id, queue_type, status, order_id, time_added)
values ($1, $2, 'N', $3, clock_timestamp())
