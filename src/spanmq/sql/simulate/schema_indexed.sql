-- The table of a queue that is polled, corrected: the same columns, and an index for its two questions: the first new
-- message of a key, and the next key.
create table msg_queue (
    msg_id integer not null,
    queue_type varchar(10) not null,
    status varchar(1) not null,
    order_id integer not null,
    time_added timestamptz not null,
    time_processed timestamptz
);

create unique index msg_queue_msg_id on msg_queue (msg_id);
create index msg_queue_time_added on msg_queue (time_added);
create index msg_queue_new on msg_queue (queue_type, order_id, time_added, msg_id) where status = 'N';
