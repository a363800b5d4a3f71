-- Redriving: a dead letter becomes a message again, the same one: it keeps its msg_id, and so its place in its group
-- and its story. Only its attempts begin anew. What was a log row may be gone by now, with its segment: then it is
-- written again.
--
-- Lock order: dead letters, ascending -> deduplication ids, ascending -> the row of a segment that was noted as settled
-- -> a lock row of the queue, if a segment must be made -> tables and rows of segments, ascending.

-- Returns when the first of them is to be visible; delay null: after the redrive_delay of the queue's policy, so that
-- what has just failed is not tried again at once. Raises MQ002 for a delay or a rate that is none.
create or replace function spanmq_core.redrive_from(
    this spanmq_core.queue, delay double precision, rate double precision
) returns timestamptz
language plpgsql volatile as $$
declare
    visible_from timestamptz := spanmq_core.after(coalesce(delay, (spanmq_core.policy_of(this.queue_id)).redrive_delay),
                                                  'delay');
begin
    perform spanmq_core.raise_if(delay < 0, format('delay cannot be negative, got: %s', delay), '0 is no delay.');
    perform spanmq_core.raise_if(rate <= 0 or rate = 'NaN',
        format('rate must be more than 0 messages a second, got: %s', rate), 'Omit it to redrive all at once.');
    return visible_from;
end $$;

-- Redrives dead letters that fit all filters (as dead_letters()) into their queue, those with the lowest ids first, at
-- most qty. They become visible after `delay` seconds (null: the redrive_delay of the queue's policy); with a rate,
-- `rate` of them a second from then on. Returns the messages and their times, or with dry_run those of a redrive that
-- is not made. Each is redriven once, also by concurrent calls. A message keeps its msg_id, enqueued_at and failures,
-- and its attempts begin at 1. The dead letter stays, marked redriven_at, with its former body. An expiry in the past
-- is removed. A patch (JSON Patch, RFC 6902, without copy) changes the body of each, and with group_by in the policy
-- its group. With a patch, all of them are redriven or none: the call waits for dead letters that another transaction
-- changes, and raises MQ002 if more than qty fit the filters, or the patch does not fit one of them, and MQ004 for an
-- encrypted body. With dry_run the first ten rows have the bodies before and after the patch. new_messages has the new
-- bodies of dead_letter_ids in their order; null: unchanged. A dead letter is not redriven, with a patch too, if
-- another message has its dedup_id (dedup_until of send_messages()). Its row then has the other message as `beside`,
-- and no visible_at. It counts in qty, so a loop ends when no row has a visible_at. Raises MQ002, MQ020, MQ060 as
-- redrive_message().
create or replace function spanmq_call.redrive(
    queue text, category text default null, error text default null, error_class text default null,
    since timestamptz default null,
    until timestamptz default null, payload jsonb default null, match text default null,
    dead_letter_ids bigint[] default null,
    patch jsonb default null, new_messages jsonb[] default null, qty integer default 1000,
    rate double precision default null,
    delay double precision default null, dry_run boolean default false
) returns table (msg_id bigint, visible_at timestamptz, before jsonb, after jsonb, beside bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    given spanmq_core.letter_filter := spanmq_core.letter_filter(category, error, error_class, since, until, payload,
                                                                 match, dead_letter_ids, false);
    visible_from timestamptz := spanmq_core.redrive_from(this, delay, rate);
    -- One more shows that there are more.
    most int := qty + (patch is not null and qty < 2147483647)::int;
    letters record;
    messages jsonb[];
    others bigint[];
begin
    perform spanmq_core.check_quantity(qty);
    perform spanmq_core.raise_if(dry_run is null, 'dry_run cannot be NULL', 'Pass true or false.');
    perform spanmq_core.check_patch(patch);
    perform spanmq_core.raise_if(
        new_messages is not null
            and (patch is not null or cardinality(new_messages) is distinct from cardinality(dead_letter_ids)),
        'new_messages must have one element for each of dead_letter_ids, and needs no patch', 'Pass one or the other.');
    select coalesce(array_agg(d.dead_letter_id), '{}') as ids, coalesce(array_agg(d.msg_id), '{}') as msg_ids,
           array_agg(d.message) as messages, array_agg(d.headers) as headers
        into letters from spanmq_core.find_dead_letters(
            this.queue_id, given, null, most, 'msg_id',
            case when dry_run then '' when patch is not null then 'for update' else 'for update skip locked' end) d;
    perform spanmq_core.raise_if(cardinality(letters.ids) > qty,
        format('more than %s dead letters fit: none is redriven', qty),
        'A patch is for all or none of them. Raise qty, or choose fewer.');
    messages := letters.messages;
    if patch is not null or new_messages is not null then
        messages := spanmq_core.new_bodies(this, letters.ids, letters.msg_ids, messages, patch, dead_letter_ids,
                                           new_messages);
    end if;
    others := spanmq_core.beside(this, letters.msg_ids, letters.headers, dry_run);
    if not dry_run then
        perform spanmq_core.revive(this, r.ids, r.messages, r.headers, visible_from, rate)
            from (select array_agg(u.id order by u.place) as ids, array_agg(u.message order by u.place) as messages,
                         array_agg(u.headers order by u.place) as headers
                  from unnest(letters.ids, messages, letters.headers) with ordinality u (id, message, headers, place)
                  where others[u.place] is null) r;
    end if;
    return query
        select l.msg_id,
               case when others[l.place] is null
               then spanmq_core.visible_at(visible_from, rate, l.place
                                           - count(others[l.place]) over (order by l.place)) end,
               case when dry_run and patch is not null and l.place <= 10 then l.was end,
               case when dry_run and patch is not null and l.place <= 10 then l.message end, others[l.place]
        from unnest(letters.msg_ids, letters.messages, messages) with ordinality l (msg_id, was, message, place)
        order by l.place;
end $$;

-- The new bodies of dead letters, in their places: by a patch, or those of new_messages, which has them in the places
-- of of_ids.
create or replace function spanmq_core.new_bodies(
    this spanmq_core.queue, dead_letter_ids bigint[], msg_ids bigint[], messages jsonb[], patch jsonb, of_ids bigint[],
    new_messages jsonb[]
) returns jsonb[]
language plpgsql as $$
declare
    body jsonb;
    bodies jsonb[] := '{}';
begin
    -- The place in a list does not depend on where its array begins.
    of_ids := array(select unnest(of_ids));
    new_messages := array(select unnest(new_messages));
    for i in 1 .. cardinality(msg_ids) loop
        body := case when patch is not null then spanmq_core.patched(messages[i], patch, msg_ids[i])
                     else coalesce(new_messages[array_position(of_ids, dead_letter_ids[i])], messages[i]) end;
        if body is distinct from messages[i] then
            perform spanmq_core.check_own(this, msg_ids[i]),
                    spanmq_core.check_bodies(this, array[body], format('the new body of message %s', msg_ids[i]));
        end if;
        bodies := array_append(bodies, body);
    end loop;
    return bodies;
end $$;

-- Raises MQ060 for a message that other queues of the log have too: they would get it changed.
create or replace function spanmq_core.check_own(this spanmq_core.queue, msg_id bigint) returns void
language plpgsql as $$
begin
    perform spanmq_core.raise_if((this.is_subscription or this.has_subscriptions)
                                 and spanmq_core.is_shared(this, msg_id),
        format('message %s cannot be changed for queue %s only: other queues have it too', msg_id, this.name),
        'A queue and its subscriptions share each message. Redrive it as it is, or discard it and send another.',
        'MQ060');
end $$;

-- When the n-th of them comes at this rate. Multiplied, not added up: no error grows. Decades ahead is as good as
-- never.
create or replace function spanmq_core.visible_at(visible_from timestamptz, rate double precision, n bigint)
returns timestamptz
language sql immutable as $$
    select visible_from +
        make_interval(secs => case when rate is null then 0 else least((n - 1) / greatest(rate, 1e-290), 3e9) end)
$$;

-- Redrives one dead letter with this message and these headers (null: unchanged; JSON's null is a message too),
-- visible after `delay` seconds (null: as redrive()). Its group is the one that the new message names, and its place
-- there is that of its id. Returns its msg_id. Raises MQ021 if no dead letter of this msg_id waits, MQ002 for headers
-- that are not an object, MQ066 if another message has its dedup_id. Raises MQ060 for a change while another queue of
-- the same log (a subscription) still has the message, because both have the same one. Otherwise as redrive().
create or replace function spanmq_call.redrive_message(
    queue text, msg_id bigint, message jsonb default null, headers jsonb default null,
    delay double precision default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    visible_from timestamptz := spanmq_core.redrive_from(this, delay, null);
    letter spanmq_core.dead_letter;
    body jsonb;
    new_headers jsonb;
begin
    select * into letter from spanmq_core.dead_letter d
        where d.queue_id = this.queue_id and d.msg_id = redrive_message.msg_id and d.redriven_at is null for update;
    perform spanmq_core.raise_if(not found,
        format('queue %s has no pending dead letter %s', this.name, coalesce(redrive_message.msg_id::text, 'NULL')),
        'spanmq.state() returns the state of the message.', 'MQ021');
    perform spanmq_core.raise_if(jsonb_typeof(headers) not in ('object', 'null'),
        format('headers must be a JSON object, got: %s', left(headers::text, 100)),
        'Such as {"x-pgmq-group": "a"}.');
    body := coalesce(message, letter.message);
    new_headers := case when headers is null then letter.headers else nullif(headers, 'null') end;
    if (body, new_headers) is distinct from (letter.message, letter.headers) then
        perform spanmq_core.check_own(this, letter.msg_id);
        if body is distinct from letter.message then
            perform spanmq_core.check_bodies(this, array[body], format('the new body of message %s', letter.msg_id));
        end if;
    end if;
    perform spanmq_core.raise_held(spanmq_core.dedup_id_of(new_headers), b.id)
        from unnest(spanmq_core.beside(this, array[letter.msg_id], array[new_headers], false)) b (id)
        where b.id is not null;
    perform spanmq_core.revive(this, array[letter.dead_letter_id], array[body], array[new_headers], visible_from, null);
    return letter.msg_id;
end $$;

-- The expiry time in a message's own headers; null if it is not a valid time.
create or replace function spanmq_core.own_expires_at(headers jsonb) returns timestamptz
language plpgsql stable as $$
begin
    if jsonb_typeof(headers->'x-spanmq-expires-at') = 'string' then
        return (headers->>'x-spanmq-expires-at')::timestamptz;
    end if;
    return null;
exception when data_exception then
    return null;
end $$;

-- Makes messages with these bodies and headers of dead letters, which the caller has locked, ascending by msg_id. One
-- whose body or headers name another group than its own goes into that group, where it comes by its id.
create or replace function spanmq_core.revive(
    this spanmq_core.queue, dead_letter_ids bigint[], messages jsonb[], headers jsonb[], visible_from timestamptz,
    rate double precision
) returns void
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
    letters record;
begin
    if dead_letter_ids is null then
        return;
    end if;
    -- As any sender: a transaction id before the first row.
    perform pg_current_xact_id();
    -- The policy may name groups by another place than when the message was sent.
    select array_agg(d.msg_id order by u.place) as ids, array_agg(d.enqueued_at order by u.place) as enqueued_ats,
           array_agg(d.priority order by u.place) as priorities,
           array_agg(case when spanmq_core.group_in(this.group_by, u.message, u.headers)
                               is distinct from spanmq_core.group_in(this.group_by, d.message, d.headers)
                     then spanmq_core.group_in(this.group_by, u.message, u.headers)
                     else d.group_key end order by u.place) as group_keys
        into letters
        from unnest(dead_letter_ids, messages, headers) with ordinality u (id, message, headers, place)
        cross join lateral (select * from spanmq_core.dead_letter l where l.dead_letter_id = u.id offset 0) d;
    if this.uses_limits then
        delete from spanmq_core.expiry e where e.queue_id = this.queue_id and e.msg_id = any (letters.ids);
        -- A past time would make it expire again at once.
        headers := array(
            select case when spanmq_core.own_expires_at(u.headers) <= at_
                   then nullif(u.headers - 'x-spanmq-expires-at', '{}') else u.headers end
            from unnest(headers) with ordinality u (headers, place) order by u.place);
        insert into spanmq_core.expiry (queue_id, msg_id, expires_at)
            select this.queue_id, u.id, spanmq_core.own_expires_at(u.headers)
            from unnest(letters.ids, headers) u (id, headers)
            where spanmq_core.own_expires_at(u.headers) is not null
            on conflict do nothing;
    end if;
    perform spanmq_core.write_again(this, letters.ids, letters.enqueued_ats, messages, headers);
    -- As messages that were never delivered, each visible at its own time.
    perform spanmq_core.heed_clock(this.queue_id);
    insert into spanmq_core.later (queue_id, msg_id, vt, priority, group_hash, group_key)
        select this.queue_id, u.id, greatest(spanmq_core.visible_at(visible_from, rate, u.place), clock_timestamp()),
               u.priority, hashtextextended(u.key, 0), u.key
        from unnest(letters.ids, letters.priorities, letters.group_keys) with ordinality u (id, priority, key, place);
    -- The group that it blocked, which a change may have left.
    with redriven as (
        update spanmq_core.dead_letter d set redriven_at = at_, redriven_as = d.msg_id
            where d.dead_letter_id = any (revive.dead_letter_ids)
            returning d.msg_id, hashtextextended(d.group_key, 0) as group_hash)
    delete from spanmq_core.blocked_group b using redriven r
        where b.queue_id = this.queue_id and b.group_hash = r.group_hash and b.msg_id = r.msg_id;
    insert into spanmq_core.dead_letter_count (queue_id, category, n) select this.queue_id, d.category, -count(*)
        from spanmq_core.dead_letter d where d.dead_letter_id = any (revive.dead_letter_ids) group by d.category;
    -- Not announce(): subscribers have nothing of it.
    if this.notify_ms is not null then
        perform spanmq_core.notify(this);
    end if;
    if not spanmq_core.is_foreseen(visible_from) then
        perform spanmq_core.wake(this.queue_id, this.bells);
    end if;
end $$;

-- Writes the rows of messages that come back into the log where they are gone, or changed, segment by segment. What
-- other queues of the log have too stays as it is.
create or replace function spanmq_core.write_again(
    this spanmq_core.queue, ids bigint[], enqueued_ats timestamptz[], messages jsonb[], headers jsonb[]
) returns void
language plpgsql as $$
declare
    log_id int := coalesce((select s.log_id from spanmq_core.subscription s where s.queue_id = this.queue_id),
                           this.queue_id);
    shared bigint[] := '{}';
    segment spanmq_core.segment;
    log_name text;
    next_id bigint := (select min(id) from unnest(ids) id);
begin
    if this.is_subscription or this.has_subscriptions then
        shared := array(select id from unnest(ids) id where spanmq_core.is_shared(this, id));
    end if;
    while next_id is not null loop
        segment := spanmq_core.hold_segment(log_id, next_id);
        -- Also into the copy of a rewrite, which only has live messages, and into the table that it replaced, whose
        -- name another session may know.
        foreach log_name in array array_remove(array[segment.log_name, segment.copy_name, segment.old_name], null) loop
            execute format('insert into spanmq_core.%I as l (msg_id, enqueued_at, message, headers)'
                           ' select u.* from unnest($1, $2, $3, $4) u (id, enqueued_at, message, headers)'
                           ' where u.id between $5 and $6'
                           ' on conflict (msg_id) do update set message = excluded.message, headers = excluded.headers'
                           ' where (l.message, l.headers) is distinct from (excluded.message, excluded.headers) and'
                           ' l.msg_id <> all ($7)', log_name)
                using ids, enqueued_ats, messages, headers, segment.lo, segment.hi, shared;
        end loop;
        next_id := (select min(id) from unnest(ids) id where id > segment.hi);
    end loop;
end $$;

-- The segment of an id that was drawn long ago, made again if it is gone, and held in the log to the end of this
-- transaction: maintain() can neither truncate, drop nor swap its table, and judges it anew afterwards.
create or replace function spanmq_core.hold_segment(this_queue int, id bigint) returns spanmq_core.segment
language plpgsql as $$
declare
    this spanmq_core.segment;
    held spanmq_core.segment;
    log_name text;
begin
    -- A segment is changed only once by another transaction, so a second round is rare.
    for round in 1 .. 10 loop
        this := spanmq_core.segment_of(this_queue, id);
        if this.lo is null then
            this := spanmq_core.create_gap_segment(this_queue, id);
        end if;
        begin
            foreach log_name in array array_remove(array[this.log_name, this.copy_name, this.old_name], null) loop
                execute format('lock table spanmq_core.%I in row exclusive mode', log_name);
            end loop;
        exception when undefined_table then
            -- It was dropped meanwhile.
            continue;
        end;
        -- A new statement under the locks: is it still as it was? Where statements see the past, the row's lock tells.
        if spanmq_core.sees_now() then
            select * into held from spanmq_core.segment s where s.queue_id = this_queue and s.lo = this.lo;
        else
            select * into held from spanmq_core.segment s where s.queue_id = this_queue and s.lo = this.lo
                for no key update;
        end if;
        if found and (held.log_name, held.copy_name, held.old_name) is not distinct from (this.log_name, this.copy_name,
            this.old_name) then
            if held.state <> 'open' or held.settled_at_xid is not null then
                update spanmq_core.segment s set state = 'open', settled_at_xid = null where s.queue_id = this_queue
                    and s.lo = this.lo
                    returning * into held;
            end if;
            return held;
        end if;
    end loop;
    raise exception 'could not serialize access: the segment of message % changes', id
        using errcode = '40001', hint = 'Run the transaction again.';
end $$;

-- Makes a segment for an id whose segment is gone: one for the whole gap, so that many old messages don't make many
-- tables.
create or replace function spanmq_core.create_gap_segment(this_queue int, id bigint) returns spanmq_core.segment
language plpgsql as $$
declare
    first_id bigint := (select s.hi + 1 from spanmq_core.segment s where s.queue_id = this_queue and s.lo <= id
                        order by s.queue_id desc, s.lo desc limit 1);
    this spanmq_core.segment;
begin
    -- About 2 billion ids at most, what an int can say.
    if first_id is null then
        first_id := greatest(id - id % 256 - 1073741824, 1);
    elsif id - first_id >= 2147483392 then
        first_id := id - id % 256;
    end if;
    this := spanmq_core.create_segment(this_queue, first_id, 2147483392, true);
    -- It will hold few rows: no case for a rewrite, which is for segments that have become sparse.
    update spanmq_core.segment s set n_rows = 1 where s.queue_id = this_queue and s.lo = this.lo and s.n_rows > 1
        and s.created_at >= now();
    return this;
end $$;
