-- Lanes: static SQL for logs. A statement that is put together at run time is parsed and planned at each call, which is
-- a fifth of what a message costs. So maintain() gives a queue that is in use a lane: a view of its newest segment,
-- under one of 16 names that the functions below contain. Where all lanes are taken, and between two segments, these
-- functions put their SQL together.
--
-- A queue's row names the lane, the log that it shows and that log's ids: a session that reads the row and uses the
-- lane later, within one statement of the caller's, must find the same log there, whatever happened meanwhile. So a
-- lane shows one log until no session can have read a row that names it: until every snapshot is younger than the
-- change of that row.

-- The functions that reach a log by its lane, made here. Each has the same statement for each of the lanes. For a log
-- without a lane it executes the statement with log_name. $1 in a statement is the first parameter of the function.
-- append_by_lane() returns the id, because a call with a result can be used in an assignment, which costs half of a
-- `perform`.
do $do$
declare
    heading text;
    opening text;
    statement text;
    target text;
    ending text;
begin
    for heading, opening, statement, target, ending in values
        ('append_by_lane(lane int, log_name text, id bigint, sent_at timestamptz, message jsonb, headers jsonb)'
         ' returns bigint',
         '', 'insert into spanmq_core.%I (msg_id, enqueued_at, message, headers) values ($3, $4, $5, $6)',
         '', 'return id;'),
        ('append_run_by_lane(lane int, log_name text, first_id bigint, last_id bigint, sent_at timestamptz,'
         ' messages jsonb[]) returns void',
         -- Functions that return sets are streamed in a select list; in a from list they would be copied first.
         '', 'insert into spanmq_core.%I (msg_id, enqueued_at, message) select generate_series($3, $4), $5, unnest($6)',
         '', ''),
        ('fetch_by_lane(lane int, log_name text, first_id bigint, end_id bigint, read_at timestamptz,'
         ' until timestamptz) returns setof pgmq.message_record',
         'return query', 'select l.msg_id, 1, l.enqueued_at, $5, $6, l.message, l.headers from spanmq_core.%I l'
         ' where l.msg_id >= $3 and l.msg_id < $4 order by l.msg_id',
         '', ''),
        ('fetch_some_by_lane(lane int, log_name text, ids bigint[], reads int[], read_ats timestamptz[],'
         ' vts timestamptz[]) returns setof pgmq.message_record',
         -- One by one, by force (offset 0): a join may scan all of the log.
         'return query', 'select l.msg_id, u.reads, l.enqueued_at, u.read_at, u.vt, l.message, l.headers'
         ' from unnest($3, $4, $5, $6) with ordinality u (id, reads, read_at, vt, place)'
         ' cross join lateral (select * from spanmq_core.%I l where l.msg_id = u.id offset 0) l order by u.place',
         '', ''),
        ('fetch_one_by_lane(lane int, log_name text, id bigint, reads int, read_at timestamptz, until timestamptz)'
         ' returns pgmq.message_record',
         '', 'select l.msg_id, $4, l.enqueued_at, $5, $6, l.message, l.headers from spanmq_core.%I l'
         ' where l.msg_id = $3',
         'into one', 'return one;')
    loop
        execute
            format(E'create or replace function spanmq_core.%s language plpgsql as $body$\ndeclare\n'
                   '    one pgmq.message_record;\nbegin\n    case lane\n%s'
                   '        else %s execute format(%L, log_name) %s using $1, $2, $3, $4, $5, $6;\n'
                   '    end case;\n    %s\nend $body$', heading,
                   (select string_agg(format(E'        when %s then %s %s %s;\n', n, opening,
                                             format(statement, 'lane_' || n), target), '' order by n)
                    from generate_series(1, 16) n), opening, statement, target, ending);
    end loop;
    execute
        format(E'create or replace function spanmq_core.archive_by_lane(lane int, place regclass, ids bigint[],'
               ' attempts int[], read_ats timestamptz[], vts timestamptz[]) returns boolean language plpgsql as'
               ' $body$\nbegin\n    case lane\n%s    end case;\nend $body$',
               (select string_agg(format(E'        when %s then return spanmq_core.archive_by_lane_%s(ids, attempts,'
                                         ' read_ats, vts, place);\n', n, n), '' order by n)
                from generate_series(1, 16) n));
end $do$;

-- Frees the lanes that no session can know any more, and assigns free ones to queues in use; the arrays contain the ids
-- that these have drawn. Never waits beyond the lock_timeout of maintain().
create or replace function spanmq_core.tend_lanes(queue_ids int[], positions bigint[]) returns void
language plpgsql as $$
declare
    horizon xid8;
    this_queue int;
begin
    -- A session whose snapshot began before this statement may know the lane; later ones do not. (A number in the
    -- future comes from another server, by dump and restore.)
    update spanmq_core.lane l set free_from_xid = pg_snapshot_xmax(pg_current_snapshot())
        where (l.free_from_xid is null or l.free_from_xid > pg_snapshot_xmax(pg_current_snapshot()))
          and not exists (select from spanmq_core.queue q where q.lane = l.lane);
    if exists (select from spanmq_core.lane l where l.free_from_xid is not null) then
        horizon := spanmq_core.horizon();
        perform spanmq_core.free_lane(l.lane) from spanmq_core.lane l where l.free_from_xid <= horizon;
    end if;
    for this_queue in
        select q.queue_id
        from unnest(queue_ids, positions) d (queue_id, drawn)
        cross join lateral (select * from spanmq_core.queue q where q.queue_id = d.queue_id) q
        -- Most queues of a test or of an idle tenant never come so far, and lanes are few.
        where q.lane is null and d.drawn >= 1000 and d.drawn between q.log_lo and q.log_hi
          -- With small segments a lane would be created and dropped all the time.
          and q.log_hi - q.log_lo >= 16383
    loop
        exit when not spanmq_core.open_lane(this_queue);
    end loop;
end $$;

-- Drops a lane. False: another session holds it.
create or replace function spanmq_core.free_lane(this_lane int) returns boolean
language plpgsql as $$
begin
    perform from spanmq_core.lane l where l.lane = this_lane for update skip locked;
    if found then
        execute format('drop function if exists spanmq_core.archive_by_lane_%s', this_lane);
        perform spanmq_core.drop_relation(to_regclass(format('spanmq_core.lane_%s', this_lane)));
        delete from spanmq_core.lane l where l.lane = this_lane;
    end if;
    return found;
exception
    when lock_not_available then
        return false;
    when others then
        raise warning 'maintain() can''t free lane %: %', this_lane, sqlerrm;
        return false;
end $$;

-- Assigns a lane to a queue, unless another session has locked its row. False: all lanes are taken.
create or replace function spanmq_core.open_lane(this_queue int) returns boolean
language plpgsql as $$
declare
    free_lane int := (select min(n) from generate_series(1, 16) n
                      where n not in (select l.lane from spanmq_core.lane l));
    this spanmq_core.queue;
begin
    if free_lane is null then
        return false;
    end if;
    -- Its log can't go while we hold the row: a drop takes the row first, and maintain(), which retires segments, is
    -- us.
    select * into this from spanmq_core.queue q where q.queue_id = this_queue and q.lane is null
        for no key update skip locked;
    if found then
        execute format('create view spanmq_core.lane_%s as select msg_id, enqueued_at, message, headers from'
                       ' spanmq_core.%I', free_lane, this.log_name);
        perform spanmq_core.close_relation(format('spanmq_core.lane_%s', free_lane)::regclass, '{}');
        insert into spanmq_core.lane (lane, log_name) values (free_lane, this.log_name);
        perform spanmq_core.make_archiver(this, free_lane);
        update spanmq_core.queue q set lane = free_lane where q.queue_id = this_queue;
    end if;
    return true;
exception
    when lock_not_available then
        return true;
    when others then
        raise warning 'maintain() can''t open a lane for queue %: %', this_queue, sqlerrm;
        return true;
end $$;
