-- The correction of the table: an index for its two questions, the first new message of a key, and the next key.
create index msg_queue_new on msg_queue (queue_type, order_id, time_added, msg_id) where status = 'N';
