-- Shapes of what was sent for tasks: the names and the JSON types of the arguments, as senders note them. They say what
-- else may wait in a queue of which not all messages are read (spanmq check), and decide nothing.

-- Records that messages for these tasks are sent, each with arguments of this shape: an object with the JSON type of
-- each argument by its name. Returns the seconds for which the caller need not record them again, at most 600. The
-- result is 5 if this transaction has recorded one for the first time, because a rollback would remove the record. Up
-- to 100 shapes of a role in a queue are recorded. A further one is recorded without its task, and so is one that is
-- too large (a name over 255 bytes, a shape over 1,000). Waits for no lock. A serializable transaction records
-- nothing, because it would conflict with others. Raises MQ002 for arguments that do not match.
create or replace function spanmq_call.note_task_shapes(
    queue text, tasks text[], shapes jsonb[], of_caller uuid default null
) returns double precision
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    by_role name := spanmq_core.take_caller(of_caller);
    seconds double precision := 600;
begin
    perform spanmq_core.raise_if((cardinality(tasks) between 1 and 100 and cardinality(shapes) = cardinality(tasks)
                                  and array_position(tasks, null) is null and array_position(shapes, null) is null)
                                 is not true,
        'tasks and shapes must be two arrays of the same 1 to 100 elements, without NULL',
        'Such as {ship} and an array of {"order": "object"}.');
    if current_setting('transaction_isolation') = 'serializable' then
        return 60;
    end if;
    for i in 1 .. cardinality(tasks) loop
        seconds := least(seconds, spanmq_core.note_task_shape(this.queue_id, by_role, tasks[i], shapes[i]));
    end loop;
    return seconds;
end $$;

create or replace function spanmq_core.note_task_shape(
    this_queue int, by_role name, task text, shape jsonb
) returns double precision
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
    is_large boolean := task = '' or octet_length(task) > 255 or octet_length(shape::text) > 1000;
    known spanmq_core.task_shape;
begin
    select * into known from spanmq_core.task_shape n
        where n.queue_id = this_queue and n.role = by_role and not is_large and n.task = note_task_shape.task
          and n.shape = note_task_shape.shape
        order by n.noted_at desc limit 1;
    if not found and (is_large or spanmq_core.has_full_task_shapes(this_queue, by_role)) then
        task := '';
        shape := '{}';
        select * into known from spanmq_core.task_shape n
            where n.queue_id = this_queue and n.role = by_role and n.task = '' order by n.noted_at desc limit 1;
    end if;
    if known.noted_at > at_ - interval '10 minutes' then
        return case when known.noted_by = pg_current_xact_id_if_assigned() then 5
                    else extract(epoch from known.noted_at + interval '10 minutes' - at_) end;
    end if;
    insert into spanmq_core.task_shape (queue_id, role, task, shape, first_at, noted_at)
        values (this_queue, by_role, task, shape, coalesce(known.first_at, at_), at_);
    -- Rows that another transaction removes just now stay for it.
    delete from spanmq_core.task_shape n where n.ctid = any (array(
        select o.ctid from spanmq_core.task_shape o
            where o.queue_id = this_queue and o.role = by_role and o.task = note_task_shape.task
              and o.shape = note_task_shape.shape and o.noted_at < at_ for update skip locked));
    return 5;
end $$;

-- Whether a role has as many shapes in a queue as are noted, after those have gone of which no message is left.
create or replace function spanmq_core.has_full_task_shapes(this_queue int, by_role name) returns boolean
language plpgsql as $$
begin
    if (select count(*) from (select from spanmq_core.task_shape n
                              where n.queue_id = this_queue and n.role = by_role limit 100) few) < 100 then
        return false;
    end if;
    delete from spanmq_core.task_shape n where n.ctid = any (array(
        select o.ctid from spanmq_core.task_shape o
            where o.queue_id = this_queue and o.role = by_role
              and o.noted_at < spanmq_core.oldest_sent_at(this_queue) - interval '11 minutes' for update skip locked));
    return (select count(*) from (select from spanmq_core.task_shape n
                                  where n.queue_id = this_queue and n.role = by_role limit 100) few) >= 100;
end $$;

-- When the first message that is not settled was sent; infinity if there is none.
create or replace function spanmq_core.oldest_sent_at(this_queue int) returns timestamptz
language plpgsql stable as $$
declare
    oldest_id bigint := least(
        (select s.msg_id from spanmq_core.state s
         where s.queue_id = this_queue and s.msg_id >= (spanmq_core.bound_of(this_queue)).from_id
         order by s.queue_id, s.msg_id limit 1),
        (select l.msg_id from spanmq_core.later l where l.queue_id = this_queue
         order by l.queue_id, l.msg_id limit 1));
begin
    return case when oldest_id is null then 'infinity'::timestamptz
                else spanmq_core.enqueued_at(this_queue, oldest_id) end;
end $$;

-- The shapes of arguments that senders have noted for the tasks of a queue. first_at and noted_at are the times
-- between which a shape was sent, to within ten minutes. may_wait: a message of this shape may be among those that are
-- not settled; false: none is. A row without a task (null): a role has sent more shapes than are noted.
create or replace function spanmq_call.list_task_shapes(queue text)
returns table (task text, shape jsonb, first_at timestamptz, noted_at timestamptz, may_wait boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    oldest_at timestamptz := coalesce(spanmq_core.oldest_sent_at(this.queue_id), '-infinity');
begin
    return query
        select nullif(n.task, ''), n.shape, min(n.first_at), max(n.noted_at),
               max(n.noted_at) + interval '11 minutes' >= oldest_at
        from spanmq_core.task_shape n where n.queue_id = this.queue_id
        group by n.task, n.shape order by nullif(n.task, ''), min(n.first_at), n.shape::text;
end $$;
