-- Signals, a row for each name in a queue: a message that waits for the signal, or a signal that came before its wait.
-- See functions/send/signal.sql.
create table spanmq_core.signal (
    queue_id int not null,
    name text collate "C" not null,
    is_wait boolean not null,
    body jsonb,                    -- the body of the message, or that of the signal
    headers jsonb,                 -- the headers of the message
    made_at timestamptz not null,
    until timestamptz not null,    -- when the message is sent without the signal, or the signal is forgotten
    of_queue_id int,               -- the message whose handler waits; null: not known
    of_msg_id bigint,
    primary key (queue_id, name)
);
create index signal_of on spanmq_core.signal (of_queue_id, of_msg_id) where of_msg_id is not null;
create index signal_wait on spanmq_core.signal (until) where is_wait;
create index signal_kept on spanmq_core.signal (until) where not is_wait;
