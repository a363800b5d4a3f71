-- Move tasks of the SQS protocol. A step of a task (its row locked, messages received, sent and acked, the row noted) is one transaction
-- of a service: whatever dies on the way, a message is in one queue, and any service goes on with the task.

create or replace function spanmq.sqs_move_row(this spanmq.sqs_move) returns pgmq.sqs_move
language sql immutable as $$
    select row(this.handle::text, this.source, this.destination, this.source_arn, this.destination_arn, this.rate, this.status, this.moved,
               this.to_move, this.failure, this.started_at)::pgmq.sqs_move
$$;

-- Begins to move; null if a task of that source runs. Forgets those that ended a month ago. Raises 42P01 and 42501 without the
-- right to receive from the source, MQ002 for a rate that is none.
create or replace function pgmq.start_sqs_move(
    source text, destination text, source_arn text, destination_arn text, to_move bigint, rate int default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq.queue := spanmq.find_queue(source, 'update');
    made uuid;
begin
    if rate not between 1 and 500 or to_move is null or source_arn is null then
        raise exception 'rate must be 1 to 500, and to_move and source_arn not NULL'
            using errcode = 'MQ002', hint = 'Give a rate in messages a second, and what is to be moved.';
    end if;
    delete from spanmq.sqs_move m where m.ended_at < clock_timestamp() - interval '30 days';
    insert into spanmq.sqs_move as m (source, destination, source_arn, destination_arn, rate, to_move)
        values (this.name, start_sqs_move.destination, start_sqs_move.source_arn, start_sqs_move.destination_arn, start_sqs_move.rate,
                start_sqs_move.to_move)
        on conflict do nothing returning m.handle into made;
    return made::text;
end $$;

-- The tasks of a source, the newest first. Raises 42P01 and 42501 without the right to look.
create or replace function pgmq.list_sqs_moves(source text, n int default 10) returns setof pgmq.sqs_move
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq.queue := spanmq.find_queue(source, 'select');
begin
    return query select (spanmq.sqs_move_row(m)).* from spanmq.sqs_move m where m.source = this.name order by m.started_at desc limit n;
end $$;

-- The task with that handle, if the caller may look at its source.
create or replace function pgmq.find_sqs_move(handle text) returns setof pgmq.sqs_move
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select (spanmq.sqs_move_row(m)).* from spanmq.sqs_move m join spanmq.queue q on q.name = m.source
    where m.handle::text = find_sqs_move.handle and pg_catalog.has_table_privilege(spanmq.caller(), q.queue_view, 'select')
$$;

-- Moves no more, and returns how many messages were moved; null if no such task runs. Waits for a step that is under way.
create or replace function pgmq.cancel_sqs_move(handle text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq.sqs_move;
begin
    update spanmq.sqs_move m set status = 'CANCELLED', ended_at = clock_timestamp()
        where m.handle::text = cancel_sqs_move.handle and m.status = 'RUNNING' returning m.* into this;
    if found then
        perform spanmq.find_queue(this.source, 'update');
    end if;
    return this.moved;
end $$;

-- A task whose next step is due, locked to the end of the transaction; no row if there is none that nobody else is at.
create or replace function pgmq.take_sqs_move() returns setof pgmq.sqs_move
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq.sqs_move;
begin
    select m.* into this from spanmq.sqs_move m
        where m.status = 'RUNNING' and m.next_at <= clock_timestamp()
          -- A queue that is gone is found out by the step.
          and not exists (select from spanmq.queue q where q.name = m.source
                          and not has_table_privilege(spanmq.caller(), q.queue_view, 'update'))
        order by m.next_at limit 1 for no key update skip locked;
    if found then
        return next spanmq.sqs_move_row(this);
    end if;
end $$;

-- Notes a step: so many messages were moved; none: the task is done; null: nothing can be moved now, so that others come first for a second;
-- with a failure it has failed. Returns after how many seconds the next step is due; null if there is none.
create or replace function pgmq.note_sqs_move(handle text, moved bigint default null, failure text default null) returns double precision
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    at_ timestamptz := clock_timestamp();
    this spanmq.sqs_move;
begin
    update spanmq.sqs_move m
        set moved = m.moved + coalesce(note_sqs_move.moved, 0), failure = note_sqs_move.failure,
            status = case when note_sqs_move.failure is not null then 'FAILED' when note_sqs_move.moved = 0 then 'COMPLETED' else m.status end,
            ended_at = case when note_sqs_move.failure is not null or note_sqs_move.moved = 0 then at_ end,
            -- What was missed while nobody served is not made up for.
            next_at = case when note_sqs_move.moved is null then at_ + interval '1 second'
                           when m.rate is null then at_
                           else greatest(m.next_at, at_ - interval '1 second') + make_interval(secs => note_sqs_move.moved / m.rate::float) end
        where m.handle::text = note_sqs_move.handle and m.status = 'RUNNING' returning m.* into this;
    if found then
        perform spanmq.find_queue(q.name, 'update') from spanmq.queue q where q.name = this.source;
    end if;
    return case when this.status = 'RUNNING' then greatest(extract(epoch from this.next_at - at_), 0) end;
end $$;
