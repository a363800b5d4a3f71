-- The classic table of a queue that is polled: a row a message, marked when it was handled. N is new, P is processed.
-- Messages of one queue_type and order_id are to be handled one after the other, in the order in which they were added.
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
