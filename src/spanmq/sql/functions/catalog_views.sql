-- PGMQ's tables of queues and throttles, as views: they are read as in PGMQ, and changed by functions only.

create or replace trigger spanmq_change instead of insert or update or delete on pgmq.meta
    for each row execute function spanmq_core.refuse_change('pgmq.create or pgmq.drop_queue');

create or replace view pgmq.notify_insert_throttle as
    select name as queue_name, notify_ms as throttle_interval_ms,
    spanmq_core.last_notified_at(queue_id) as last_notified_at
    from spanmq_core.queue where notify_ms is not null;
create or replace trigger spanmq_change instead of insert or update or delete on pgmq.notify_insert_throttle
    for each row execute function
    spanmq_core.refuse_change('pgmq.enable_notify_insert, update_notify_insert or disable_notify_insert');
