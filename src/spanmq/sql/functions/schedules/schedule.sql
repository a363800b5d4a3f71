-- Recurring messages. SQL cannot parse cron, so a schedule's row has its expression, and spanmq_core.schedule_time its
-- next times, which clients write and replenish: 1,000 of them, or a year's. maintain() sends due messages, whether a
-- client or pg_cron calls it: the message is sent and the time deleted in one transaction, so each time fires once,
-- also after a crash.

-- Creates a schedule, or replaces the settings of the one with this name for all later messages. The planned times are
-- kept if cron and time_zone do not change. From now on its messages are sent on behalf of the caller, as long as this
-- role may send to the queue. Raises MQ002 for an invalid name, time zone or header.
create or replace function spanmq_call.schedule(
    name text, queue text, cron text, body jsonb, time_zone text default 'UTC', headers jsonb default null,
    catch_up boolean default false,
    by_role text default null
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    before spanmq_core.schedule;
begin
    perform spanmq_core.raise_if(name is null or octet_length(name) not between 1 and 255,
        'the name of a schedule must have 1 to 255 bytes', 'Choose another name.');
    perform spanmq_core.raise_if(cron is null or catch_up is null or time_zone is null,
        'cron, time_zone and catch_up of a schedule cannot be NULL', 'Such as 0 8 * * * and Europe/Berlin.');
    perform spanmq_core.raise_if(jsonb_typeof(headers) not in ('object', 'null'),
        'the headers of a schedule must be a JSON object', 'Such as {"x-pgmq-group": "a"}.');
    -- A list of schedules has the bodies that all senders have stored in them.
    perform spanmq_core.raise_if(octet_length(body::text) + coalesce(octet_length(headers::text), 0) > 256000,
        'the body and headers of a schedule may have 256,000 bytes', 'Send the address of a larger one.');
    perform spanmq_core.check_bodies(this, array[body]);
    begin
        perform now() at time zone time_zone;
    exception when invalid_parameter_value then
        raise exception 'time zone % does not exist', quote_literal(time_zone) using errcode = 'MQ002',
            hint = 'One is Europe/Berlin.';
    end;
    perform spanmq_core.hold_queue(this);
    perform spanmq_core.lock_name('schedule', name);
    before := spanmq_core.find_schedule(queue, name, false);
    if before.schedule_id is null and exists (select from spanmq_core.schedule s where s.name = schedule.name) then
        raise exception 'schedule % sends into another queue', name
            using errcode = 'MQ002', hint = 'Choose another name, or delete the schedule first.';
    end if;
    insert into spanmq_core.schedule as s (name, queue_id, cron, time_zone, message, headers, catch_up, made_by)
        values (schedule.name, this.queue_id, schedule.cron, schedule.time_zone, body,
                case when jsonb_typeof(schedule.headers) = 'object' then schedule.headers end, schedule.catch_up,
                by_role)
        on conflict on constraint schedule_name_key do update
            set message = excluded.message, headers = excluded.headers, catch_up = excluded.catch_up,
            made_by = excluded.made_by,
                cron = excluded.cron, time_zone = excluded.time_zone,
                planned_until = case
                when (s.cron, s.time_zone) = (excluded.cron, excluded.time_zone) then s.planned_until
                else excluded.planned_until end;
    delete from spanmq_core.schedule_time t where t.schedule_id = before.schedule_id
        and (before.cron, before.time_zone) <> (schedule.cron, schedule.time_zone);
end $$;

-- The queue to which the schedule of that name sends; null if it does not exist.
create or replace function spanmq_call.queue_of_schedule(schedule_name text) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select q.name from spanmq_core.schedule s join spanmq_core.queue q on q.queue_id = s.queue_id
        where s.name = schedule_name
$$;

-- The schedule of that name that sends to the queue, locked. Raises MQ007 if `needed` and it does not exist.
create or replace function spanmq_core.find_schedule(
    of_queue text, schedule_name text, needed boolean
) returns spanmq_core.schedule
language plpgsql as $$
declare
    this spanmq_core.schedule;
begin
    select * into this from spanmq_core.schedule s
        where s.name = schedule_name and s.queue_id = (
            select q.queue_id from spanmq_core.queue q where q.folded_name = lower(of_queue collate "C"))
        for no key update;
    perform spanmq_core.raise_if(not found and needed, format('there is no schedule %L', schedule_name),
                                 'spanmq.list_schedules() lists them.', 'MQ007');
    return this;
end $$;

-- Deletes a schedule; its sent messages stay. False if no schedule has this name.
create or replace function spanmq_call.unschedule(of_queue text, name text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.schedule := spanmq_core.find_schedule(of_queue, name, false);
begin
    delete from spanmq_core.schedule s where s.schedule_id = this.schedule_id;
    return found;
end $$;

-- Pauses a schedule: its times are skipped from now on. Raises MQ007 if no schedule has this name.
create or replace function spanmq_call.pause_schedule(of_queue text, name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.schedule := spanmq_core.find_schedule(of_queue, name, true);
begin
    update spanmq_core.schedule s set is_paused = true, pause_reason = null where s.schedule_id = this.schedule_id;
end $$;

-- Resumes a schedule. Times within the pause are not sent, even with catch_up.
create or replace function spanmq_call.resume_schedule(of_queue text, name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.schedule := spanmq_core.find_schedule(of_queue, name, true);
    at_ timestamptz := clock_timestamp();
begin
    if this.is_paused then
        delete from spanmq_core.schedule_time t where t.schedule_id = this.schedule_id and t.due_at <= at_;
        update spanmq_core.schedule s set is_paused = false, pause_reason = null,
            planned_until = greatest(s.planned_until, at_)
            where s.schedule_id = this.schedule_id;
    end if;
end $$;

-- Sends the message of a schedule now, as the caller, even if the schedule is paused, and returns its id. The times of
-- the schedule do not change. Raises MQ007 if no schedule has this name.
create or replace function spanmq_call.run_schedule(of_queue text, name text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.schedule := spanmq_core.find_schedule(of_queue, name, true);
begin
    return (spanmq_core.send_many(
        spanmq_core.find_target(of_queue), array[this.message],
        array[coalesce(this.headers, '{}') || jsonb_build_object('x-spanmq-schedule', this.name,
                                                                 'x-spanmq-scheduled-at', clock_timestamp())],
                                                                 null))[1];
end $$;

-- The schedules of queues that the caller may look into, by name; of these queues and with these names, if they are not
-- null. A body of more than body_bytes_max bytes, as it is stored, is replaced by {"spanmq.cut": bytes}. Raises MQ002
-- for an invalid limit.
create or replace function spanmq_call.list_schedules(queues text[] default null, names text[] default null,
                                                      body_bytes_max integer default null)
returns table (
    name text, queue text, cron text, time_zone text, message jsonb, headers jsonb, catch_up boolean, is_paused boolean,
    next_at timestamptz, last_at timestamptz, last_msg_id bigint, planned_until timestamptz, made_by name,
    pause_reason text
)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select spanmq_core.check_body_bytes(body_bytes_max);
    select s.name, q.name, s.cron, s.time_zone, spanmq_core.cut(s.message, body_bytes_max), s.headers, s.catch_up,
        s.is_paused,
           (select min(t.due_at) from spanmq_core.schedule_time t where t.schedule_id = s.schedule_id),
           s.last_at, s.last_msg_id, s.planned_until, s.made_by, s.pause_reason
    from spanmq_core.schedule s join spanmq_core.queue q on q.queue_id = s.queue_id
    where (queues is null
           or q.folded_name operator(pg_catalog.=) any
           (array(select pg_catalog.lower(n collate pg_catalog."C") from pg_catalog.unnest(queues) n)))
      and (names is null or s.name operator(pg_catalog.=) any (names))
    order by s.name
$$;

-- For clients. Returns up to 100 schedules that need more times, from plan_from on. A row without a name has the
-- seconds until the next time of all schedules is due. Includes only queues to which the caller may send; a role
-- without a right on all queues gets such a row for each queue.
create or replace function spanmq_call.upcoming_schedules(queues text[] default null)
returns table (name text, cron text, time_zone text, planned_until timestamptz, plan_from timestamptz,
               looked_at timestamptz, due_in double precision)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    at_ timestamptz := clock_timestamp();
    folded_names text[] := array(select lower(n collate "C") from unnest(queues) n);
begin
    return query
        select s.name, s.cron, s.time_zone, s.planned_until,
        case when s.catch_up then s.planned_until else greatest(s.planned_until, at_) end,
               at_, null::double precision
        from spanmq_core.schedule s join spanmq_core.queue q on q.queue_id = s.queue_id
        where (queues is null or q.folded_name = any (folded_names)) and not s.is_paused
        and s.planned_until < at_ + interval '180 days'
          and (select count(*)
               from (select from spanmq_core.schedule_time t where t.schedule_id = s.schedule_id limit 500) t) < 500
        order by s.planned_until limit 100;
    return query
        select null::text, null::text, null::text, null::timestamptz, null::timestamptz, at_,
        extract(epoch from min(t.due_at) - at_)::double precision
        from spanmq_core.schedule_time t join spanmq_core.schedule s on s.schedule_id = t.schedule_id
        join spanmq_core.queue q on q.queue_id = s.queue_id
        where (queues is null or q.folded_name = any (folded_names)) and not s.is_paused
        having min(t.due_at) is not null;
end $$;

-- Adds times to a schedule, up to new_until. False, and no change, if the schedule is no longer planned until
-- planned_until: another process has added times, or the schedule was changed. Raises MQ007 if there is no schedule of
-- that name, MQ002 for times that are null, infinite or over 1,000.
create or replace function spanmq_call.plan_schedule(
    of_queue text, name text, planned_until timestamptz, times timestamptz[], new_until timestamptz
) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.schedule := spanmq_core.find_schedule(of_queue, name, true);
begin
    perform spanmq_core.raise_if(times is null or cardinality(times) > 1000
                                 or exists (select from unnest(times) t where isfinite(t) is not true)
                                 or isfinite(new_until) is not true,
        'times must be at most 1000, and neither they nor new_until may be NULL or infinite', 'Plan fewer at a time.');
    if this.planned_until is distinct from plan_schedule.planned_until then
        return false;
    end if;
    insert into spanmq_core.schedule_time (schedule_id, due_at)
        select this.schedule_id, t from unnest(times) t on conflict do nothing;
    update spanmq_core.schedule s set planned_until = greatest(s.planned_until, new_until)
        where s.schedule_id = this.schedule_id;
    return true;
end $$;

-- Sends due messages and returns a row for each schedule: up to 100 messages of one that catches up, otherwise one for
-- all its times that have passed. Locks the schedule, and reads its times under the lock: any number of callers send
-- each once, and none waits. A schedule whose role may not send to the queue is paused.
create or replace function spanmq_core.fire_schedules(budget int) returns table (action text, queue text, detail text)
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
    candidate int;
    this spanmq_core.schedule;
    of_queue spanmq_core.queue;
    times timestamptz[];
    n int := 0;
begin
    for candidate in
        select distinct t.schedule_id from spanmq_core.schedule_time t join spanmq_core.schedule s
        on s.schedule_id = t.schedule_id
        where t.due_at <= at_ and not s.is_paused order by 1
    loop
        exit when n >= budget;
        begin
            -- A new statement under the lock of the schedule reads its current row.
            select * into this from spanmq_core.schedule s where s.schedule_id = candidate and not s.is_paused
                for no key update skip locked;
            continue when not found;
            select * into of_queue from spanmq_core.queue q where q.queue_id = this.queue_id;
            if not spanmq_core.role_may(this.made_by::text, of_queue.queue_id, 'send') then
                this.pause_reason := format('role %I may not send into queue %s', this.made_by, of_queue.name);
                update spanmq_core.schedule s set is_paused = true, pause_reason = this.pause_reason
                    where s.schedule_id = candidate;
                action := 'paused schedule';
                queue := of_queue.name;
                detail := format('%s: %s', this.name, this.pause_reason);
                return next;
                n := n + 1;
                continue;
            end if;
            with due as (
                delete from spanmq_core.schedule_time t
                    where t.schedule_id = candidate
                      and t.due_at = any (array(select d.due_at from spanmq_core.schedule_time d
                                                where d.schedule_id = candidate and d.due_at <= at_ order by d.due_at
                                                limit case when this.catch_up then 100 end))
                    returning t.due_at)
                select array_agg(d.due_at order by d.due_at) into times from due d;
            continue when times is null;
            detail := this.name;
            if not this.catch_up and cardinality(times) > 1 then
                detail := format('%s, %s missed', this.name, cardinality(times) - 1);
                times := times[cardinality(times):];
            end if;
            for i in 1 .. cardinality(times) loop
                this.last_msg_id := (spanmq_core.send_many(
                    of_queue, array[this.message],
                    array[coalesce(this.headers, '{}') || jsonb_build_object('x-spanmq-schedule', this.name,
                        'x-spanmq-scheduled-at', times[i])],
                    null))[1];
            end loop;
            update spanmq_core.schedule s set last_at = times[cardinality(times)], last_msg_id = this.last_msg_id
                where s.schedule_id = candidate;
            action := 'sent scheduled';
            queue := of_queue.name;
            return next;
            n := n + 1;
        exception
            when lock_not_available or sqlstate 'MQ062' then
                -- A sender creates a segment, another session drops the queue, or it is full: the next call tries
                -- again.
                continue;
            when others then
                -- A message that cannot be sent keeps no other schedule, and no queue, from maintenance.
                raise warning 'maintain() can''t send the message of schedule "%": %', this.name, sqlerrm;
                continue;
        end;
    end loop;
end $$;
