-- The view of a queue, pgmq.q_<name>, and what writes through it: an insert sends, an update of vt hides as set_vt()
-- does, a delete deletes. Rows come one by one (INSTEAD OF triggers are called so), and in a batch a message costs a
-- tenth. So what a statement changes is collected, from runs that it has locked, and done at once. Lock order: as in
-- settle.sql; a run is locked for a batch only if that needs no wait.

-- The view of a queue: each unsettled message with its read_ct and vt. PostgreSQL brings no order, limit or max() into
-- a security_barrier view, so this is none. Instead, every column but msg_id is null unless the row is the view's: a
-- function in a condition, whenever the planner calls it, learns nothing of settled messages but that their ids
-- existed, and nothing of other queues. Some conditions follow from others, for the planner's sake: it takes each as
-- one of three. With these it begins with the runs, unless a limit wants the first rows of the log; then it begins at
-- the first run.
create or replace function spanmq_core.make_view(queue_id int, view_name text) returns regclass
language plpgsql as $$
declare
    is_left text := format(
        '(s.n = 1 or s.lease_id = 0'
        ' or not exists (select from spanmq_core.done d where d.queue_id = %s and d.msg_id = l.msg_id))', queue_id);
    is_shown text := format(
        's.queue_id = %s and l.msg_id >= s.lo and l.msg_id < s.lo + s.n and %s', queue_id, is_left);
begin
    execute format($view$
        create view pgmq.%1$I as
        select l.msg_id,
               case when s.queue_id = %2$s then s.attempts end as read_ct,
               case when %4$s then l.enqueued_at end as enqueued_at,
               case when s.queue_id = %2$s then s.last_read_at end as last_read_at,
               case when %4$s then coalesce(s.vt, l.enqueued_at) end as vt,
               case when %4$s then l.message end as message,
               case when %4$s then l.headers end as headers
        from (select queue_id, lo, n, 0::bigint as lease_id, 0 as attempts,
                     null::timestamptz as last_read_at, null::timestamptz as vt from spanmq_core.fresh
              union all
              select queue_id, lo, n, lease_id, attempts, last_read_at, vt from spanmq_core.held) s
        join spanmq_core.log_%2$s l
            on l.msg_id >= s.lo and l.msg_id < s.lo + s.n and l.msg_id <= s.lo + s.n - 1 and l.msg_id < s.lo + 256
           and s.lo >= l.msg_id - l.msg_id %% 256 and s.lo <= l.msg_id
        where s.queue_id = %2$s and %3$s
          and l.msg_id >= (select least(
              (select f.lo from spanmq_core.fresh f where f.queue_id = %2$s order by f.queue_id, f.lo limit 1),
              (select h.lo from spanmq_core.held h where h.queue_id = %2$s order by h.queue_id, h.lo limit 1)))
        $view$, view_name, queue_id, is_left, is_shown);
    -- These three are all that writes through the view: the right of the caller, each row, and what the rows have
    -- collected.
    execute format('create trigger spanmq_before before insert or update or delete on pgmq.%I'
                   ' for each statement execute function spanmq_core.may_change_view(%s)', view_name, queue_id);
    execute format('create trigger spanmq_change instead of insert or update or delete on pgmq.%I'
                   ' for each row execute function spanmq_core.change_view(%s)', view_name, queue_id);
    execute format('create trigger spanmq_end after update or delete on pgmq.%I'
                   ' for each statement execute function spanmq_core.end_change_of_view(%s)', view_name, queue_id);
    if not spanmq_core.is_following() then
        perform spanmq_core.close_relation(format('pgmq.%I', view_name)::regclass);
    end if;
    return format('pgmq.%I', view_name)::regclass;
end $$;

-- Raises 42501 unless the caller may do with the queue what a statement is about to do. Runs with the rights of the
-- caller.
create or replace function spanmq_core.may_change_view() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    verb text := case tg_op when 'INSERT' then 'send' else 'receive' end;
begin
    if not spanmq_call.may(tg_argv[0]::int, verb) then
        raise exception 'permission denied for queue %', substr(tg_table_name, 3)
            using errcode = '42501',
                hint = format('select spanmq.grant_queue(%L, %L, %L)', current_user, substr(tg_table_name, 3), verb);
    end if;
    return null;
end $$;

-- The trigger of each row. What a statement has collected is in a setting of the session, because a trigger has no
-- other memory: a caller can change it, but only that of queues that it may change.
create or replace function spanmq_core.change_view() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    setting text := 'spanmq.view_' || tg_argv[0];
    pending spanmq_core.view_change := nullif(current_setting(setting, true), '')::spanmq_core.view_change;
    until timestamptz;
begin
    if tg_op = 'INSERT' then
        return spanmq_core.send_row(tg_argv[0]::int, row(new.*)::pgmq.message_record);
    elsif tg_op = 'UPDATE' then
        if (new.msg_id, new.read_ct, new.enqueued_at, new.last_read_at, new.message, new.headers)
           is distinct from (old.msg_id, old.read_ct, old.enqueued_at, old.last_read_at, old.message, old.headers) then
            raise exception '% of % is not possible: a message is written once', tg_op, tg_table_name
                using errcode = 'MQ004', hint = 'Only vt can be updated in the view of a queue.';
        elsif new.vt is null then
            raise exception 'vt cannot be NULL or infinite'
                using errcode = 'MQ002', hint = 'Pass a time; a past time makes the message visible at once.';
        end if;
        until := new.vt;
    end if;
    if old.msg_id = pending.hi + 1 and old.msg_id <= pending.run_hi and pending.until is not distinct from until then
        pending.hi := old.msg_id;
        perform set_config(setting, pending::text, true);
    elsif not spanmq_core.change_message(tg_argv[0]::int, old.msg_id, until, pending, setting) then
        return null;
    end if;
    return case tg_op when 'DELETE' then old else new end;
end $$;

-- Deletes a message (until null) or hides it, now or with the next ones. False if it is not in the queue any more.
create or replace function spanmq_core.change_message(
    this_queue int, id bigint, until timestamptz, pending spanmq_core.view_change, setting text
) returns boolean
language plpgsql :pinned as $$
declare
    run_hi bigint;
    is_changed boolean := true;
    goes_on boolean := id = pending.hi + 1 and pending.hi >= pending.lo and pending.until is not distinct from until;
begin
    -- The first message of a statement is changed at once, as by a function: most statements change no other, and then
    -- none waits for a run.
    if pending.ids is not null and spanmq_core.sees_now() then
        run_hi := spanmq_core.try_lock_run(this_queue, id);
    end if;
    -- The list is read and written for each row: it stays short.
    if run_hi is not null and goes_on and id - pending.lo < 10000 then
        pending.hi := id;
        pending.run_hi := run_hi;
        perform set_config(setting, pending::text, true);
        return true;
    elsif run_hi is null or pending.until is distinct from until
          or cardinality(pending.ids) > 64 or pending.hi - pending.lo > 64 then
        if pending.ids is not null then
            perform spanmq_core.apply_change(this_queue, pending);
        end if;
        pending.ids := '{}';
    elsif pending.hi >= pending.lo then
        pending.ids := pending.ids || array(select generate_series(pending.lo, pending.hi));
    end if;
    pending.until := until;
    pending.lo := id;
    if run_hi is null then
        is_changed := spanmq_core.change_messages(this_queue, array[id], until);
        pending.hi := id - 1;
        pending.run_hi := 0;
    else
        pending.hi := id;
        pending.run_hi := run_hi;
    end if;
    perform set_config(setting, pending::text, true);
    return is_changed;
end $$;

-- Locks the run of a message, and returns the last id up to which it holds all messages; null where another transaction
-- holds the lock, and for a message that has left the run, or that a stream holds.
create or replace function spanmq_core.try_lock_run(this_queue int, id bigint) returns bigint
language plpgsql :pinned as $$
declare
    run record;
begin
    select h.lo, h.lo + h.n - 1 as hi, h.n > 1 and h.lease_id > 0 as may_be_in_part into run from spanmq_core.held h
        where h.queue_id = this_queue and h.lo + h.n > id and h.lease_id >= 0
          and h.lo = (select o.lo from spanmq_core.held o
                      where o.queue_id = this_queue and o.lo <= id and o.lo >= id / 256 * 256
                      order by o.queue_id desc, o.lo desc limit 1)
        for update skip locked;
    if not found then
        select f.lo, f.lo + f.n - 1 as hi, false as may_be_in_part into run from spanmq_core.fresh f
            where f.queue_id = this_queue and f.lo + f.n > id
              and f.lo = (select o.lo from spanmq_core.fresh o
                          where o.queue_id = this_queue and o.lo <= id and o.lo >= id / 256 * 256
                      order by o.queue_id desc, o.lo desc limit 1)
            for update skip locked;
    end if;
    if run.may_be_in_part then
        -- A new statement, under the lock: up to the next message that has left the run. One that has left it is not
        -- behind its end.
        run.hi := least(run.hi, (select min(d.msg_id) - 1 from spanmq_core.done d
                                 where d.queue_id = this_queue and d.msg_id between id and run.hi));
    end if;
    return case when run.hi >= id then run.hi end;
end $$;

-- Deletes messages (until null) or hides them. False if none of them is in the queue.
create or replace function spanmq_core.change_messages(this_queue int, ids bigint[], until timestamptz) returns boolean
language plpgsql :pinned as $$
declare
    this spanmq_core.queue := (select q from spanmq_core.queue q where q.queue_id = this_queue);
begin
    if until is null then
        return spanmq_core.remove(this, ids, null) <> '{}';
    end if;
    perform spanmq_core.hide(this, ids, until);
    return found;
end $$;

-- Does what a statement has collected.
create or replace function spanmq_core.apply_change(this_queue int, pending spanmq_core.view_change) returns void
language plpgsql as $$
begin
    -- Never more, unless the caller has changed the setting.
    pending.hi := least(pending.hi, pending.lo + 100000);
    pending.ids := pending.ids || array(select generate_series(pending.lo, pending.hi));
    if pending.ids <> '{}' then
        perform spanmq_core.change_messages(this_queue, pending.ids, pending.until);
    end if;
end $$;

create or replace function spanmq_core.end_change_of_view() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    setting text := 'spanmq.view_' || tg_argv[0];
    pending spanmq_core.view_change := nullif(current_setting(setting, true), '')::spanmq_core.view_change;
begin
    if pending.ids is not null then
        perform set_config(setting, '', true), spanmq_core.apply_change(tg_argv[0]::int, pending);
    end if;
    return null;
end $$;

-- Sends the row of an insert and returns it as it was sent. Raises MQ004 for columns that the queue writes itself.
create or replace function spanmq_core.send_row(this_queue int, message pgmq.message_record) returns pgmq.message_record
language plpgsql as $$
declare
    name text := (select q.name from spanmq_core.queue q where q.queue_id = this_queue);
begin
    perform spanmq_core.raise_if(message.msg_id is not null or message.last_read_at is not null or message.read_ct <> 0,
        format('msg_id, read_ct and last_read_at of a message of queue %s can''t be inserted', name),
        'Insert message, headers and vt.', 'MQ004');
    message.msg_id := (
        select s from spanmq_call.send(name, message.message, message.headers, coalesce(message.vt, clock_timestamp()))
            s);
    select v.read_ct, v.enqueued_at, v.vt into message.read_ct, message.enqueued_at, message.vt
        from spanmq_core.look(spanmq_core.find_queue(name), message.msg_id, message.msg_id, 1) v;
    return message;
end $$;

